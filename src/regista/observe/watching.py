"""A store that reports its commits and claims to an observer. The engine's repository takes its place."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, cast

from ..clock import Clock
from ..errors import StorageError
from ..model import Change, CommitOutcome, Job, QueueKey, Task, Worker
from ..storage.base import StorageBackend, TaskClaim
from .engine_observer import EngineTelemetry


class Watched:
    """Stands before a store. Only the few intentions below are looked at; all others are the store's own methods."""

    def __init__(self, storage: StorageBackend, observer: EngineTelemetry, clock: Clock) -> None:
        self._inner = storage
        self._observer = observer
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        # Kept for the next time: the store's own method costs the same as without us.
        found = getattr(self._inner, name)
        if callable(found):
            self.__dict__[name] = found
        return found

    async def commit(self, changes: Sequence[Change], instance: str) -> list[CommitOutcome]:
        """Commit, and report what came of it."""
        began = self._clock.elapsed()
        try:
            outcomes = await self._inner.commit(changes, instance)
        except StorageError:
            self._observer.commit_failed()
            raise
        self._observer.committed(changes, outcomes, self._clock.elapsed() - began)
        return outcomes

    async def load(
        self, jobs: Sequence[str], tasks: Sequence[str] = ()
    ) -> tuple[list[Job | None], list[Task | None]]:
        """Load, and report the jobs."""
        found = await self._inner.load(jobs, tasks)
        self._observer.loaded(found[0])
        return found

    async def claim_tasks(
        self, worker: Worker, lanes: Collection[QueueKey], limit: int, now: datetime
    ) -> TaskClaim:
        """Claim, and report what was claimed."""
        claim = await self._inner.claim_tasks(worker, lanes, limit, now)
        if claim.tasks:
            self._observer.claimed(worker, claim.tasks)
        return claim


def watched(storage: StorageBackend, observer: EngineTelemetry, clock: Clock) -> StorageBackend:
    """The store with an observer; to everybody else it is the store."""
    return cast(StorageBackend, Watched(storage, observer, clock))
