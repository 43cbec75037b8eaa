"""The program of the how-to page, with its API and without one."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from regista import Client

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "embed.md").read_text()
(PROGRAM,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(BARE,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)


def run(program: str, **names: Any) -> dict[str, Any]:
    names["__name__"] = "page"
    exec(compile(program, "embed.md", "exec"), names)  # our own page
    return names


@asynccontextmanager
async def served(app: web.Application) -> AsyncIterator[str]:
    runner = web.AppRunner(app, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def welcomed(url: str) -> dict[str, Any]:
    async with aiohttp.ClientSession() as session, session.get(f"{url}/welcome/Bob") as answer:
        told: dict[str, Any] = await answer.json()
        return told


def test_the_application_of_the_page_runs_jobs_and_has_the_api_below_its_prefix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with served(run(PROGRAM)["make_app"]()) as url:
            told = await welcomed(url)
            async with Client(f"{url}/jobs") as client:  # finds the token by itself
                job = await client.run("greet", {"name": "Ada"}, timeout_s=5)
                mine = await client.get(told["job"])
        assert (told["status"], told["result"]) == ("finished", "Hello, Bob!")
        assert (job.result, mine.result) == ("Hello, Ada!", "Hello, Bob!")

    monkeypatch.chdir(tmp_path)
    asyncio.run(main())

    assert not (tmp_path / ".regista" / "url").exists()  # as the page says


async def test_without_an_api_the_director_lives_as_long_as_the_application() -> None:
    page = run(PROGRAM)
    app = web.Application()
    director = app[page["DIRECTOR"]] = page["OrchestratorEngine"]("memory")
    director.register_blueprint(page["blueprint"])
    director.add_worker(page["worker"])
    app.router.add_get("/welcome/{name}", page["welcome"])
    run(BARE, app=app, DIRECTOR=page["DIRECTOR"])

    async with served(app) as url:
        told = await welcomed(url)

    assert told["result"] == "Hello, Bob!"
    await director.wait_stopped()
