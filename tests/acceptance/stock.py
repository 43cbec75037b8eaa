"""The stock workers of both generations, as processes of their own, against a real orchestrator."""

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.acceptance.house import TOKEN
from tests.conftest import in_ci

ROOT = Path(__file__).parents[2]
STOCK = ROOT / ".stock"

#: What both generations are told to do. `worker.task` is the older name of `worker.skill`.
SKILLS = """
import asyncio, os, time
from avtomatika_worker import Worker

worker = Worker(worker_type="stock", max_concurrent_tasks=int(os.environ.get("SLOTS", "4")))
skill = getattr(worker, "skill", None) or worker.task
runs = {}

@skill("echo")
async def echo(params, **kwargs):
    return {"data": {"echo": params}}

@skill("slow")
async def slow(params, **kwargs):
    await asyncio.sleep(params.get("seconds", 60))
    return {"data": {"slept": True}}

@skill("status")
async def status(params, **kwargs):
    return {"status": params["status"], "data": {"said": params["status"]}}

@skill("fail")
async def fail(params, **kwargs):
    return {"status": "failure", "error": {"code": params["code"], "message": "on purpose"}}

@skill("flaky")
async def flaky(params, job_id, **kwargs):
    runs[job_id] = runs.get(job_id, 0) + 1
    if runs[job_id] < 3:
        raise RuntimeError("not yet")
    return {"data": {"runs": runs[job_id]}}

@skill("picky")
async def picky(params, **kwargs):
    raise ValueError("I do not like this input")

@skill("progress")
async def progress(params, task_id, job_id, send_progress, **kwargs):
    for step in range(100):
        await send_progress(task_id, job_id, 0.25, "a quarter")
        await asyncio.sleep(0.1)
    return {"data": {}}

worker.run()
"""


@pytest.fixture(scope="session")
def stock() -> Path:
    """Where the environments of both generations are. Made at the first use; skipped where they cannot be."""
    STOCK.mkdir(exist_ok=True)
    with (STOCK / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two runs of the suite share them
        made = subprocess.run(
            [ROOT / "scripts" / "make-stock-venvs", STOCK],
            env={**os.environ, "PYTHON": sys.executable},
            capture_output=True,
            text=True,
            timeout=300,
        )
    if made.returncode != 0:
        reason = f"the stock workers cannot be installed: {made.stderr.strip()[-300:]}"
        pytest.fail(reason) if in_ci() else pytest.skip(reason)
    return STOCK


@asynccontextmanager
async def stock_worker(
    stock: Path, generation: str, url: str, worker_id: str = "stock-1", **env: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A stock worker in a process of its own; told to leave at the end, and made to."""
    log = stock / f"{generation}-{worker_id}-{os.getpid()}.log"
    settings = {
        "PATH": os.environ.get("PATH", ""),
        "ORCHESTRATOR_URL": url,
        "WORKER_ID": worker_id,
        "WORKER_TOKEN": TOKEN,
        "HEARTBEAT_INTERVAL": "1",
        "WORKER_HEARTBEAT_COOLDOWN": "0.2",
        "TASK_POLL_TIMEOUT": "5",
        "WORKER_SHUTDOWN_TIMEOUT": "2",
        "POLL_BACKOFF_INITIAL": "0.1",
        "POLL_BACKOFF_MAX": "0.5",
        "REGISTRATION_RETRY_INITIAL_DELAY": "0.1",
        "IDLE_POLL_DELAY": "0.01",
        **env,
    }
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            str(stock / generation / "bin" / "python"), "-c", SKILLS, env=settings, stdout=out, stderr=out
        )
    try:
        yield process
    except BaseException:
        print(log.read_text()[-4000:])
        raise
    finally:
        await _end(process)
        log.unlink()


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), 5)
        except TimeoutError:
            process.kill()
            await process.wait()
