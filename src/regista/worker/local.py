"""LocalWorker: the reference performer. Does tasks in the orchestrator's own process."""

import asyncio
import functools
import inspect
import logging
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any, Protocol

from .. import model
from ..clock import Clock
from ..errors import StorageFailed, TaskError
from ..model import Task, TaskFailure, TaskResult
from ..plain import contained, contained_async, words
from .tasks import Skill, TaskContext, Worker

log = logging.getLogger("regista.worker")

#: How long a stop waits for what it has cancelled, and for results to be acknowledged.
_LAST_WORDS_S = 5.0
_RESULT_KEYS = frozenset({"status", "data", "error"})


class _Performance:
    """One attempt in our hands, until its result is acknowledged."""

    __slots__ = ("attempt_id", "began", "context", "future", "job_id")

    def __init__(self, task: Task, began: datetime) -> None:
        self.attempt_id = task.attempt_id
        self.job_id = task.job_id
        self.began = began
        self.context: TaskContext | None = None
        #: What can be cancelled. None for a thread: it is asked, and counts as running until it returns.
        self.future: asyncio.Future[Any] | None = None


class BeatLike(Protocol):
    """The answer to a heartbeat."""

    @property
    def known(self) -> bool: ...
    @property
    def cancel(self) -> Sequence[str]: ...


class Stage(Protocol):
    """What a performer needs from the orchestrator; `WorkerService` is it."""

    lease_s: float

    async def register(
        self,
        worker: model.Worker,
        running: Collection[str],
        send: Callable[[Sequence[Task]], None],
        cancel: Callable[[Sequence[str]], None],
    ) -> tuple[model.Worker, tuple[str, ...]]: ...
    async def heartbeat(self, worker_id: str, session: int, running: Collection[str]) -> BeatLike: ...
    async def leave(self, worker_id: str, session: int) -> None: ...
    def report(self, result: TaskResult) -> asyncio.Future[Any]: ...
    def started(self, attempt_id: str) -> None: ...
    def progress(
        self, attempt_id: str, value: float | None = None, message: str = "", checkpoint: Any = None
    ) -> None: ...


