"""HealthChecker: takes back what dead workers held, and takes them out of the index."""

from datetime import datetime

from ..dispatch.dispatcher import Dispatcher
from ..storage.base import JobStorage, StorageBackend
from ..workers.service import WorkerService
from .chore import ChoreResult
from .loop import ExpiryGrace


class HealthChecker:
    """Only a lapsed lease says that a worker is gone; a closed socket says nothing (FENCES 9).

    After a restart the store knows no workers, but the tasks still know who held them: whoever has not
    come back within the longest lease that a worker may have is gone as well.
    """

    name = "health_checker"
    needs_leader = True

    def __init__(
        self,
        storage: StorageBackend,
        service: WorkerService,
        grace: ExpiryGrace,
        interval_s: float = 1.0,
        longest_lease_s: float = 0.0,
    ) -> None:
        self.interval_s = interval_s
        self._longest_lease_s = longest_lease_s
        self._storage = storage
        self._service = service
        self._grace = grace

    async def run_once(self, now: datetime) -> ChoreResult:
        """Bury the lapsed and the unknown."""
        if not self._grace.over:
            return ChoreResult()
        lost = 0
        for worker in await self._storage.workers(lapsed_only=True):
            if self._grace.over_for(worker.lease_s or 0.0):
                lost += await self._service.remove(worker.id, worker.session)
        if not self._grace.over_for(self._longest_lease_s):
            return ChoreResult(done=lost)
        return ChoreResult(done=lost + await self._bury_unknown())

    async def _bury_unknown(self) -> int:
        """Those who hold tasks and are not in the store. Returns how many attempts were lost."""
        lost, known = 0, await self._known()
        for worker_id in await self._storage.holders():
            if worker_id in known:
                continue
            # Asked anew before each burial, since somebody may have come back during the last one; never for
            # those who are known, since with thousands of workers that alone would block everybody.
            known = await self._known()
            if worker_id not in known:
                lost += await self._service.remove(worker_id, None)
        return lost

    async def _known(self) -> set[str]:
        return {worker.id for worker in await self._storage.workers()}


class WorkerIndexCleaner:
    """Takes workers out of this instance's index of seats that the store knows no more, or not like this.

    Whoever buries a worker, or takes it over, frees the seat that it has there. Another instance may have missed that: the word
    of it is a hint. A seat of the dead would be offered tasks, each of which waits for a lease to lapse. Every instance cleans its
    own index, every half lease; what instances tell each other of their slots ends by itself.
    """

    name = "index_cleaner"
    needs_leader = False

    def __init__(
        self,
        storage: JobStorage,
        dispatcher: Dispatcher,
        service: WorkerService,
        interval_s: float | None = None,
    ) -> None:
        self.interval_s = service.lease_s / 2 if interval_s is None else interval_s
        self._storage = storage
        self._dispatcher = dispatcher
        self._service = service

    async def run_once(self, now: datetime) -> ChoreResult:
        """Let go of whoever is not ours any more; `done` is how many."""
        # Seats first: whoever sits was in the store before.
        seats = self._dispatcher.connected_workers()
        if not seats:
            return ChoreResult()
        known = {worker.id: worker for worker in await self._storage.workers()}
        gone = sum(
            self._service.follow_record(connected, known.get(connected.worker.id)) for connected in seats
        )
        return ChoreResult(done=gone)


class ProgressWriter:
    """Stores signs of life (started, progress, checkpoint) that no result has overtaken."""

    name = "progress_writer"
    needs_leader = False

    def __init__(self, service: WorkerService, interval_s: float = 1.0) -> None:
        self.interval_s = interval_s
        self._service = service

    async def run_once(self, now: datetime) -> ChoreResult:
        """Write what has gathered since the last time."""
        return ChoreResult(done=await self._service.write_signs())
