"""JobWaiter: waits for jobs to settle. Subscribers listen first and read afterwards, so no change is missed."""

import asyncio
from collections.abc import Iterable, Sequence

from ...aio import resolve, wait_or_timeout
from ...clock import Clock
from ...errors import JobNotFound
from ...model import Job
from ...storage.base import Hint
from ..base import WaitResult
from .repository import JobRepository


class JobWatch:
    """A subscription to the changes of some jobs."""

    __slots__ = ("_changed", "_enough", "_error", "_waiter", "job_ids")

    def __init__(self, job_ids: Iterable[str]) -> None:
        self.job_ids = tuple(dict.fromkeys(job_ids))
        self._changed: dict[str, None] = {}
        self._enough = 1
        self._waiter: asyncio.Future[None] | None = None
        self._error: Exception | None = None

    async def changes(self, timeout_s: float | None, enough: int = 1) -> tuple[str, ...]:
        """The jobs that may have settled since the last call: `enough` of them, or fewer after the timeout."""
        self._enough = enough
        if len(self._changed) < enough and self._error is None:
            self._waiter = asyncio.get_running_loop().create_future()
            await wait_or_timeout(self._waiter, timeout_s)
            self._waiter = None
        if self._error is not None:
            raise self._error
        changed, self._changed = self._changed, {}
        return tuple(changed)

    def notify(self, job_id: str) -> None:
        """A job may have settled."""
        self._changed[job_id] = None
        if len(self._changed) >= self._enough:
            self._wake()

    def fail(self, error: Exception) -> None:
        """Raises the error in the waiting call and in later ones."""
        self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None:
            resolve(self._waiter)


class JobWaiter:
    """Waits for one job, or for the first of many."""

    def __init__(self, repository: JobRepository, clock: Clock) -> None:
        self._repository = repository
        self._clock = clock
        self._watches: dict[str, tuple[JobWatch, ...]] = {}

    async def wait_one(self, job_id: str, timeout_s: float | None) -> Job:
        """The job once it has settled, or as it is after the timeout; JobNotFound."""
        deadline = None if timeout_s is None else self._clock.elapsed() + timeout_s
        watch = self._subscribe([job_id])
        try:
            while True:
                (job,) = await self._repository.get([job_id])
                if job is None:
                    raise JobNotFound(job_id)
                left_s = None if deadline is None else deadline - self._clock.elapsed()
                if job.status.settled or (left_s is not None and left_s <= 0):
                    return job
                await watch.changes(left_s)
        finally:
            self._unsubscribe(watch)

    async def wait_any(
        self, job_ids: Sequence[str], timeout_s: float, collect_s: float, owner: str | None
    ) -> WaitResult:
        """See `Engine.wait`."""
        watch = self._subscribe(job_ids)
        try:
            return await self._wait(watch, self._clock.elapsed() + timeout_s, collect_s, owner)
        finally:
            self._unsubscribe(watch)

    async def _wait(
        self, watch: JobWatch, deadline: float, collect_s: float, owner: str | None
    ) -> WaitResult:
        ended: dict[str, Job] = {}
        unknown: dict[str, None] = {}
        changed, collecting = watch.job_ids, False
        while True:
            for job_id, job in zip(changed, await self._repository.get(changed), strict=True):
                if job is None or (owner is not None and job.client != owner):
                    unknown[job_id] = None
                elif job.status.settled:
                    ended[job_id] = job
            if ended and not collecting:
                collecting, deadline = True, min(deadline, self._clock.elapsed() + collect_s)
            left_s = deadline - self._clock.elapsed()
            missing = len(watch.job_ids) - len(ended) - len(unknown)
            if left_s <= 0 or missing <= 0:
                return WaitResult(ended, list(unknown))
            # While collecting, nothing but the last job needs to wake the caller before the time is up.
            changed = await watch.changes(left_s, missing if collecting else 1)

    # -- notifications ---------------------------------------------------------------------------

    def job_changed(self, hint: Hint) -> None:
        """A job has settled."""
        self._notify(hint.id)

    def notify_all(self) -> None:
        """Makes all callers read again, because hints may be lost. Called every two seconds (FENCES 4)."""
        for job_id in [*self._watches]:
            self._notify(job_id)

    def fail_all(self, error: Exception) -> None:
        """Raises the error in all waiting calls: no further hints arrive."""
        for watch in {id(watch): watch for group in self._watches.values() for watch in group}.values():
            watch.fail(error)

    def _notify(self, job_id: str) -> None:
        for watch in self._watches.get(job_id, ()):
            watch.notify(job_id)

    def _subscribe(self, job_ids: Iterable[str]) -> JobWatch:
        watch = JobWatch(job_ids)
        alone = (watch,)  # shared by all ids that no other call waits for
        for job_id in watch.job_ids:
            others = self._watches.get(job_id)
            self._watches[job_id] = alone if others is None else (*others, watch)
        return watch

    def _unsubscribe(self, watch: JobWatch) -> None:
        for job_id in watch.job_ids:
            left = tuple(one for one in self._watches.get(job_id, ()) if one is not watch)
            if left:
                self._watches[job_id] = left
            else:
                self._watches.pop(job_id, None)
