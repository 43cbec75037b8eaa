"""schemathesis reads the document and tries everything that it allows, and much that it does not."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from regista import StateMachineBlueprint
from tests.acceptance.serving import House, serving
from tests.acceptance.test_jobs import asks, breaks, worker
from tests.support import answer, one_task

HOOKS = Path(__file__).with_name("schemathesis_hooks.py")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def greet() -> StateMachineBlueprint:
    blueprint = StateMachineBlueprint("greet", api_endpoint="/greet", api_version="v2")
    blueprint.handler_for("start", is_start=True, is_end=True)(answer)
    return blueprint


async def search(house: House, folder: Path, *arguments: str) -> tuple[int | None, str]:
    """Its verdict, and what it says. Streams are left out: they answer for as long as one listens."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{house.url}/api/openapi.json"),
        *("--exclude-path-regex", "events$", "--checks", "all", "--seed", "1", *arguments),
        cwd=folder,
        env={**os.environ, "SCHEMATHESIS_HOOKS": "schemathesis_hooks", "PYTHONPATH": str(HOOKS.parent)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, out.decode()


#: Who asks → the token that is sent.
WHO = {
    "an operator": "t-ops",
    "a client": "t-ada",
    "nobody": "",
    "a stranger": "wrong",
}
#: Who is let in everywhere meets everything; the others are turned away at the door, and a few looks do.
_LOOKS = ("--phases", "fuzzing", "--max-examples", "3")
HOW_MUCH = {
    "an operator": ("--max-examples", "3"),
    "a client": ("--max-examples", "10"),
    "nobody": _LOOKS,
    "a stranger": _LOOKS,
}


@pytest.mark.parametrize("who", WHO)
def test_schemathesis_finds_nothing(who: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        blueprints = (one_task(), asks(), breaks(), greet())
        # Whoever is refused for a minute is not told apart from whoever came too often: that has tests of its own.
        settings: dict[str, Any] = {
            "rate_limits": {"auth": "off", "public": "off"},
            "payloads": f"file:{tmp_path / 'files'}",
        }
        async with serving(*blueprints, workers=[worker()], max_wait_s=0.05, **settings) as house:
            token, known = WHO[who], WHO[who] in ("t-ops", "t-ada")
            header = ("--header", f"X-Client-Token: {token}") if token else ()
            code, said = await search(house, tmp_path, *HOW_MUCH[who], *header)
            assert code == 0, said
            listed = (await house.get("/api/v1/jobs", token="t-ops")).json["items"]
            assert bool(listed) == known

    asyncio.run(main())
    ours = [record for record in caplog.records if record.name == "regista.api"]
    assert [record.getMessage() for record in ours] == []
