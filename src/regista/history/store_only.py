"""NoHistory: for a store that several orchestrators share and that has no history beside it."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

from ..errors import HistoryDisabled
from ..model import Event, JobSummary, OutboxEntry
from .base import EntryPage
from .query import Field, Place, Query
from .query.counts import JobCounts, Member


class NoHistory:
    """Keeps nothing, and never says that anything is safe: so the outbox is not pruned, and stays readable.

    The store bounds its outbox by itself. Until then the events of a job are found there; lists and searches,
    which need a history, are refused with `HistoryDisabled`. `newest` is the number of the store's last entry.
    """

    def __init__(self, newest: Callable[[], Awaitable[int]]) -> None:
        self._newest = newest

    async def start(self) -> None:
        """Nothing to open."""

    async def stop(self) -> None:
        """Nothing to close."""

    async def cursor(self) -> int:
        """The last entry that there is: nothing waits to be recorded."""
        return await self._newest()

    async def record(self, entries: Sequence[OutboxEntry]) -> None:
        """They stay where they are."""

    async def sync(self) -> int:
        """Nothing is safe here."""
        return 0

    async def events(self, job_id: str, after_seq: int = 0, limit: int = 1000) -> list[Event]:
        return []

    async def events_of_jobs(self, job_ids: Sequence[str], limit: int = 1000) -> dict[str, list[Event]]:
        return {}

    async def entries(self, after: int, limit: int = 1000, client: str | None = None) -> EntryPage:
        return EntryPage([], after)

    async def search(self, query: Query, after: Place | None = None, limit: int = 100) -> list[JobSummary]:
        raise HistoryDisabled

    async def count(
        self,
        query: Query,
        by: Field | None = None,
        *,
        without: Sequence[str] = (),
        beside: Sequence[Member] = (),
        limit: int = 100,
    ) -> JobCounts:
        raise HistoryDisabled

    async def expired(self, before: datetime | None, keep: int | None, limit: int = 500) -> list[str]:
        return []

    async def delete_jobs(self, job_ids: Sequence[str]) -> None:
        """There is nothing to forget."""
