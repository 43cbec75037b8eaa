"""The receivers of the how-to page hear a real delivery, and believe nobody else."""

import asyncio
import re
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from regista import Config, OrchestratorEngine
from regista.config.webhooks import EVENTS
from regista.webhooks.sender import PAUSES_S
from tests.support import script
from tests.webhook_kit import in_loop

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "webhooks.md").read_text()
RECEIVER, PLAIN = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def run(program: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(program, "webhooks.md", "exec"), names)  # our own page
    return names


async def given(url: str, headers: dict[str, str], body: bytes) -> int:
    async with aiohttp.ClientSession() as session, session.post(url, data=body, headers=headers) as answer:
        return answer.status


def test_the_receiver_of_the_page_takes_what_is_genuine_once_and_nothing_else(
    capsys: pytest.CaptureFixture[str],
) -> None:
    @in_loop
    async def main() -> None:
        page, plain = run(RECEIVER), run(PLAIN)
        heard: list[tuple[dict[str, str], bytes]] = []
        done = asyncio.Event()

        @web.middleware
        async def listen(request: web.Request, handler: Any) -> Any:
            heard.append((dict(request.headers), await request.read()))
            answer = await handler(request)
            done.set()
            return answer

        app = web.Application(middlewares=[listen])
        app.router.add_post("/hooks/regista", page["hook"])
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/hooks/regista"
        config = Config(instance_id="page", webhook_allow_private=("127.0.0.1/32",))
        async with OrchestratorEngine("memory", config) as director:
            director.register_blueprint(
                script(lambda context, actions: actions.transition_to("done"), "done")
            )
            (page["SECRET"],) = await director.webhooks.registry.secrets_of("acme")
            job = await director.submit("script", client="acme", webhook_url=url)
            async with asyncio.timeout(5):
                await done.wait()
            await director.webhooks.drain()
        (headers, body) = heard[0]
        ours = {name: value for name, value in headers.items() if name.startswith("webhook-")}
        assert await given(url, ours, body) == 204
        assert await given(url, ours, body + b" ") == 401
        assert await given(url, {}, body) == 401
        await runner.cleanup()
        assert capsys.readouterr().out == f"job_finished {job.id}\n"
        assert plain["is_genuine"](page["SECRET"], ours, body)
        assert not plain["is_genuine"](page["SECRET"], ours, body + b" ")

    main()


def test_the_page_names_every_event_and_every_pause() -> None:
    assert re.findall(r"^\| `job_(\w+)` \| `job\.\1`", PAGE, re.MULTILINE) == list(EVENTS)
    words = [f"{s:g} s" if s < 60 else f"{s / 60:g} min" if s < 3600 else f"{s / 3600:g} h" for s in PAUSES_S]
    told = re.sub(r"\s+", " ", PAGE)
    assert f"after {', '.join(words[:-1])} and {words[-1]}" in told
