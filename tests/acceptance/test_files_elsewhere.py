"""A worker whose payload store is not the orchestrator's: it says so, and so does the task."""

import asyncio
import logging
from pathlib import Path

import pytest

from regista import TaskFiles, Worker, WorkerConfig
from regista.payloads.files_service import TaskFilesService, build_files
from regista.sdk.remote import RemoteWorker
from tests.acceptance.house import TOKEN, House, house


def crew() -> Worker:
    worker = Worker("crew")

    @worker.task("echo")
    async def echo(files: TaskFiles) -> str:
        await files.write_text("a.txt", "a")
        return await files.read_text("a.txt")

    return worker


async def play(here: House, directory: Path) -> tuple[str, str]:
    """How a job went with a worker that uses this directory: its result, or the words of its last failure."""
    config = WorkerConfig(orchestrator_url=here.site.url, token=TOKEN, payloads=f"file:{directory}")
    files = build_files(config)
    assert isinstance(files, TaskFilesService)
    await files.start()
    remote = RemoteWorker(crew(), config, files=files)
    await remote.start()
    try:
        job = await here.director.wait(await here.submit("echo"), 8)
        return str(job.result), "" if job.error is None else job.error.message
    finally:
        await remote.stop(0.0)
        await files.stop()


def test_a_worker_with_another_directory_says_so_and_its_tasks_name_both(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"

    async def body() -> tuple[tuple[str, str], tuple[str, str]]:
        async with house(payloads=f"file:{ours}", job_max_retries=0) as here:
            return await play(here, theirs), await play(here, ours)

    (_, words), (result, _) = asyncio.run(body())

    assert f"({ours.as_uri()}), got {theirs.as_uri()}, which was never used by any orchestrator" in words
    assert "'a'" in result or result == "a"
    warned = [each for each in caplog.records if getattr(each, "action", "") == "payloads_differ"]
    assert [each.levelno for each in warned] == [logging.WARNING]
