"""Doing tasks, wherever they come from."""

import asyncio
import inspect
import sys
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from regista import EventType, InvalidInputError, RetryPolicy
from regista.clock import SystemClock
from regista.model import Task, TaskResult
from regista.sdk.task_runner import RunningTask, TaskRunner
from regista.testing.orchestrator import TestOrchestrator
from regista.worker import TaskContext, Worker
from tests.support import one_task, only


class Notes:
    """A sink that writes down, and acknowledges at once."""

    def __init__(self) -> None:
        self.task_runner: TaskRunner
        self.started_ids: list[str] = []
        self.said: list[tuple[float | None, str, Any]] = []
        self.results: dict[str, TaskResult] = {}
        self.acknowledge = True

    def started(self, running_task: RunningTask) -> None:
        self.started_ids.append(running_task.attempt_id)

    def progress(self, running_task: RunningTask, value: float | None, message: str, checkpoint: Any) -> None:
        self.said.append((value, message, checkpoint))

    def finished(self, running_task: RunningTask) -> None:
        assert running_task.result is not None
        self.results[running_task.attempt_id] = running_task.result
        if self.acknowledge:
            self.task_runner.release(running_task.attempt_id)


def task(number: int = 0, type: str = "work", **params: Any) -> Task:
    return Task(id=f"j_1_{number}", job_id="j", type=type, params=params)


def perform(
    register: Callable[[Worker], None],
    play: Callable[[TaskRunner, Notes], Coroutine[Any, Any, None]],
    capacity: int = 10,
) -> Notes:
    """Let `play` move a performer whose functions `register` has set up."""
    worker, notes = Worker("w"), Notes()
    register(worker)

    async def main() -> None:
        notes.task_runner = TaskRunner(worker, "w1", capacity, SystemClock(), notes)
        try:
            await play(notes.task_runner, notes)
        finally:
            notes.task_runner.skip_grace()
            await notes.task_runner.cancel_all()
            notes.task_runner.close()

    asyncio.run(main())
    return notes


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110  # the condition is any test's own
            await asyncio.sleep(0.002)


# -- limits ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "expected"), [(None, 4), (2, 2)])
def test_never_more_at_once_than_the_worker_and_the_task_allow(limit: int | None, expected: int) -> None:
    now, most = 0, 0

    def register(worker: Worker) -> None:
        @worker.task("work", concurrency=limit)
        async def work(params: dict[str, Any]) -> None:
            nonlocal now, most
            now += 1
            most = max(most, now)
            await asyncio.sleep(0.01)
            now -= 1

    async def play(task_runner: TaskRunner, notes: Notes) -> None:
        task_runner.accept([task(n) for n in range(10)])
        assert (task_runner.load, task_runner.free) == (10, 0)
        await until(lambda: len(notes.results) == 10)
        assert (task_runner.load, task_runner.free) == (0, 4)

    perform(register, play, capacity=4)
    assert most == expected


def test_a_task_at_its_limit_does_not_hold_up_the_others() -> None:
    def register(worker: Worker) -> None:
        worker.task("slow", concurrency=1)(lambda params: threading.Event().wait(0.2))
        worker.task("quick")(lambda params: None)

    async def play(task_runner: TaskRunner, notes: Notes) -> None:
        task_runner.accept([task(0, "slow"), task(1, "slow"), task(2, "quick")])
        await until(lambda: len(notes.results) == 3)

    assert list(perform(register, play).results) == ["j_1_2-1", "j_1_0-1", "j_1_1-1"]


if sys.version_info >= (3, 12):

    def test_a_plain_function_marked_as_a_coroutine_function_may_wait() -> None:
        async def waiting(params: dict[str, Any]) -> int:
            await asyncio.sleep(0.01)
            return 7

        def wrapper(params: dict[str, Any]) -> Coroutine[Any, Any, int]:
            return waiting(params)

        async def play(task_runner: TaskRunner, notes: Notes) -> None:
            task_runner.accept([task()])
            await until(lambda: notes.results)

        (result,) = perform(
            lambda worker: worker.task("work")(inspect.markcoroutinefunction(wrapper)), play
        ).results.values()
        assert (result.data, result.error) == (7, None)


def test_an_async_function_runs_as_a_task_within_the_limits_though_it_never_waits() -> None:
    names: list[str] = []

    def register(worker: Worker) -> None:
        @worker.task("work", concurrency=1)
        async def work(params: dict[str, Any]) -> None:
            current = asyncio.current_task()
            assert current is not None
            names.append(current.get_name())

    async def play(task_runner: TaskRunner, notes: Notes) -> None:
        task_runner.accept([task(0), task(1)])
        assert (names, task_runner.load) == ([], 2)
        await until(lambda: len(notes.results) == 2)

    perform(register, play)
    assert names == ["task-work", "task-work"]


