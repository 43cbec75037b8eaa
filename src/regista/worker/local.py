"""LocalWorker: the reference performer. Does tasks in the orchestrator's own process."""

import asyncio
import functools
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

from .. import model
from ..clock import Clock
from ..errors import OrchestratorStopped, StorageAway, StorageFailed, StorageUnavailable
from ..model import Task, TaskResult
from ..payloads.task_files import FilesRoom
from .performer import LAST_WORDS_S, Performance, Performer
from .profile import record_of
from .tasks import Worker

log = logging.getLogger("regista.worker")


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

    def __init__(
        self,
        worker: Worker,
        stage: Stage,
        clock: Clock,
        instance: str = "",
        files: FilesRoom | None = None,
    ) -> None:
        self.id = f"{instance}-{worker.name}" if instance else worker.name
        self._worker = worker
        self._stage = stage
        self._session = 0
        self._performer = Performer(worker, self.id, worker.concurrency, clock, self, files)
        self._deliveries: set[asyncio.Future[Any]] = set()
        self._beat: asyncio.Task[None] | None = None
        #: Starts and stops one after the other.
        self._life = asyncio.Lock()
        #: Pauses before the next try of results that met an error which may not pass.
        self._again: dict[str, float] = {}

    # -- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Register and take tasks."""
        async with self._life:
            if self._beat is not None:
                return
            self._performer.resume()
            await self._register()
            self._beat = asyncio.get_running_loop().create_task(self._beat_on(), name=f"heartbeat-{self.id}")

    async def stop(self, grace_s: float = 0.0) -> None:
        """Let running tasks finish within the grace, cancel the rest, and hand them back. A second one waits for the first."""
        async with self._life:
            if self._beat is not None:
                beat, self._beat = self._beat, None
                await self._leave(beat, grace_s)

    async def _leave(self, beat: "asyncio.Task[None]", grace_s: float) -> None:
        beat.cancel()
        await asyncio.gather(beat, return_exceptions=True)
        await self._performer.finish_within(grace_s)
        await self._performer.abandon()
        if self._deliveries:
            await asyncio.wait(self._deliveries, timeout=LAST_WORDS_S)
        try:
            await self._stage.leave(self.id, self._session)
        except StorageAway:
            pass  # the store is gone; the lease will tell the next start
        self._performer.close()

    async def _register(self) -> None:
        record = record_of(self._worker, self.id)
        performer = self._performer
        known, strays = await self._stage.register(record, performer.held(), performer.take, performer.cancel)
        self._session = known.session
        performer.cancel(strays)

    async def _beat_on(self) -> None:
        hot = self._worker.hot
        while True:
            await asyncio.sleep(self._stage.lease_s / 3)
            try:
                beat = await self._stage.heartbeat(self.id, self._session, self._performer.held())
                if beat.known and self._worker.hot == hot:
                    self._performer.cancel(beat.cancel)
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

    # -- what the performer says -----------------------------------------------------------------

    def started(self, performance: Performance) -> None:
        self._stage.started(performance.attempt_id)

    def progress(self, performance: Performance, value: float | None, message: str, checkpoint: Any) -> None:
        self._stage.progress(performance.attempt_id, value, message, checkpoint)

    def finished(self, performance: Performance) -> None:
        """Send the result, and keep it until it is acknowledged: it counts as running until then."""
        assert performance.result is not None
        delivery = self._stage.report(performance.result)
        self._deliveries.add(delivery)
        delivery.add_done_callback(functools.partial(self._acknowledged, performance))

    def _acknowledged(self, performance: Performance, delivery: "asyncio.Future[Any]") -> None:
        self._deliveries.discard(delivery)
        error = None if delivery.cancelled() else delivery.exception()
        if delivery.cancelled() or isinstance(error, StorageFailed | OrchestratorStopped):
            return  # it stays ours: after a restart the attempt is lost and done again
        if error is None:
            self._again.pop(performance.attempt_id, None)
            self._performer.forget(performance.attempt_id)
        elif self._beat is not None:
            pause_s = self._again.get(performance.attempt_id, AGAIN_S)
            if not isinstance(error, StorageUnavailable):
                self._again[performance.attempt_id] = min(2 * pause_s, MAX_AGAIN_S)
            asyncio.get_running_loop().call_later(pause_s, self.finished, performance)


#: Pause before a result is told again that the store could not take, and the longest one.
AGAIN_S, MAX_AGAIN_S = 0.5, 15.0
