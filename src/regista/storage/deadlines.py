"""DeadlineIndex: which record must be looked at next. Exact, so that nothing lingers in it."""

from datetime import datetime
from heapq import heapify, heappop, heappush

from .base import Due, DueKind

_Key = tuple[DueKind, str]


class DeadlineIndex:
    """Deadlines in buckets of one second.

    Most deadlines never pass: a task ends long before its timeout. A heap would keep each of them
    until then (three million at 10,000 a second and 300 s), so setting and clearing are dictionary
    operations here and only the seconds themselves are in a heap.
    """

    def __init__(self) -> None:
        #: When, whose, and in which bucket.
        self._at: dict[_Key, tuple[datetime, str, int]] = {}
        self._buckets: dict[int, dict[_Key, None]] = {}
        self._seconds: list[int] = []

    def __len__(self) -> int:
        return len(self._at)

    def set(self, kind: DueKind, id: str, job_id: str, at: datetime | None) -> bool:
        """Make `at` the one deadline of this record; None clears it. True if nothing is due earlier."""
        key = (kind, id)
        old = self._at.get(key)
        if old is not None:
            if old[0] == at:
                return False
            self._discard(key, old[2])
        if at is None:
            return False
        second = int(at.timestamp())
        self._at[key] = (at, job_id, second)
        bucket = self._buckets.get(second)
        if bucket is None:
            bucket = self._buckets[second] = {}
            heappush(self._seconds, second)
        bucket[key] = None
        return second <= self._seconds[0]

    def due(self, now: datetime, limit: int) -> list[Due]:
        """The passed deadlines, earliest first; they stay until `set` moves them."""
        limit_second = int(now.timestamp())
        found: list[Due] = []
        visited: list[int] = []
        while self._seconds and self._seconds[0] <= limit_second and len(found) < limit:
            second = heappop(self._seconds)
            if second not in self._buckets or second in visited[-1:]:
                continue  # a second that was left behind, or that is in the heap twice
            visited.append(second)
            rows = [
                Due(self._at[key][0], key[0], key[1], self._at[key][1])
                for key in self._buckets[second]
                if self._at[key][0] <= now
            ]
            found += sorted(rows)
        for second in visited:
            heappush(self._seconds, second)
        return found[:limit]

    def earliest(self) -> datetime | None:
        """The earliest deadline, passed or not."""
        while self._seconds and self._seconds[0] not in self._buckets:
            heappop(self._seconds)
        if not self._seconds:
            return None
        return min(self._at[key][0] for key in self._buckets[self._seconds[0]])

    def is_near(self, now: datetime, within_s: float) -> bool:
        """Something may be due within so many seconds; a second too early is possible, too late is not."""
        return bool(self._seconds) and self._seconds[0] <= now.timestamp() + within_s

    def _discard(self, key: _Key, second: int) -> None:
        del self._at[key]
        bucket = self._buckets[second]
        del bucket[key]
        if not bucket:
            del self._buckets[second]
            # The second may still be in the heap; without this, quiet hours would pile them up.
            if len(self._seconds) > 2 * len(self._buckets) + 64:
                self._seconds = list(self._buckets)
                heapify(self._seconds)
