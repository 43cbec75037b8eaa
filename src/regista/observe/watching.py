"""Watched: a store that is looked at while it works. What passes through it is counted, traced, and left as it is."""

import logging
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, cast

from ..clock import Clock
from ..errors import StorageError
from ..model import Change, CommitOutcome, Job, QueueKey, Task, Worker
from ..storage.base import StorageBackend, TaskClaim
from .booking import Book
from .catalogue import Catalogue
from .spans import Spans

log = logging.getLogger("regista.observe")


class Watched:
    """Stands before a store. Only the few intentions below are looked at; all others are the store's own methods."""

    def __init__(
        self, storage: StorageBackend, catalogue: Catalogue, book: Book, spans: Spans | None, clock: Clock
    ) -> None:
        self._inner = storage
        self._of = catalogue
        self._book = book
        self._spans = spans
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        # Kept for the next time: the store's own method costs the same as without us.
        found = getattr(self._inner, name)
        if callable(found):
            self.__dict__[name] = found
        return found

    async def commit(self, changes: Sequence[Change], instance: str) -> list[CommitOutcome]:
        """Commit, and count what came of it."""
        began = self._clock.elapsed()
        try:
            outcomes = await self._inner.commit(changes, instance)
        except StorageError:
            self._of.store_errors.add()
            raise
        self._of.flush.observe(self._clock.elapsed() - began)
        self._note(changes, outcomes)
        return outcomes

    def _note(self, changes: Sequence[Change], outcomes: Sequence[CommitOutcome]) -> None:
        try:
            now = self._clock.now()
            self._book.committed(changes, outcomes, now)
            if self._spans is not None:
                self._spans.committed(changes, outcomes, now)
        except Exception:
            # What is written is written: whoever waits for it must be answered, counted or not.
            log.exception("counting a commit failed", extra={"action": "telemetry"})

    async def load(
        self, jobs: Sequence[str], tasks: Sequence[str] = ()
    ) -> tuple[list[Job | None], list[Task | None]]:
        """Load, and remember the blueprints of these jobs."""
        found = await self._inner.load(jobs, tasks)
        self._book.looked_at(found[0])
        return found

    async def claim_tasks(
        self, worker: Worker, lanes: Collection[QueueKey], limit: int, now: datetime
    ) -> TaskClaim:
        """Claim, and count how long they have waited."""
        claim = await self._inner.claim_tasks(worker, lanes, limit, now)
        if claim.tasks:
            self._book.handed_over(claim.tasks, worker, self._clock.now())
        return claim


def watched(
    storage: StorageBackend, catalogue: Catalogue, book: Book, spans: Spans | None, clock: Clock
) -> StorageBackend:
    """The store with somebody who looks; to everybody else it is the store."""
    return cast(StorageBackend, Watched(storage, catalogue, book, spans, clock))
