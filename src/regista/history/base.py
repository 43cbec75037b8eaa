"""The history contract: every event, for good, beside the store and never in its way."""

from collections.abc import Sequence
from typing import Protocol

from ..model import Entry, Event, Summary


class HistoryStorage(Protocol):
    """Where events go to stay. The store's outbox is the durable copy until `sync` has returned."""

    async def start(self) -> None:
        """Open the backend and bring its schema up to date."""
        ...

    async def stop(self) -> None:
        """Sync and close. Twice is fine, and so is before `start`."""
        ...

    async def cursor(self) -> int:
        """The number of the last entry recorded; 0 at first. Stored with the rows, in their transaction."""
        ...

    async def record(self, entries: Sequence[Entry]) -> None:
        """Write these entries and move the cursor, together. Entries that are there already are left alone."""
        ...

    async def sync(self) -> int:
        """Make what was recorded survive a power cut; returns the cursor up to which it now does."""
        ...

    async def events(self, job_id: str, after_seq: int = 0, limit: int = 1000) -> list[Event]:
        """The events of a job above `after_seq`, in order, each with its `job_id` and `seq`."""
        ...

    async def summary(self, job_id: str) -> Summary | None:
        """The row of one job. Search attributes come back as JSON has them: a datetime as its text."""
        ...

    async def summaries(
        self,
        *,
        client: str | None = None,
        blueprint: str | None = None,
        status: str | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> list[Summary]:
        """Rows, newest id first, below the id `before`: hand the last id of a page in for the next one."""
        ...
