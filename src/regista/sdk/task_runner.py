"""TaskRunner: does tasks. The one place that calls a user's functions, wherever the tasks come from."""

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
from ..model import TaskFailure, TaskResult, split_attempt_id
from ..payloads.task_files import TaskFilesProvider
from ..serialization import safe_text
from .context import Assignment, TaskCancelled, TaskContext
from .running_task import AttemptScope, RunningTask, TaskListener, failure_from_exception, failure_from_result
from .tasks import Skill, Worker
from .threads import DaemonThreadPool

__all__ = ["LAST_WORDS_S", "RunningTask", "TaskListener", "TaskRunner"]

log = logging.getLogger("regista.worker")

#: How long a stop waits for what it has cancelled, and for results to be acknowledged.
LAST_WORDS_S = 5.0
_SLICE_S = 0.25
#: A function that was cancelled, and still runs, is cancelled again after so long.
_CLEANING_UP_S = 60.0
_RESULT_KEYS = frozenset({"status", "data", "error"})


class TaskRunner:
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
        sink: TaskListener,
        files: TaskFilesProvider | None = None,
    ) -> None:
        self._skills = worker.skills
        self._worker_id = worker_id
        self._capacity = capacity
        self._clock = clock
        self._sink = sink
        self._files = files
        self._held: dict[str, RunningTask] = {}
        self._performing: set[asyncio.Future[Any]] = set()
        self._busy: Counter[str] = Counter()
        self._line: deque[RunningTask] = deque()
        self._leaving = False
        self._threads: DaemonThreadPool | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._home_thread = 0

    # -- what is in our hands --------------------------------------------------------------------

    def held(self) -> list[str]:
        """The attempts in our hands: waiting, running, or with a result that nobody has acknowledged."""
        return list(self._held)

    def running_tasks(self) -> list[RunningTask]:
        """The same, with all we know of them."""
        return list(self._held.values())

    def find(self, attempt_id: str) -> RunningTask | None:
        return self._held.get(attempt_id)

    @property
    def load(self) -> int:
        """How many are running or wait in line."""
        return len(self._performing) + len(self._line)

    @property
    def free(self) -> int:
        """How many more could run at once."""
        return max(0, self._capacity - self.load)

    def release(self, attempt_id: str) -> None:
        """Its result was acknowledged, or is not wanted by anybody."""
        self._held.pop(attempt_id, None)

    async def compare_files(self, destination: str, uri: str, owner: str) -> None:
        """Which payload store the orchestrator uses: ours must be the same."""
        if self._files is not None:
            await self._files.compare(destination, uri, owner)

    # -- doing -----------------------------------------------------------------------------------

    def accept(self, tasks: Iterable[Assignment], destination: str = "") -> None:
        """Do these. One that is offered again under the same id is already being done.

        What comes while we leave is not begun: it is handed back with the goodbye.
        """
        if self._leaving:
            return
        now = self._clock.now()
        for task in tasks:
            attempt_id = task.attempt_id
            if attempt_id not in self._held:
                running_task = self._held[attempt_id] = RunningTask(task, attempt_id, destination, now)
                self._perform(task, running_task)

    def _perform(self, task: Assignment, running_task: RunningTask) -> None:
        skill = running_task.skill = self._skills.get(task.type)
        if skill is None:
            failure = TaskFailure("PERMANENT_ERROR", f"worker {self._worker_id!r} has no task {task.type!r}")
            self._finish(running_task, error=failure)
        elif self._has_room(skill):
            self._begin(skill, task, running_task)
        else:
            self._line.append(running_task)

    def _has_room(self, skill: Skill) -> bool:
        if len(self._performing) >= self._capacity:
            return False
        return skill.concurrency is None or self._busy[skill.name] < skill.concurrency

    def _open(self, skill: Skill, task: Assignment, running_task: RunningTask) -> None:
        running_task.task = None
        if skill.wants_context:
            if self._loop is None:
                self._loop, self._home_thread = asyncio.get_running_loop(), threading.get_ident()
            running_task.context = TaskContext(task, self._report, self._files)

    def _lit(self, task: Assignment, running_task: RunningTask) -> AttemptScope:
        light = AttemptScope(task, self._worker_id)
        running_task.span = light.span
        return light

    def _begin(self, skill: Skill, task: Assignment, running_task: RunningTask) -> None:
        self._open(skill, task, running_task)
        running_task.began = self._clock.now()
        self._busy[skill.name] += 1
        call = self._call(skill, task.params, running_task)
        with self._lit(task, running_task):  # the task, and a thread below it, keep what is set now
            future = asyncio.get_running_loop().create_task(call, name=f"task-{task.type}")
        running_task.future = future if skill.is_async else None
        self._performing.add(future)
        future.add_done_callback(functools.partial(self._done, running_task, skill))
        self._sink.started(running_task)

    async def _call(self, skill: Skill, params: dict[str, Any], running_task: RunningTask) -> Any:
        context = running_task.context
        if skill.is_async:
            return await await_user_code(skill.call(params, context))
        if self._threads is None:
            self._threads = DaemonThreadPool(self._capacity, "regista-task")
        loop = asyncio.get_running_loop()
        about = contextvars.copy_context()
        value = await loop.run_in_executor(
            self._threads, about.run, call_user_code, skill.call, params, context
        )
        return await self._await_on(value, running_task) if inspect.isawaitable(value) else value

    async def _await_on(self, value: Awaitable[Any], running_task: RunningTask) -> Any:
        """A plain wrapper around an async function is still one, and is cancelled like one."""
        running_task.future = asyncio.current_task()
        if running_task.cancelled:
            self._interrupt(running_task, at_once=True)
        return await await_user_code(value)

    def _done(self, running_task: RunningTask, skill: Skill, future: "asyncio.Future[Any]") -> None:
        self._performing.discard(future)
        self._busy[skill.name] -= 1
        try:
            self._tell(running_task, future)
        finally:  # whatever came of it, the slot is free
            if self._line:
                self._next()

    def _tell(self, running_task: RunningTask, future: "asyncio.Future[Any]") -> None:
        if future.cancelled():
            self._called_off(running_task)
        elif (error := future.exception()) is None:
            self._finish(running_task, future.result())
        elif isinstance(error, TaskCancelled) and running_task.cancelled:
            self._called_off(running_task)
        else:
            self._fail(running_task, error)

    def _fail(self, running_task: RunningTask, error: BaseException) -> None:
        """A raised error is a result. One that nobody meant to raise is in our log, too, with its traceback."""
        unexpected = not isinstance(error, TaskError)
        log.log(
            logging.WARNING if unexpected else logging.INFO,
            "attempt %s of job %s failed: %s: %s",
            running_task.attempt_id,
            running_task.job_id,
            type(error).__name__,
            safe_text(error),
            exc_info=error if unexpected else None,
            extra={
                "action": "task_failed",
                "job_id": running_task.job_id,
                "task_id": split_attempt_id(running_task.attempt_id)[0],
                "attempt_id": running_task.attempt_id,
            },
        )
        self._finish(running_task, error=failure_from_exception(error))

    def _next(self) -> None:
        """Begin the first in line that there is room for."""
        for running_task in self._line:
            skill, task = running_task.skill, running_task.task
            assert skill is not None
            assert task is not None
            if self._has_room(skill):
                self._line.remove(running_task)
                self._begin(skill, task, running_task)
                return

    # -- how it went -----------------------------------------------------------------------------

    def _called_off(self, running_task: RunningTask) -> None:
        if self._leaving:  # nobody cancelled it: it is handed back with the goodbye, and done elsewhere
            self._put_files_away(running_task)
            self._held.pop(running_task.attempt_id, None)
        else:
            self._finish(running_task, {"status": "cancelled"})

    def _put_files_away(self, running_task: RunningTask) -> None:
        """In a thread: a directory may hold a lot."""
        context = running_task.context
        if context is not None and context.used_files:
            asyncio.get_running_loop().run_in_executor(None, context.put_files_away)

    def _finish(self, running_task: RunningTask, value: Any = None, error: TaskFailure | None = None) -> None:
        self._put_files_away(running_task)
        status: Any = None
        try:
            if isinstance(value, dict) and value and value.keys() <= _RESULT_KEYS:
                status = value.get("status")
                error = failure_from_result(value.get("error"))
                value = value.get("data")
        except Exception as problem:  # noqa: BLE001  # what is in there is the user's, and may raise anything
            value, error = None, TaskFailure("PERMANENT_ERROR", safe_text(problem))
        running_task.result = TaskResult(
            task_id=running_task.attempt_id,
            job_id=running_task.job_id,
            worker_id=self._worker_id,
            status=None if status is None else safe_text(status),
            data=value,
            error=error,
            started_at=running_task.began,
        )
        if running_task.span is not None:
            running_task.span.end(None if error is None else f"{error.code}: {error.message}")
            running_task.span = None
        self._sink.finished(running_task)

    def _report(self, attempt_id: str, value: float | None, message: str, checkpoint: Any) -> None:
        if threading.get_ident() == self._home_thread:
            self._say(attempt_id, value, message, checkpoint)
        else:
            assert self._loop is not None
            self._loop.call_soon_threadsafe(self._say, attempt_id, value, message, checkpoint)

    def _say(self, attempt_id: str, value: float | None, message: str, checkpoint: Any) -> None:
        running_task = self._held.get(attempt_id)
        if running_task is not None and running_task.result is None:
            kept = (
                running_task.last_progress[2]
                if checkpoint is None and running_task.last_progress is not None
                else checkpoint
            )
            running_task.last_progress = (value, message, kept)
            self._sink.progress(running_task, value, message, checkpoint)

    # -- stopping --------------------------------------------------------------------------------

    def cancel(self, attempt_ids: Iterable[str]) -> None:
        """Somebody wants these to stop. What has not begun never will; what has ended keeps its result."""
        for attempt_id in attempt_ids:
            running_task = self._held.get(attempt_id)
            if running_task is None or running_task.result is not None:
                continue
            if running_task.task is not None:
                self._line.remove(running_task)
                self._called_off(running_task)
                continue
            first, running_task.cancelled = not running_task.cancelled, True
            if running_task.context is not None:
                running_task.context.cancelled = True
            if running_task.future is not None:
                self._interrupt(running_task, first or self._leaving)

    def _interrupt(self, running_task: RunningTask, at_once: bool) -> None:
        """The wish comes again with every beat: whoever cleans up after the first one has a while for that."""
        now = asyncio.get_running_loop().time()
        if running_task.future is not None and (at_once or now - running_task.cancelled_at > _CLEANING_UP_S):
            running_task.cancelled_at = now
            running_task.future.cancel()

    async def wait_idle(self, grace_s: float) -> None:
        """Return when everything has ended, or the grace is over."""
        loop = asyncio.get_running_loop()
        until = loop.time() + grace_s
        while self._performing and not self._leaving and (left_s := until - loop.time()) > 0:
            # In slices: a thread that does not end must not keep us from hearing that somebody is in a hurry.
            slice_s = min(left_s, _SLICE_S)
            await asyncio.wait(self._performing, timeout=slice_s, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(0)  # what waited in line begins

    def skip_grace(self) -> None:
        """The grace is over."""
        self._leaving = True

    async def cancel_all(self) -> None:
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
