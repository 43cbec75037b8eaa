"""MemoryHistory: the reference. What it does, every other history does too."""

from bisect import bisect_right, insort
from collections.abc import Sequence
from heapq import nlargest

from msgspec.structs import replace

from ..model import Entry, Event, Summary
from .base import Place, Stretch
from .encoding import encoded_json


class MemoryHistory:
    """Keeps history as long as the object lives; nothing is ever dropped, and nothing survives."""

    def __init__(self) -> None:
        self._cursor = 0
        #: By job, then by the seq of the entry's first event.
        self._entries: dict[str, dict[int, Entry]] = {}
        #: The newest entry of each job that carried a summary.
        self._latest: dict[str, tuple[int, Summary]] = {}
        #: All entries with events in the order of their numbers, by (number, job, first seq).
        self._order: list[tuple[int, str, int]] = []

    async def start(self) -> None:
        """Nothing to open."""

    async def stop(self) -> None:
        """Nothing to close: what was recorded can still be read."""

    async def cursor(self) -> int:
        return self._cursor

    async def record(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self._cursor = max(self._cursor, entry.number)
            known = self._entries.setdefault(entry.job_id, {}) if entry.events else {}
            if entry.events and entry.first_seq not in known:
                known[entry.first_seq] = entry
                insort(self._order, (entry.number, entry.job_id, entry.first_seq))
            if entry.summary is not None and entry.number > self._latest.get(entry.job_id, (-1,))[0]:
                self._latest[entry.job_id] = (entry.number, entry.summary)

    async def sync(self) -> int:
        """There is no power cut to survive: all of it is as safe as it will ever be."""
        return self._cursor

    async def events(self, job_id: str, after_seq: int = 0, limit: int = 1000) -> list[Event]:
        found: list[Event] = []
        for _, entry in sorted(self._entries.get(job_id, {}).items()):
            if entry.first_seq + len(entry.events) > after_seq + 1:
                found += (event for event in entry.numbered() if event.seq > after_seq)
            if len(found) >= limit:
                break
        return found[:limit]

    async def stories(self, job_ids: Sequence[str], limit: int = 1000) -> dict[str, list[Event]]:
        return {job_id: await self.events(job_id, 0, limit) for job_id in job_ids if job_id in self._entries}

    async def entries(self, after: int, limit: int = 1000, client: str | None = None) -> Stretch:
        start = bisect_right(self._order, after, key=lambda place: place[0])
        places = self._order[start : start + limit]
        found = [
            replace(self._entries[job_id][first_seq], summary=None)
            for _, job_id, first_seq in places
            if client is None or self._client_of(job_id) == client
        ]
        return Stretch(found, places[-1][0] if places else after)

    def _client_of(self, job_id: str) -> str:
        latest = self._latest.get(job_id)
        return "" if latest is None else latest[1].client

    async def summary(self, job_id: str) -> Summary | None:
        found = self._latest.get(job_id)
        return None if found is None else _given_back(found[1])

    async def summaries(
        self,
        *,
        client: str | None = None,
        blueprint: str | None = None,
        status: str | None = None,
        before: Place | None = None,
        limit: int = 100,
    ) -> list[Summary]:
        wanted = (
            (summary.created_at, job_id)
            for job_id, (_, summary) in self._latest.items()
            if (client is None or summary.client == client)
            and (blueprint is None or summary.blueprint == blueprint)
            and (status is None or summary.status == status)
            and (before is None or (summary.created_at, job_id) < before)
        )
        return [_given_back(self._latest[job_id][1]) for _, job_id in nlargest(limit, wanted)]


def _given_back(summary: Summary) -> Summary:
    if not summary.search_attributes:
        return summary
    return replace(summary, search_attributes=encoded_json(summary.search_attributes))
