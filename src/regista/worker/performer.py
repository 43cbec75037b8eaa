"""Performer: does tasks. The one place that calls a user's functions, wherever the tasks come from."""

import asyncio
import contextvars
import functools
import inspect
import logging
import threading
from collections import Counter, deque
from collections.abc import Awaitable, Iterable
from typing import Any

from ..aio import await_user_code, call_user_code
from ..clock import Clock
from ..errors import TaskError
from ..model import TaskFailure, TaskResult, task_of
from ..payloads.task_files import FilesRoom
from ..serialization import safe_text
from .context import Assignment, TaskCancelled, TaskContext
from .failures import failure_of, said_failure
from .light import Light
from .performance import Performance, Sink
from .tasks import Skill, Worker
from .threads import DaemonThreads

__all__ = ["LAST_WORDS_S", "Performance", "Performer", "Sink"]

log = logging.getLogger("regista.worker")

#: How long a stop waits for what it has cancelled, and for results to be acknowledged.
LAST_WORDS_S = 5.0
_SLICE_S = 0.25
#: A function that was cancelled, and still runs, is cancelled again after so long.
_CLEANING_UP_S = 60.0
_RESULT_KEYS = frozenset({"status", "data", "error"})


class Performer:
    """Runs a worker's functions: async ones as tasks of the loop, plain ones in threads.

    Never more at once than `capacity`, and than a skill's own limit; what comes beyond that waits in line.
    An attempt counts as held from `take` to `forget`.
    """

    def __init__(
        self,
        worker: Worker,
        worker_id: str,
        capacity: int,
        clock: Clock,
        sink: Sink,
        files: FilesRoom | None = None,
    ) -> None:
        self._skills = worker.skills
        self._worker_id = worker_id
        self._capacity = capacity
        self._clock = clock
        self._sink = sink
        self._files = files
        self._held: dict[str, Performance] = {}
        self._performing: set[asyncio.Future[Any]] = set()
        self._busy: Counter[str] = Counter()
        self._line: deque[Performance] = deque()
        self._leaving = False
        self._threads: DaemonThreads | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._home_thread = 0

    # -- what is in our hands --------------------------------------------------------------------

    def held(self) -> list[str]:
        """The attempts in our hands: waiting, running, or with a result that nobody has acknowledged."""
        return list(self._held)

    def performances(self) -> list[Performance]:
        """The same, with all we know of them."""
        return list(self._held.values())

    def find(self, attempt_id: str) -> Performance | None:
        return self._held.get(attempt_id)

    @property
    def load(self) -> int:
        """How many are running or wait in line."""
        return len(self._performing) + len(self._line)

    @property
    def free(self) -> int:
        """How many more could run at once."""
        return max(0, self._capacity - self.load)

    def forget(self, attempt_id: str) -> None:
        """Its result was acknowledged, or is not wanted by anybody."""
        self._held.pop(attempt_id, None)

    async def compare_files(self, home: str, uri: str, owner: str) -> None:
        """Which payload store the orchestrator uses: ours must be the same."""
        if self._files is not None:
            await self._files.compare(home, uri, owner)

    # -- doing -----------------------------------------------------------------------------------

    def take(self, tasks: Iterable[Assignment], home: str = "") -> None:
        """Do these. One that is offered again under the same id is already being done.

        What comes while we leave is not begun: it is handed back with the goodbye.
        """
        if self._leaving:
            return
        now = self._clock.now()
        for task in tasks:
            attempt_id = task.attempt_id
            if attempt_id not in self._held:
                performance = self._held[attempt_id] = Performance(task, attempt_id, home, now)
                self._perform(task, performance)

    def _perform(self, task: Assignment, performance: Performance) -> None:
        skill = performance.skill = self._skills.get(task.type)
        if skill is None:
            failure = TaskFailure("PERMANENT_ERROR", f"worker {self._worker_id!r} has no task {task.type!r}")
            self._finish(performance, error=failure)
        elif self._has_room(skill):
            self._begin(skill, task, performance)
        else:
            self._line.append(performance)

    def _has_room(self, skill: Skill) -> bool:
        if len(self._performing) >= self._capacity:
            return False
        return skill.concurrency is None or self._busy[skill.name] < skill.concurrency

    def _open(self, skill: Skill, task: Assignment, performance: Performance) -> None:
        performance.task = None
        if skill.wants_context:
            if self._loop is None:
                self._loop, self._home_thread = asyncio.get_running_loop(), threading.get_ident()
            performance.context = TaskContext(task, self._report, self._files)

    def _lit(self, task: Assignment, performance: Performance) -> Light:
        light = Light(task, self._worker_id)
        performance.span = light.span
        return light

    def _begin(self, skill: Skill, task: Assignment, performance: Performance) -> None:
        self._open(skill, task, performance)
        performance.began = self._clock.now()
        self._busy[skill.name] += 1
        call = self._call(skill, task.params, performance)
        with self._lit(task, performance):  # the task, and a thread below it, keep what is set now
            future = asyncio.get_running_loop().create_task(call, name=f"task-{task.type}")
        performance.future = future if skill.is_async else None
        self._performing.add(future)
        future.add_done_callback(functools.partial(self._done, performance, skill))
        self._sink.started(performance)

    async def _call(self, skill: Skill, params: dict[str, Any], performance: Performance) -> Any:
        context = performance.context
        if skill.is_async:
            return await await_user_code(skill.call(params, context))
        if self._threads is None:
            self._threads = DaemonThreads(self._capacity, "regista-task")
        loop = asyncio.get_running_loop()
        about = contextvars.copy_context()
        value = await loop.run_in_executor(
            self._threads, about.run, call_user_code, skill.call, params, context
        )
        return await self._await_on(value, performance) if inspect.isawaitable(value) else value

    async def _await_on(self, value: Awaitable[Any], performance: Performance) -> Any:
        """A plain wrapper around an async function is still one, and is cancelled like one."""
        performance.future = asyncio.current_task()
        if performance.cancelled:
            self._interrupt(performance, at_once=True)
        return await await_user_code(value)

    def _done(self, performance: Performance, skill: Skill, future: "asyncio.Future[Any]") -> None:
        self._performing.discard(future)
        self._busy[skill.name] -= 1
        try:
            self._tell(performance, future)
        finally:  # whatever came of it, the slot is free
            if self._line:
                self._next()

    def _tell(self, performance: Performance, future: "asyncio.Future[Any]") -> None:
        if future.cancelled():
            self._called_off(performance)
        elif (error := future.exception()) is None:
            self._finish(performance, future.result())
        elif isinstance(error, TaskCancelled) and performance.cancelled:
            self._called_off(performance)
        else:
            self._fail(performance, error)

    def _fail(self, performance: Performance, error: BaseException) -> None:
        """A raised error is a result. One that nobody meant to raise is in our log, too, with its traceback."""
        unexpected = not isinstance(error, TaskError)
        log.log(
            logging.WARNING if unexpected else logging.INFO,
            "attempt %s of job %s failed: %s: %s",
            performance.attempt_id,
            performance.job_id,
            type(error).__name__,
            safe_text(error),
            exc_info=error if unexpected else None,
            extra={
                "action": "task_failed",
                "job_id": performance.job_id,
                "task_id": task_of(performance.attempt_id)[0],
                "attempt_id": performance.attempt_id,
            },
        )
        self._finish(performance, error=failure_of(error))

    def _next(self) -> None:
        """Begin the first in line that there is room for."""
        for performance in self._line:
            skill, task = performance.skill, performance.task
            assert skill is not None
            assert task is not None
            if self._has_room(skill):
                self._line.remove(performance)
                self._begin(skill, task, performance)
                return

    # -- how it went -----------------------------------------------------------------------------

    def _called_off(self, performance: Performance) -> None:
        if self._leaving:  # nobody cancelled it: it is handed back with the goodbye, and done elsewhere
            self._put_files_away(performance)
            self._held.pop(performance.attempt_id, None)
        else:
            self._finish(performance, {"status": "cancelled"})

    def _put_files_away(self, performance: Performance) -> None:
        """In a thread: a directory may hold a lot."""
        context = performance.context
        if context is not None and context.used_files:
            asyncio.get_running_loop().run_in_executor(None, context.put_files_away)

    def _finish(self, performance: Performance, value: Any = None, error: TaskFailure | None = None) -> None:
        self._put_files_away(performance)
        status: Any = None
        try:
            if isinstance(value, dict) and value and value.keys() <= _RESULT_KEYS:
                status = value.get("status")
                error = said_failure(value.get("error"))
                value = value.get("data")
        except Exception as problem:  # noqa: BLE001  # what is in there is the user's, and may raise anything
            value, error = None, TaskFailure("PERMANENT_ERROR", safe_text(problem))
        performance.result = TaskResult(
            task_id=performance.attempt_id,
            job_id=performance.job_id,
            worker_id=self._worker_id,
            status=None if status is None else safe_text(status),
            data=value,
            error=error,
            started_at=performance.began,
        )
        if performance.span is not None:
            performance.span.end(None if error is None else f"{error.code}: {error.message}")
            performance.span = None
        self._sink.finished(performance)

    def _report(self, attempt_id: str, value: float | None, message: str, checkpoint: Any) -> None:
        if threading.get_ident() == self._home_thread:
            self._say(attempt_id, value, message, checkpoint)
        else:
            assert self._loop is not None
            self._loop.call_soon_threadsafe(self._say, attempt_id, value, message, checkpoint)

    def _say(self, attempt_id: str, value: float | None, message: str, checkpoint: Any) -> None:
        performance = self._held.get(attempt_id)
        if performance is not None and performance.result is None:
            kept = performance.said[2] if checkpoint is None and performance.said is not None else checkpoint
            performance.said = (value, message, kept)
            self._sink.progress(performance, value, message, checkpoint)

    # -- stopping --------------------------------------------------------------------------------

    def cancel(self, attempt_ids: Iterable[str]) -> None:
        """Somebody wants these to stop. What has not begun never will; what has ended keeps its result."""
        for attempt_id in attempt_ids:
            performance = self._held.get(attempt_id)
            if performance is None or performance.result is not None:
                continue
            if performance.task is not None:
                self._line.remove(performance)
                self._called_off(performance)
                continue
            first, performance.cancelled = not performance.cancelled, True
            if performance.context is not None:
                performance.context.cancelled = True
            if performance.future is not None:
                self._interrupt(performance, first or self._leaving)

    def _interrupt(self, performance: Performance, at_once: bool) -> None:
        """The wish comes again with every beat: whoever cleans up after the first one has a while for that."""
        now = asyncio.get_running_loop().time()
        if performance.future is not None and (at_once or now - performance.cancelled_at > _CLEANING_UP_S):
            performance.cancelled_at = now
            performance.future.cancel()

    async def finish_within(self, grace_s: float) -> None:
        """Return when everything has ended, or the grace is over."""
        loop = asyncio.get_running_loop()
        until = loop.time() + grace_s
        while self._performing and not self._leaving and (left_s := until - loop.time()) > 0:
            # In slices: a thread that does not end must not keep us from hearing that somebody is in a hurry.
            slice_s = min(left_s, _SLICE_S)
            await asyncio.wait(self._performing, timeout=slice_s, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(0)  # what waited in line begins

    def hurry(self) -> None:
        """The grace is over."""
        self._leaving = True

    async def abandon(self) -> None:
        """Stop what still runs, without results. One that does not let itself be cancelled is left behind."""
        self._leaving = True
        self.cancel(list(self._held))
        stoppable = [one.future for one in self._held.values() if one.future is not None]
        if stoppable:
            await asyncio.wait(stoppable, timeout=LAST_WORDS_S)
            for task in stoppable:
                if not task.done():
                    _warn_of_stubborn(task)

    def resume(self) -> None:
        """Begin again after `abandon`, maybe on another loop."""
        self._leaving = False
        self._loop = None

    def close(self) -> None:
        """Let the threads go."""
        if self._threads is not None:
            self._threads.shutdown()
            self._threads = None


def _warn_of_stubborn(task: "asyncio.Task[Any]") -> None:
    log.warning(
        "%s swallows its cancellation, and is left behind: let CancelledError out of the function",
        task.get_name(),
        extra={"action": "task_stubborn"},
    )
