"""Functions and files: how a function asks for them, and what is left on the machine afterwards."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from regista import PermanentError, Task, TransientError, Worker
from regista.clock import SystemClock
from regista.errors import PayloadsDisabled
from regista.payloads.files_service import TaskFilesService
from regista.payloads.memory import MemoryPayloads
from regista.payloads.scratch import ScratchDirectory
from regista.payloads.task_files import TaskFiles
from regista.sdk.params import build_call_plan
from regista.sdk.task_runner import RunningTask, TaskRunner
from regista.worker import TaskContext


class Notes:
    """What a performer said."""

    def __init__(self) -> None:
        self.done: dict[str, RunningTask] = {}
        self.news = asyncio.Event()

    def started(self, running_task: RunningTask) -> None: ...
    def progress(self, running_task: RunningTask, value: Any, message: str, checkpoint: Any) -> None: ...
    def finished(self, running_task: RunningTask) -> None:
        self.done[running_task.attempt_id] = running_task
        self.news.set()


@asynccontextmanager
async def performing(worker: Worker, tmp_path: Path, files: bool = True) -> AsyncIterator[Any]:
    """`perform(type, params)` → the result, and the directories that are left."""
    service = TaskFilesService(MemoryPayloads(), ScratchDirectory(str(tmp_path)))
    await service.start()
    notes = Notes()
    task_runner = TaskRunner(worker, "w1", 5, SystemClock(), notes, service if files else None)

    async def perform(kind: str, params: dict[str, Any] | None = None) -> Any:
        notes.news.clear()
        task = Task(id=f"j1_1_{len(notes.done)}", job_id="j1", type=kind, params=params or {})
        task_runner.accept([task])
        await notes.news.wait()
        for _ in range(100):  # they are removed in a thread
            if not service.scratch.names():
                break
            await asyncio.sleep(0.01)
        return notes.done[task.attempt_id].result, service.scratch.names()

    yield perform
    task_runner.close()
    await service.stop()


def every_way() -> list[Callable[..., Any]]:
    async def alone(files: TaskFiles) -> str:
        return await files.write_text("a.txt", "x")

    async def with_params(params: dict[str, Any], files: TaskFiles) -> str:
        assert params == {"n": 1}
        return await files.write_text("a.txt", "x")

    async def before_params(files: TaskFiles, params: dict[str, Any]) -> str:
        assert params == {"n": 1}
        return await files.write_text("a.txt", "x")

    async def with_context(params: dict[str, Any], context: TaskContext, files: TaskFiles) -> str:
        assert context.job_id == files.job_id
        return await files.write_text("a.txt", "x")

    async def unannotated(params, context, files: TaskFiles):  # type: ignore[no-untyped-def]
        assert context.job_id == files.job_id
        return await files.write_text("a.txt", "x")

    async def by_name(n: int, files: TaskFiles, other: str = "o") -> str:
        assert (n, other) == (1, "o")
        return await files.write_text("a.txt", "x")

    async def keyword(params: dict[str, Any], *, files: TaskFiles) -> str:
        return await files.write_text("a.txt", "x")

    def plain(n: int, files: TaskFiles, context: TaskContext) -> str:
        assert context.task_files is files
        return files.write_text_sync("a.txt", "x")

    def through_context(params: dict[str, Any], context: TaskContext) -> str:
        return context.task_files.write_text_sync("a.txt", "x")

    return [
        alone,
        with_params,
        before_params,
        with_context,
        unannotated,
        by_name,
        keyword,
        plain,
        through_context,
    ]


@pytest.mark.parametrize("func", every_way(), ids=lambda func: func.__name__)
async def test_a_function_gets_the_files_of_its_job(func: Callable[..., Any], tmp_path: Path) -> None:
    worker = Worker()
    worker.task("work")(func)

    async with performing(worker, tmp_path) as perform:
        result, _ = await perform("work", {"n": 1})

    assert result.error is None, result.error
    assert result.data == "memory:///jobs/j1/a.txt"


def test_the_schema_of_the_params_knows_nothing_of_files() -> None:
    async def work(width: int, files: TaskFiles) -> None: ...

    schema = build_call_plan("work", work).schema

    assert schema is not None
    assert "width" in str(schema)
    assert "files" not in str(schema)


def test_files_before_a_slash_are_refused() -> None:
    async def work(files: TaskFiles, /, n: int) -> None: ...

    with pytest.raises(ValueError, match="files are given by name"):
        build_call_plan("work", work)


async def test_the_directory_of_an_attempt_is_gone_however_it_ends(tmp_path: Path) -> None:
    worker = Worker()
    seen: list[Path] = []

    @worker.task("work")
    async def work(params: dict[str, Any], files: TaskFiles) -> None:
        seen.append(files.path)
        (files.path / "large").write_bytes(b"x" * 1000)
        if params.get("how") == "transient":
            raise TransientError("later")
        if params.get("how") == "permanent":
            raise PermanentError("never")
        if params.get("how") == "bug":
            raise ZeroDivisionError

    async with performing(worker, tmp_path) as perform:
        for how in ("well", "transient", "permanent", "bug"):
            _, left = await perform("work", {"how": how})
            assert left == []
    assert len({*seen}) == 4
    assert not any(each.exists() for each in seen)


async def test_a_file_that_is_missing_or_misnamed_is_a_permanent_error(tmp_path: Path) -> None:
    worker = Worker()

    @worker.task("work")
    async def work(name: str, files: TaskFiles) -> str:
        return await files.read_text(name)

    async with performing(worker, tmp_path) as perform:
        missing, _ = await perform("work", {"name": "none"})
        misnamed, _ = await perform("work", {"name": "../j2/a"})

    assert (missing.error.code, misnamed.error.code) == ("PERMANENT_ERROR", "PERMANENT_ERROR")
    assert missing.error.message == "file_not_found: there is no file 'none'"
    assert misnamed.error.message.startswith("bad_file_name: expected the name of a file of this job")


async def test_without_a_payload_store_the_function_is_told_so(tmp_path: Path) -> None:
    worker = Worker()

    @worker.task("work")
    async def work(files: TaskFiles) -> None: ...

    async with performing(worker, tmp_path, files=False) as perform:
        result, _ = await perform("work")

    assert result.error.code == "PERMANENT_ERROR"
    assert "REGISTA_PAYLOADS" in result.error.message
    context = TaskContext(Task(id="j_1_0", job_id="j", type="work"), lambda *_: None)
    with pytest.raises(PayloadsDisabled):
        _ = context.task_files
