"""LocalWorker: runs tasks in the orchestrator's own process."""

import asyncio
import functools
import logging
from collections.abc import Collection, Sequence
from typing import Any, Protocol

from .. import model
from ..clock import Clock
from ..errors import OrchestratorStopped, StorageFailed, StorageOutcomeUnknown, StorageUnavailable
from ..model import Task, TaskResult
from ..payloads.task_files import TaskFilesProvider
from .profile import build_worker_record
from .task_runner import LAST_WORDS_S, RunningTask, TaskRunner
from .tasks import Worker

log = logging.getLogger("regista.worker")


class HeartbeatAnswer(Protocol):
    """The answer to a heartbeat."""

    @property
    def known(self) -> bool: ...
    @property
    def cancel(self) -> Sequence[str]: ...


class WorkerServiceApi(Protocol):
    """What a local worker needs from the orchestrator; `WorkerService` is it."""

    lease_s: float

    async def register(
        self,
        worker: model.Worker,
        running: Collection[str],
        connection: "LocalWorker",
    ) -> tuple[model.Worker, tuple[str, ...]]: ...
    async def heartbeat(self, worker_id: str, session: int, running: Collection[str]) -> HeartbeatAnswer: ...
    async def leave(self, worker_id: str, session: int) -> None: ...
    def report(self, result: TaskResult) -> asyncio.Future[Any]: ...
    def started(self, attempt_id: str) -> None: ...
    def progress(
        self, attempt_id: str, value: float | None = None, message: str = "", checkpoint: Any = None
    ) -> None: ...


class LocalWorker:
    """Runs a worker's tasks in this process. Its id is stable, so a restart takes back at once what it held."""

    transport = "local"

    def __init__(
        self,
        worker: Worker,
        service: WorkerServiceApi,
        clock: Clock,
        instance: str = "",
        files: TaskFilesProvider | None = None,
    ) -> None:
        self.id = f"{instance}-{worker.name}" if instance else worker.name
        self._worker = worker
        self._service = service
        self._session = 0
        self._task_runner = TaskRunner(worker, self.id, worker.concurrency, clock, self, files)
        self._deliveries: set[asyncio.Future[Any]] = set()
        self._heartbeats: asyncio.Task[None] | None = None
        #: Starts and stops one after the other.
        self._lifecycle = asyncio.Lock()
        #: Pauses before the next try of results that met an error which may not pass.
        self._again: dict[str, float] = {}

    # -- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Register and take tasks."""
        async with self._lifecycle:
            if self._heartbeats is not None:
                return
            self._task_runner.resume()
            await self._register()
            self._heartbeats = asyncio.get_running_loop().create_task(
                self._send_heartbeats(), name=f"heartbeat-{self.id}"
            )

    async def stop(self, grace_s: float = 0.0) -> None:
        """Let running tasks finish within the grace, cancel the rest, and hand them back. A second one waits for the first."""
        async with self._lifecycle:
            if self._heartbeats is not None:
                beat, self._heartbeats = self._heartbeats, None
                await self._leave(beat, grace_s)

    async def _leave(self, beat: "asyncio.Task[None]", grace_s: float) -> None:
        beat.cancel()
        await asyncio.gather(beat, return_exceptions=True)
        await self._task_runner.wait_idle(grace_s)
        await self._task_runner.cancel_all()
        if self._deliveries:
            await asyncio.wait(self._deliveries, timeout=LAST_WORDS_S)
        try:
            await self._service.leave(self.id, self._session)
        except StorageOutcomeUnknown:
            pass  # the store is gone; the lease will tell the next start
        self._task_runner.close()

    async def _register(self) -> None:
        record = build_worker_record(self._worker, self.id)
        task_runner = self._task_runner
        known, strays = await self._service.register(record, task_runner.held(), self)
        self._session = known.session
        task_runner.cancel(strays)

    async def _send_heartbeats(self) -> None:
        hot = self._worker.hot
        while True:
            await asyncio.sleep(self._service.lease_s / 3)
            try:
                beat = await self._service.heartbeat(self.id, self._session, self._task_runner.held())
                if beat.known and self._worker.hot == hot:
                    self._task_runner.cancel(beat.cancel)
                else:
                    now_hot = self._worker.hot
                    await self._register()
                    hot = now_hot
            except StorageFailed:
                return
            except StorageUnavailable:
                pass  # nothing expires while the store is away, or soon after
            except Exception:
                log.exception("a heartbeat failed; the next one tries again", extra={"worker_id": self.id})

    # -- WorkerConnection ------------------------------------------------------------------------

    def send(self, tasks: Sequence[Task]) -> None:
        """Run these tasks."""
        self._task_runner.accept(tasks)

    def cancel(self, attempt_ids: Sequence[str]) -> None:
        """Stop these attempts."""
        self._task_runner.cancel(attempt_ids)

    def set_draining(self, on: bool) -> None:
        """Nothing to do: the worker only gets what is sent."""

    def close(self, code: int, reason: str) -> None:
        """Nothing to do: the orchestrator that started the worker stops it."""

    # -- TaskListener ----------------------------------------------------------------------------

    def started(self, running_task: RunningTask) -> None:
        self._service.started(running_task.attempt_id)

    def progress(self, running_task: RunningTask, value: float | None, message: str, checkpoint: Any) -> None:
        self._service.progress(running_task.attempt_id, value, message, checkpoint)

    def finished(self, running_task: RunningTask) -> None:
        """Send the result, and keep it until it is acknowledged: it counts as running until then."""
        assert running_task.result is not None
        delivery = self._service.report(running_task.result)
        self._deliveries.add(delivery)
        delivery.add_done_callback(functools.partial(self._acknowledged, running_task))

    def _acknowledged(self, running_task: RunningTask, delivery: "asyncio.Future[Any]") -> None:
        self._deliveries.discard(delivery)
        error = None if delivery.cancelled() else delivery.exception()
        if delivery.cancelled() or isinstance(error, StorageFailed | OrchestratorStopped):
            return  # it stays ours: after a restart the attempt is lost and done again
        if error is None:
            self._again.pop(running_task.attempt_id, None)
            self._task_runner.release(running_task.attempt_id)
        elif self._heartbeats is not None:
            pause_s = self._again.get(running_task.attempt_id, AGAIN_S)
            if not isinstance(error, StorageUnavailable):
                self._again[running_task.attempt_id] = min(2 * pause_s, MAX_AGAIN_S)
            asyncio.get_running_loop().call_later(pause_s, self.finished, running_task)


#: Pause before a result is told again that the store could not take, and the longest one.
AGAIN_S, MAX_AGAIN_S = 0.5, 15.0