# -- what it says ------------------------------------------------------------------------------------


def test_the_same_attempt_offered_again_is_done_once() -> None:
    runs: list[int] = []

    def register(worker: Worker) -> None:
        @worker.task("work")
        async def work(params: dict[str, Any]) -> None:
            runs.append(1)

    async def play(task_runner: TaskRunner, notes: Notes) -> None:
        notes.acknowledge = False
        task_runner.accept([task(), task()])
        task_runner.accept([task()])
        await until(lambda: notes.results)

    perform(register, play)
    assert len(runs) == 1


def test_an_unexpected_exception_is_transient_and_tells_where_it_came_from() -> None:
    def register(worker: Worker) -> None:
        @worker.task("work")
        def work(params: dict[str, Any]) -> None:
            raise KeyError("lens")

    async def play(task_runner: TaskRunner, notes: Notes) -> None:
        task_runner.accept([task()])
        await until(lambda: notes.results)

    (result,) = perform(register, play).results.values()
    assert result.error is not None
    assert (result.error.code, result.error.message) == ("TRANSIENT_ERROR", "KeyError: 'lens'")
    assert result.error.details["type"] == "KeyError"
    assert Path(__file__).name in result.error.details["traceback"]
    assert 'raise KeyError("lens")' in result.error.details["traceback"]


@pytest.mark.parametrize("kind", ["inline", "waits", "thread"])
def test_wrong_params_are_invalid_input_however_the_function_runs(kind: str) -> None:
    def register(worker: Worker) -> None:
        async def inline(width: int) -> None: ...
        async def waits(width: int) -> None:
            await asyncio.sleep(0)

        def thread(width: int) -> None: ...

        worker.task("work")({"inline": inline, "waits": waits, "thread": thread}[kind])

    async def play(task_runner: TaskRunner, notes: Notes) -> None:
        task_runner.accept([task(width="wide")])
        await until(lambda: notes.results)

    (result,) = perform(register, play).results.values()
    assert result.error is not None
    assert result.error.code == InvalidInputError.code
    assert "width" in result.error.message


def test_progress_from_the_loop_and_from_a_thread_is_told_before_the_result() -> None:
    def register(worker: Worker) -> None:
        @worker.task("inline")
        async def inline(params: dict[str, Any], context: TaskContext) -> None:
            context.progress(0.1, "loop")

        @worker.task("thread")
        def thread(params: dict[str, Any], context: TaskContext) -> None:
            context.progress(0.5, "thread", checkpoint={"n": 1})

    async def play(task_runner: TaskRunner, notes: Notes) -> None:
        task_runner.accept([task(0, "inline")])
        await until(lambda: len(notes.results) == 1)
        assert notes.said == [(0.1, "loop", None)]
        task_runner.accept([task(1, "thread")])
        await until(lambda: len(notes.results) == 2)

    assert perform(register, play).said[1] == (0.5, "thread", {"n": 1})


def test_a_context_s_logger_carries_the_ids(caplog: pytest.LogCaptureFixture) -> None:
    context = TaskContext(task(3), lambda *_: None)

    with caplog.at_level("INFO"):
        context.log.info("half way")

    (record,) = caplog.records
    assert (record.job_id, record.task_id, record.attempt) == ("j", "j_1_3", 1)  # type: ignore[attr-defined]


# -- cancelling --------------------------------------------------------------------------------------


def test_an_async_function_is_cancelled_and_a_thread_leaves_when_it_looks() -> None:
    def register(worker: Worker) -> None:
        @worker.task("async")
        async def waits(params: dict[str, Any]) -> None:
            await asyncio.sleep(60)

        @worker.task("thread")
        def thread(params: dict[str, Any], context: TaskContext) -> None:
            while True:
                context.raise_if_cancelled()
                threading.Event().wait(0.005)

    async def play(task_runner: TaskRunner, notes: Notes) -> None:
        task_runner.accept([task(0, "async"), task(1, "thread")])
        await asyncio.sleep(0.02)
        task_runner.cancel(["j_1_0-1", "j_1_1-1", "unknown"])
        await until(lambda: len(notes.results) == 2)

    results = perform(register, play).results.values()
    assert [result.status for result in results] == ["cancelled", "cancelled"]


