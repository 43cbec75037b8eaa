"""Waiting: for one job, or for the first of many."""

from collections.abc import Sequence

from ...aio import wait_or_timeout
from ...clock import Clock
from ...errors import JobNotFound
from ...model import Job
from ...storage.base import JobStore
from ..base import WaitResult
from .effects import Effects, Watch


class Waiting:
    """Waits for jobs to settle. Whoever waits listens first and looks afterwards: nothing falls in between.

    A wait ends with OrchestratorStopped, or with the store's failure, when nothing more will be heard.
    """

    def __init__(self, storage: JobStore, effects: Effects, clock: Clock) -> None:
        self._storage = storage
        self._effects = effects
        self._clock = clock

    async def one(self, job_id: str, timeout_s: float | None) -> Job:
        """The job once it has settled, or as it is when the time is up; JobNotFound."""
        give_up = None if timeout_s is None else self._clock.elapsed() + timeout_s
        while True:
            waiter = self._effects.changed(job_id)
            try:
                (job,) = await self._storage.get([job_id])
                if job is None:
                    raise JobNotFound(job_id)
                left = None if give_up is None else give_up - self._clock.elapsed()
                if job.status.settled or (left is not None and left <= 0):
                    return job
                await wait_or_timeout(waiter, left)  # raises when nothing more will be heard
            finally:
                self._effects.leave(job_id, waiter)

    async def any(
        self, job_ids: Sequence[str], timeout_s: float, linger_s: float, owner: str | None
    ) -> WaitResult:
        """See `NativeEngine.wait_any`."""
        watch = self._effects.watch(job_ids)
        try:
            return await self._gather(watch, self._clock.elapsed() + timeout_s, linger_s, owner)
        finally:
            self._effects.unwatch(watch)

    async def _gather(self, watch: Watch, give_up: float, linger_s: float, owner: str | None) -> WaitResult:
        ended: dict[str, Job] = {}
        unknown: dict[str, None] = {}
        look, lingers = watch.job_ids, False
        while True:
            for job_id, job in zip(look, await self._storage.get(look), strict=True):
                if job is None or (owner is not None and job.client != owner):
                    unknown[job_id] = None
                elif job.status.settled:
                    ended[job_id] = job
            if ended and not lingers:
                lingers, give_up = True, min(give_up, self._clock.elapsed() + linger_s)
            left, missing = give_up - self._clock.elapsed(), len(watch.job_ids) - len(ended) - len(unknown)
            if left <= 0 or missing <= 0:
                return WaitResult(ended, list(unknown))
            # Who lingers has company already: he need not be woken before the last one comes.
            look = await watch.news(left, missing if lingers else 1)