class LocalWorker:
    """Performs a worker's tasks here. Its id is stable, so a restart takes back at once what it held."""

    def __init__(self, worker: Worker, stage: Stage, clock: Clock, instance: str = "") -> None:
        self.id = f"{instance}-{worker.name}" if instance else worker.name
        self._worker = worker
        self._stage = stage
        self._clock = clock
        self._session = 0
        self._running: dict[str, _Performance] = {}
        self._performing: set[asyncio.Future[Any]] = set()
        self._deliveries: set[asyncio.Future[Any]] = set()
        self._beat: asyncio.Task[None] | None = None
        self._leaving = False
        self._threads: ThreadPoolExecutor | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    # -- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Register and take tasks."""
        if self._beat is not None:
            return
        self._loop = asyncio.get_running_loop()
        self._leaving = False
        await self._register()
        self._beat = self._loop.create_task(self._beat_on(), name=f"heartbeat-{self.id}")

    async def stop(self, grace_s: float = 0.0) -> None:
        """Let running tasks finish within the grace, cancel the rest, and hand them back."""
        if self._beat is None:
            return
        self._beat.cancel()
        await asyncio.gather(self._beat, return_exceptions=True)
        self._beat = None
        if self._performing and grace_s > 0:
            await asyncio.wait(self._performing, timeout=grace_s)
        self._leaving = True  # what is stopped now was not cancelled by anybody: it is handed back
        self._cancel(list(self._running))
        stoppable = [one.future for one in self._running.values() if one.future is not None]
        if stoppable:  # one that does not let itself be cancelled is left behind
            await asyncio.wait(stoppable, timeout=_LAST_WORDS_S)
        if self._deliveries:
            await asyncio.wait(self._deliveries, timeout=_LAST_WORDS_S)
        try:
            await self._stage.leave(self.id, self._session)
        except StorageFailed:
            pass  # the store is gone; the lease will tell the next start
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None

    async def _register(self) -> None:
        record = model.Worker(
            id=self.id,
            skills=tuple(self._worker.skills),
            queues=self._worker.queues,
            capacity=self._worker.concurrency,
        )
        known, strays = await self._stage.register(record, list(self._running), self._take, self._cancel)
        self._session = known.session
        self._cancel(strays)

    async def _beat_on(self) -> None:
        while True:
            await asyncio.sleep(self._stage.lease_s / 3)
            try:
                beat = await self._stage.heartbeat(self.id, self._session, list(self._running))
                if beat.known:
                    self._cancel(beat.cancel)
                else:
                    await self._register()
            except StorageFailed:
                return
            except Exception:
                log.exception("a heartbeat failed; the next one tries again", extra={"worker_id": self.id})

    # -- tasks -----------------------------------------------------------------------------------

    def _take(self, tasks: Sequence[Task]) -> None:
        now = self._clock.now()
        for task in tasks:
            performance = _Performance(task, now)
            # Offered again under the same id, it is already being done.
            if self._running.setdefault(performance.attempt_id, performance) is performance:
                self._perform(task, performance)

    def _perform(self, task: Task, performance: _Performance) -> None:
        skill = self._worker.skills.get(task.type)
        if skill is None:
            failure = TaskFailure("PERMANENT_ERROR", f"worker {self.id!r} has no task {task.type!r}")
            self._finish(performance, error=failure)
            return
        if skill.arity > 1:
            performance.context = TaskContext(task, self._report)
        arguments = (task.params, performance.context)[: skill.arity]
        if not skill.suspends:
            self._perform_inline(skill, arguments, performance)
            return
        self._stage.started(performance.attempt_id)
        call = self._call(skill, arguments)
        future = asyncio.get_running_loop().create_task(call, name=f"task-{task.type}")
        performance.future = future if skill.is_async else None
        self._performing.add(future)
        future.add_done_callback(functools.partial(self._done, performance))

    def _perform_inline(self, skill: Skill, arguments: tuple[Any, ...], performance: _Performance) -> None:
        """A coroutine that awaits nothing is over with one push: no task, no turn of the loop."""
        try:
            skill.func(*arguments).send(None)
        except StopIteration as end:
            self._finish(performance, end.value)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  # whatever a user raises is a result
            self._finish(performance, error=_failure_of(error))

    async def _call(self, skill: Skill, arguments: tuple[Any, ...]) -> Any:
        if skill.is_async:
            return await contained_async(skill.func(*arguments))
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._worker.concurrency, thread_name_prefix="regista-task")
        loop = asyncio.get_running_loop()
        value = await loop.run_in_executor(self._threads, contained, skill.func, *arguments)
        # A plain wrapper around an async function is still one.
        return await contained_async(value) if inspect.isawaitable(value) else value

    def _done(self, performance: _Performance, future: "asyncio.Future[Any]") -> None:
        self._performing.discard(future)
        if future.cancelled():
            if self._leaving:
                self._running.pop(performance.attempt_id, None)
            else:
                self._finish(performance, {"status": "cancelled"})
        elif (error := future.exception()) is not None:
            self._finish(performance, error=_failure_of(error))
        else:
            self._finish(performance, future.result())

    def _finish(self, performance: _Performance, value: Any = None, error: TaskFailure | None = None) -> None:
        """Send the result, and keep it until it is acknowledged: it counts as running until then."""
        status: Any = None
        try:
            if isinstance(value, dict) and value and value.keys() <= _RESULT_KEYS:
                status = value.get("status")
                error = _said_failure(value.get("error"))
                value = value.get("data")
        except ValueError as problem:
            value, error = None, TaskFailure("PERMANENT_ERROR", words(problem))
        result = TaskResult(
            task_id=performance.attempt_id,
            job_id=performance.job_id,
            worker_id=self.id,
            status=None if status is None else words(status),
            data=value,
            error=error,
            started_at=performance.began,
        )
        delivery = self._stage.report(result)
        self._deliveries.add(delivery)
        delivery.add_done_callback(functools.partial(self._acknowledged, performance.attempt_id))

    def _acknowledged(self, attempt_id: str, delivery: "asyncio.Future[Any]") -> None:
        self._deliveries.discard(delivery)
        # Not acknowledged, it stays ours: after a restart the attempt is lost and done again.
        if not delivery.cancelled() and delivery.exception() is None:
            self._running.pop(attempt_id, None)

    def _cancel(self, attempt_ids: Sequence[str]) -> None:
        for attempt_id in attempt_ids:
            performance = self._running.get(attempt_id)
            if performance is None:
                continue
            if performance.context is not None:
                performance.context.cancelled = True
            if performance.future is not None and not performance.future.done():
                performance.future.cancel()

    def _report(self, attempt_id: str, value: float | None, message: str, checkpoint: Any) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._stage.progress, attempt_id, value, message, checkpoint)


def _failure_of(error: BaseException) -> TaskFailure:
    if isinstance(error, TaskError):
        return TaskFailure(error.code, words(error), error.details or None)
    return TaskFailure("TRANSIENT_ERROR", f"{type(error).__name__}: {words(error)}")


def _said_failure(said: Any) -> TaskFailure | None:
    """The failure that a function returned: {"code", "message", "details"}, or just a message."""
    if not said:
        return None
    if isinstance(said, str):
        return TaskFailure("TRANSIENT_ERROR", said)
    if not isinstance(said, dict) or not all(
        isinstance(said.get(key, ""), str) for key in ("code", "message")
    ):
        raise ValueError(f"error: expected a str or a dict of code, message and details, got {said!r}")
    return TaskFailure(said.get("code") or "TRANSIENT_ERROR", said.get("message", ""), said.get("details"))
