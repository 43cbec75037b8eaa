"""HealthChecker: takes back what dead workers held."""

from datetime import datetime

from ..engines.native.workers import WorkerService
from ..storage.base import StorageBackend
from .loop import Grace, Report


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
        grace: Grace,
        interval_s: float = 1.0,
        longest_lease_s: float = 0.0,
    ) -> None:
        self.interval_s = interval_s
        self._longest_lease_s = longest_lease_s
        self._storage = storage
        self._service = service
        self._grace = grace

    async def run_once(self, now: datetime) -> Report:
        """Bury the lapsed and the unknown."""
        if not self._grace.over:
            return Report()
        lost = 0
        for worker in await self._storage.lapsed():
            if self._grace.over_for(worker.lease_s or 0.0):
                lost += await self._service.bury(worker.id, worker.session)
        if not self._grace.over_for(self._longest_lease_s):
            return Report(done=lost)
        for worker_id in await self._storage.holders():
            # Asked anew for each: somebody may have come back while we buried another one.
            if worker_id not in {worker.id for worker in await self._storage.workers()}:
                lost += await self._service.bury(worker_id, None)
        return Report(done=lost)


class SignWriter:
    """Stores signs of life (started, progress, checkpoint) that no result has overtaken."""

    name = "signs"
    needs_leader = False

    def __init__(self, service: WorkerService, interval_s: float = 1.0) -> None:
        self.interval_s = interval_s
        self._service = service

    async def run_once(self, now: datetime) -> Report:
        """Write what has gathered since the last time."""
        return Report(done=await self._service.write_signs())
