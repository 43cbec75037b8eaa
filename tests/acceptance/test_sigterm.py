"""SIGTERM while requests hang: the process ends soon, says nothing, and the jobs are there again."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import aiohttp
import pytest

#: Serves a blueprint whose task no worker ever takes, and says where.
PROGRAM = """
import sys
from regista import Config, OrchestratorEngine
from regista.server import serve_until_signal
from tests.support import one_task

config = Config(instance_id="p", client_token="t", worker_token="w", storage="sqlite:" + sys.argv[1])

director = OrchestratorEngine(config=config)
director.register_blueprint(one_task())
serve_until_signal(director, "127.0.0.1", 0, lambda site: print(site.url, flush=True))
print("ended well", flush=True)
"""
ROOT = Path(__file__).parents[2]


async def start(database: Path) -> tuple[asyncio.subprocess.Process, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-c", PROGRAM, str(database)),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    return process, (await process.stdout.readline()).decode().strip()


async def hang(session: aiohttp.ClientSession, path: str) -> int:
    async with session.get(path) as answer:
        await answer.read()
        return answer.status


@pytest.mark.timeout(20)  # two processes, one after the other, each of which must first start
async def test_the_process_ends_soon_after_sigterm_though_waits_and_streams_are_open(tmp_path: Path) -> None:
    process, url = await start(tmp_path / "jobs.db")
    try:
        async with aiohttp.ClientSession(url, headers={"X-Client-Token": "t"}) as session:
            async with session.post("/api/v1/jobs", json={"blueprint": "script"}) as answer:
                job = await answer.json()
            paths = [f"/api/v1/jobs/{job['id']}?wait=50"] * 3
            paths += ["/api/v1/events", f"/api/v1/jobs/{job['id']}/events"] * 3
            hanging = [asyncio.create_task(hang(session, path)) for path in paths]
            await asyncio.sleep(0.3)
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            out, err = await asyncio.wait_for(process.communicate(), 8)
            took = time.monotonic() - began
            assert await asyncio.gather(*hanging) == [200] * len(paths)
        assert (process.returncode, out, err) == (0, b"ended well\n", b"")
        assert took < 2.5
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    again, url = await start(tmp_path / "jobs.db")
    try:
        async with (
            aiohttp.ClientSession(url, headers={"X-Client-Token": "t"}) as session,
            session.get(f"/api/v1/jobs/{job['id']}") as answer,
        ):
            assert (await answer.json())["status"] == "waiting_for_worker"
    finally:
        again.terminate()
        await again.communicate()
