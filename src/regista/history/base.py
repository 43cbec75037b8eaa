"""The history contract: every event, for good, beside the store and never in its way."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from ..model import Event, JobSummary, OutboxEntry
from .query import Field, Place, Query
from .query.counts import JobCounts, Member


class EntryPage(NamedTuple):
    """Entries of some jobs, and how far all of them were looked at."""

    entries: list[OutboxEntry]
    #: The number after which to go on; the one asked for when there was nothing more.
    upto: int


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

    async def record(self, entries: Sequence[OutboxEntry]) -> None:
        """Write these entries and move the cursor, together. Entries that are there already are left alone.

        A story that is told anew (a higher number for a seq that is there) takes the place of the old one from that
        seq on. An entry that the backend can never take is kept apart, with an error in the log, and the rest goes on.
        """
        ...

    async def sync(self) -> int:
        """Make what was recorded survive a power cut; returns the cursor up to which it now does."""
        ...

    async def events(self, job_id: str, after_seq: int = 0, limit: int = 1000) -> list[Event]:
        """The events of a job above `after_seq`, in order, each with its `job_id` and `seq`."""
        ...

    async def events_of_jobs(self, job_ids: Sequence[str], limit: int = 1000) -> dict[str, list[Event]]:
        """The first `limit` events of each of these jobs, in one go; jobs without any are left out."""
        ...

    async def entries(self, after: int, limit: int = 1000, client: str | None = None) -> EntryPage:
        """The entries numbered above `after`, in order: of this client's jobs, or of all. Without summaries.

        `limit` bounds the entries that are looked at, whoever they belong to.
        """
        ...

    async def search(self, query: Query, after: Place | None = None, limit: int = 100) -> list[JobSummary]:
        """The rows that fit, in the order that the query asks for, behind a place in it."""
        ...

    async def count(
        self,
        query: Query,
        by: Field | None = None,
        *,
        without: Sequence[str] = (),
        beside: Sequence[Member] = (),
        limit: int = 100,
    ) -> JobCounts:
        """How many fit, in all and in the largest groups, and how long they took.

        Jobs of `without` are left out, and `beside` is counted in: what is known of jobs that are not recorded yet.
        """
        ...

    async def expired(self, before: datetime | None, keep: int | None, limit: int = 500) -> list[str]:
        """Up to `limit` ended jobs that may be deleted, oldest first.

        Those that ended before `before`; when there are none, those that stand behind the newest `keep` jobs of all.
        Jobs that have not ended are never among them.
        """
        ...

    async def delete_jobs(self, job_ids: Sequence[str]) -> None:
        """Delete these jobs with all their events. The cursor stays."""
        ...
