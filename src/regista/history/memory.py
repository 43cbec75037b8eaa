"""MemoryHistory: the reference. What it does, every other history does too."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from datetime import datetime
from heapq import nlargest, nsmallest

from msgspec.structs import replace

from ..model import Event, JobStatus, JobSummary, OutboxEntry
from .base import EntryPage
from .encoding import encoded_json
from .query import Field, Place, Query
from .query.counts import JobCounts, Member, counts_of, members_of
from .query.evaluate import select_matching
from .query.index import stored
from .superseded import supersedes, to_events


class MemoryHistory:
    """Keeps history as long as the object lives; nothing survives it."""

    #: Other processes cannot read it.
    shared = False

    def __init__(self) -> None:
        self._cursor = 0
        #: By job, then by the seq of the entry's first event, in this order.
        self._entries: dict[str, dict[int, OutboxEntry]] = {}
        #: The newest entry of each job that carried a summary.
        self._latest: dict[str, tuple[int, JobSummary]] = {}
        #: All entries with events in the order of their numbers, by (number, job, first seq).
        self._order: list[tuple[int, str, int]] = []

    async def start(self) -> None:
        """Nothing to open."""

    async def stop(self) -> None:
        """Nothing to close: what was recorded can still be read."""

    async def cursor(self) -> int:
        return self._cursor

    async def record(self, entries: Sequence[OutboxEntry]) -> None:
        for entry in entries:
            self._cursor = max(self._cursor, entry.number)
            if entry.events:
                self._tell(entry)
            if entry.summary is not None and entry.number > self._latest.get(entry.job_id, (-1,))[0]:
                self._latest[entry.job_id] = (entry.number, _kept(entry.summary))

    def _tell(self, entry: OutboxEntry) -> None:
        known = self._entries.setdefault(entry.job_id, {})
        last = next(reversed(known.values()), None)
        if last is not None and not (last.number < entry.number and last.first_seq < entry.first_seq):
            if entry.first_seq in known and known[entry.first_seq].number >= entry.number:
                return
            if any(supersedes(other, entry) for other in known.values()):
                return
            for seq in [seq for seq, other in known.items() if supersedes(entry, other)]:
                self._strike(known.pop(seq))
        # Without the bytes that others may have made of it: they would stay as long as it does.
        known[entry.first_seq] = OutboxEntry(
            entry.number, entry.job_id, entry.first_seq, entry.events, entry.summary
        )
        insort(self._order, _spot(entry))
        if last is not None and last.first_seq > entry.first_seq:
            self._entries[entry.job_id] = dict(sorted(known.items()))

    def _strike(self, entry: OutboxEntry) -> None:
        del self._order[bisect_left(self._order, _spot(entry))]

    async def sync(self) -> int:
        """There is no power cut to survive: all of it is as safe as it will ever be."""
        return self._cursor

    async def events(self, job_id: str, after_seq: int = 0, limit: int = 1000) -> list[Event]:
        known = self._entries.get(job_id, {})
        seqs = list(known)
        first = max(0, bisect_right(seqs, after_seq + 1) - 1)
        # One more than events asked for: the first may hold none of them.
        told = to_events(known[seq] for seq in seqs[first : first + limit + 1])
        return [event for event in told if event.seq > after_seq][:limit]

    async def events_of_jobs(self, job_ids: Sequence[str], limit: int = 1000) -> dict[str, list[Event]]:
        return {job_id: await self.events(job_id, 0, limit) for job_id in job_ids if job_id in self._entries}

    async def entries(self, after: int, limit: int = 1000, client: str | None = None) -> EntryPage:
        start = bisect_right(self._order, after, key=lambda place: place[0])
        places = self._order[start : start + limit]
        found = [
            replace(self._entries[job_id][first_seq], summary=None)
            for _, job_id, first_seq in places
            if client is None or self._client_of(job_id) == client
        ]
        return EntryPage(found, places[-1][0] if places else after)

    def _client_of(self, job_id: str) -> str:
        latest = self._latest.get(job_id)
        return "" if latest is None else latest[1].client

    async def search(self, query: Query, after: Place | None = None, limit: int = 100) -> list[JobSummary]:
        return select_matching(query, (row for _, row in self._latest.values()), after, limit)

    async def count(
        self,
        query: Query,
        by: Field | None = None,
        *,
        without: Sequence[str] = (),
        beside: Sequence[Member] = (),
        limit: int = 100,
    ) -> JobCounts:
        apart = set(without)
        rows = (row for job_id, (_, row) in self._latest.items() if job_id not in apart)
        return counts_of([*members_of(query, by, rows), *beside], limit, grouped=by is not None)

    async def expired(self, before: datetime | None, keep: int | None, limit: int = 500) -> list[str]:
        ended = [row for _, row in self._latest.values() if JobStatus(row.status).terminal]
        found: list[Place] = []
        if before is not None:
            found = [_place(row) for row in ended if row.finished_at is not None and row.finished_at < before]
        if keep and not found and len(self._latest) >= keep:
            floor = nlargest(keep, (_place(row) for _, row in self._latest.values()))[-1]
            found = [_place(row) for row in ended if _place(row) < floor]
        return [job_id for _, job_id in nsmallest(limit, found)]

    async def delete_jobs(self, job_ids: Sequence[str]) -> None:
        for job_id in job_ids:
            for entry in self._entries.pop(job_id, {}).values():
                self._strike(entry)
            self._latest.pop(job_id, None)


def _place(row: JobSummary) -> Place:
    return row.created_at, row.job_id


def _spot(entry: OutboxEntry) -> tuple[int, str, int]:
    return entry.number, entry.job_id, entry.first_seq


def _kept(summary: JobSummary) -> JobSummary:
    """As a database would give it back."""
    if not summary.search_attributes:
        return summary
    return replace(summary, search_attributes=encoded_json(stored(summary.search_attributes)))