def test_what_waits_in_line_is_cancelled_without_having_begun() -> None:
    began: list[int] = []

    def register(worker: Worker) -> None:
        @worker.task("work")
        async def work(params: dict[str, Any]) -> None:
            began.append(params["n"])
            await asyncio.sleep(0.05)

    async def play(task_runner: TaskRunner, notes: Notes) -> None:
        task_runner.accept([task(0, n=0), task(1, n=1)])
        task_runner.cancel(["j_1_1-1"])
        await until(lambda: len(notes.results) == 2)

    assert [r.status for r in perform(register, play, capacity=1).results.values()] == ["cancelled", None]
    assert began == [0]


def test_a_result_that_waits_for_its_acknowledgement_is_not_touched_by_a_cancel() -> None:
    def register(worker: Worker) -> None:
        @worker.task("work")
        async def work(params: dict[str, Any]) -> int:
            return 5

    async def play(task_runner: TaskRunner, notes: Notes) -> None:
        notes.acknowledge = False
        task_runner.accept([task()])
        await until(lambda: notes.results)
        task_runner.cancel(["j_1_0-1"])
        assert task_runner.held() == ["j_1_0-1"]

    assert [r.data for r in perform(register, play).results.values()] == [5]


# -- stopping ----------------------------------------------------------------------------------------


def test_what_is_abandoned_has_no_result() -> None:
    def register(worker: Worker) -> None:
        @worker.task("work")
        async def work(params: dict[str, Any]) -> None:
            await asyncio.sleep(60)

    async def play(task_runner: TaskRunner, notes: Notes) -> None:
        task_runner.accept([task(0), task(1)])
        await asyncio.sleep(0)
        await task_runner.wait_idle(0.05)
        await task_runner.cancel_all()
        assert task_runner.held() == []

    assert perform(register, play, capacity=1).results == {}


def test_a_hurry_cuts_the_grace_even_of_a_thread_that_never_looks() -> None:
    gate = threading.Event()

    def register(worker: Worker) -> None:
        worker.task("work")(lambda params: gate.wait(9))

    async def play(task_runner: TaskRunner, notes: Notes) -> None:
        task_runner.accept([task()])
        asyncio.get_running_loop().call_later(0.05, task_runner.skip_grace)
        async with asyncio.timeout(2):
            await task_runner.wait_idle(60)
        assert task_runner.held() == ["j_1_0-1"]
        gate.set()

    perform(register, play)


def test_within_the_grace_what_waits_in_line_is_done_as_well() -> None:
    def register(worker: Worker) -> None:
        @worker.task("work")
        async def work(params: dict[str, Any]) -> None:
            await asyncio.sleep(0.02)

    async def play(task_runner: TaskRunner, notes: Notes) -> None:
        task_runner.accept([task(n) for n in range(3)])
        await task_runner.wait_idle(5)
        assert len(notes.results) == 3

    perform(register, play, capacity=1)


def test_a_mistake_in_a_task_is_in_the_log_with_its_line_and_in_the_event(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with TestOrchestrator(one_task(retry=RetryPolicy(max_attempts=1))) as kit:

        @kit.task("work")
        async def work(params: dict[str, Any]) -> None:
            raise KeyError("nope")

        job = kit.run("script")
        (failed,) = only(kit.events(job), EventType.TASK_FAILED)
    assert Path(__file__).name in failed.detail["error"]["traceback"]
    (record,) = [record for record in caplog.records if "nope" in record.getMessage()]
    assert (record.levelname, record.exc_info is not None) == ("WARNING", True)


def test_what_waits_in_line_begins_whatever_came_of_the_one_before() -> None:
    class Deaf(Notes):
        """A sink that cannot take the first result."""

        def finished(self, running_task: RunningTask) -> None:
            if running_task.attempt_id == "j_1_0-1":
                raise OSError("not now")
            super().finished(running_task)

    worker, notes = Worker("w"), Deaf()
    worker.task("work")(lambda params: "done")

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        notes.task_runner = TaskRunner(worker, "w1", 1, SystemClock(), notes)
        notes.task_runner.accept([task(0), task(1)])
        await until(lambda: notes.results)
        notes.task_runner.close()

    asyncio.run(main())
    assert list(notes.results) == ["j_1_1-1"]


def test_what_is_offered_to_one_that_leaves_is_not_begun() -> None:
    ran: list[str] = []

    async def play(task_runner: TaskRunner, notes: Notes) -> None:
        await task_runner.cancel_all()
        task_runner.accept([task()])
        assert (task_runner.held(), task_runner.load) == ([], 0)
        task_runner.resume()
        task_runner.accept([task()])
        await until(lambda: notes.results)

    def register(worker: Worker) -> None:
        worker.task("work")(lambda params: ran.append("ran"))

    perform(register, play)
    assert ran == ["ran"]
