"""LocalWorker: the reference performer. Does tasks in the orchestrator's own process."""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any, Protocol

import msgspec

from .. import model
from ..clock import Clock
from ..errors import StorageFailed, TaskError
from ..model import Task, TaskFailure, TaskResult
from .tasks import Skill, TaskContext, Worker

log = logging.getLogger("regista.worker")

_RESULT_KEYS = frozenset({"status", "data", "error"})
_encode = msgspec.msgpack.Encoder().encode
_decode_result = msgspec.msgpack.Decoder(TaskResult).decode


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
    async def deliver(self, result: TaskResult) -> object: ...
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
        self._running: dict[str, tuple[asyncio.Future[Any] | None, TaskContext]] = {}
        self._performing: set[asyncio.Future[Any]] = set()
        self._deliveries: set[asyncio.Task[None]] = set()
        self._beat: asyncio.Task[None] | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    # -- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Register and take tasks."""
        if self._beat is not None:
            return
        self._loop = asyncio.get_running_loop()
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
        self._cancel(list(self._running))
        stoppable = [future for future, _ in self._running.values() if future is not None]
        await asyncio.gather(*stoppable, return_exceptions=True)
        await asyncio.gather(*self._deliveries, return_exceptions=True)
        try:
            await self._stage.leave(self.id, self._session)
        except StorageFailed:
            pass  # the store is gone; the lease will tell the next start
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

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
        for task in tasks:
            attempt_id = task.attempt_id
            if attempt_id in self._running:
                continue  # offered again under the same id: it is already being done
            self._stage.started(attempt_id)
            self._perform(task, attempt_id)

    def _perform(self, task: Task, attempt_id: str) -> None:
        skill = self._worker.skills.get(task.type)
        context = TaskContext(task, self._report)
        began = self._clock.now()
        if skill is None:
            failure = TaskFailure("PERMANENT_ERROR", f"worker {self.id!r} has no task {task.type!r}")
            self._send(TaskResult(task_id=attempt_id, job_id=task.job_id, error=failure), began)
            return
        call = self._call(skill, task, context)
        future = asyncio.get_running_loop().create_task(call, name=f"task-{task.type}")
        # A thread cannot be stopped from outside: it is asked, and counts as running until it returns.
        self._running[attempt_id] = (future if skill.is_async else None, context)
        self._performing.add(future)
        future.add_done_callback(lambda done: self._done(done, task, attempt_id, began))

    async def _call(self, skill: Skill, task: Task, context: TaskContext) -> Any:
        arguments = (task.params, context)[: skill.arity]
        if skill.is_async:
            return await skill.func(*arguments)
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._worker.concurrency, thread_name_prefix="regista-task")
        return await asyncio.get_running_loop().run_in_executor(self._threads, skill.func, *arguments)

    def _done(self, future: "asyncio.Future[Any]", task: Task, attempt_id: str, began: datetime) -> None:
        self._performing.discard(future)
        try:
            result = _decode_result(_encode(_result_of(future, task, attempt_id)))
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            failure = TaskFailure("PERMANENT_ERROR", f"expected a result of plain data: {error}")
            result = TaskResult(task_id=attempt_id, job_id=task.job_id, error=failure)
        self._send(result, began)

    def _send(self, result: TaskResult, began: datetime) -> None:
        """Keep the result until it is acknowledged: the attempt counts as running until then."""
        signed = msgspec.structs.replace(result, worker_id=self.id, started_at=began)
        delivery = asyncio.get_running_loop().create_task(self._deliver(signed), name="deliver")
        self._deliveries.add(delivery)
        delivery.add_done_callback(self._deliveries.discard)

    async def _deliver(self, result: TaskResult) -> None:
        try:
            await self._stage.deliver(result)
        except StorageFailed:
            return  # it was not acknowledged; after the restart the attempt is lost and done again
        self._running.pop(result.task_id, None)

    def _cancel(self, attempt_ids: Sequence[str]) -> None:
        for attempt_id in attempt_ids:
            future, context = self._running.get(attempt_id, (None, None))
            if context is not None:
                context.cancel()
            if future is not None and not future.done():
                future.cancel()

    def _report(self, attempt_id: str, value: float | None, message: str, checkpoint: Any) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._stage.progress, attempt_id, value, message, checkpoint)


def _result_of(future: "asyncio.Future[Any]", task: Task, attempt_id: str) -> TaskResult:
    """Whatever the function did, as a result."""
    base = TaskResult(task_id=attempt_id, job_id=task.job_id)
    if future.cancelled():
        return msgspec.structs.replace(base, status="cancelled")
    error = future.exception()
    if error is not None:
        return msgspec.structs.replace(base, error=_failure_of(error))
    value = future.result()
    if isinstance(value, dict) and value and value.keys() <= _RESULT_KEYS:
        said = value.get("error")
        failure = msgspec.convert(said, TaskFailure) if said is not None else None
        return msgspec.structs.replace(
            base, status=value.get("status"), data=value.get("data"), error=failure
        )
    return msgspec.structs.replace(base, data=value)


def _failure_of(error: BaseException) -> TaskFailure:
    if isinstance(error, TaskError):
        return TaskFailure(error.code, str(error), error.details or None)
    return TaskFailure("TRANSIENT_ERROR", f"{type(error).__name__}: {error}")
