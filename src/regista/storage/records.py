"""RecordTable: small durable records beside the jobs, in memory. Synchronous; a batch carries what is written."""

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from heapq import heappop, heappush
from typing import NamedTuple

from ..clock import Clock, add_seconds
from ..model import Record, RecordWrite
from .base import Hint, HintKind
from .codec import micros, moment_of
from .journal import JournalBatch, RecordRow

#: A record that is due later than this needs no hint: waiting parts look again every two seconds anyway.
_SOON = timedelta(seconds=2)


class _Cell(NamedTuple):
    """A record, and when its time is over by `clock.elapsed()`; None: never."""

    record: Record
    until: float | None


class _Collection:
    """The records of one collection, in the order of their keys and in that of their due times."""

    __slots__ = ("cells", "dues", "keys")

    def __init__(self) -> None:
        self.cells: dict[str, _Cell] = {}
        self.keys: list[str] = []
        self.dues: list[tuple[datetime, str]] = []

    def put(self, cell: _Cell) -> None:
        key, due = cell.record.key, cell.record.due
        old = self.cells.get(key)
        if old is None:
            insort(self.keys, key)
        else:
            self._undue(old.record)
        if due is not None:
            insort(self.dues, (due, key))
        self.cells[key] = cell

    def remove(self, key: str) -> None:
        self._undue(self.cells.pop(key).record)
        del self.keys[bisect_left(self.keys, key)]

    def _undue(self, record: Record) -> None:
        if record.due is not None:
            del self.dues[bisect_left(self.dues, (record.due, record.key))]


class RecordTable:
    """All collections. A write may be shown only when its batch is flushed: `unflushed` says which that is."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._collections: dict[str, _Collection] = {}
        #: Collection → the batch with its newest write, until that is flushed.
        self._numbers: dict[str, int] = {}
        #: (when its time is over, collection, key). A record that was written again since has another time.
        self._ends: list[tuple[float, str, str]] = []

    # -- reading ---------------------------------------------------------------------------------

    def unflushed(self, collection: str) -> int:
        """The batch that must be flushed before the collection may be shown; 0: none."""
        return self._numbers.get(collection, 0)

    def flushed(self, number: int) -> None:
        """Everything up to this batch is durable."""
        if self._numbers:
            self._numbers = {collection: last for collection, last in self._numbers.items() if last > number}

    def find(self, collection: str, keys: Sequence[str]) -> list[Record]:
        known = self._collections.get(collection)
        return [] if known is None else self._some(known, iter(keys), len(keys))

    def page(self, collection: str, after: str, limit: int) -> list[Record]:
        known = self._collections.get(collection)
        if known is None or limit < 1:
            return []
        start = bisect_right(known.keys, after) if after else 0
        return self._some(known, (known.keys[n] for n in range(start, len(known.keys))), limit)

    def due(self, collection: str, now: datetime, limit: int) -> list[Record]:
        known = self._collections.get(collection)
        if known is None or limit < 1:
            return []
        end = bisect_right(known.dues, now, key=lambda due: due[0])
        return self._some(known, (known.dues[n][1] for n in range(end)), limit)

    def _some(self, collection: _Collection, keys: Iterator[str], limit: int) -> list[Record]:
        found: list[Record] = []
        for key in keys:
            record = self._living(collection, key)
            if record is not None:
                found.append(record)
                if len(found) == limit:
                    break
        return found

    def _living(self, collection: _Collection, key: str) -> Record | None:
        cell = collection.cells.get(key)
        if cell is None or (cell.until is not None and cell.until <= self._clock.elapsed()):
            return None
        return cell.record

    # -- writing ---------------------------------------------------------------------------------

    def put(
        self, writes: Sequence[RecordWrite], batch: JournalBatch, number: int, *, fenced: bool = True
    ) -> list[bool]:
        """Write each whose fence holds; `check` them first, so that none fails halfway."""
        self._sweep(batch)
        return [self._put(write, batch, number, fenced) for write in writes]

    def _put(self, write: RecordWrite, batch: JournalBatch, number: int, fenced: bool) -> bool:
        old = next(iter(self.find(write.collection, [write.key])), None)
        revision = 0 if old is None else old.revision
        if fenced and write.expected is not None and write.expected != revision:
            return False
        row = self._row(write, revision + 1)
        if row.revision:
            self._place(row)
        elif old is None:
            return True
        else:
            self._remove(write.collection, write.key)
        batch.records[(write.collection, write.key)] = row
        if write.due is not None and row.revision and write.due - self._clock.now() <= _SOON:
            batch.hints[Hint(HintKind.RECORD, write.collection)] = None
        self._numbers[write.collection] = number
        return True

    def _row(self, write: RecordWrite, revision: int) -> RecordRow:
        if write.value is None:
            return RecordRow(write.collection, write.key, 0, None, None, b"")
        due = None if write.due is None else micros(write.due)
        # The file outlives the clock that never jumps, so it gets the time of day.
        expires = None if write.ttl_s is None else micros(add_seconds(self._clock.now(), write.ttl_s))
        return RecordRow(write.collection, write.key, revision, due, expires, write.value)

    def _place(self, row: RecordRow) -> None:
        until = None
        if row.expires is not None:
            until = self._clock.elapsed() + (row.expires - micros(self._clock.now())) / 1_000_000
            heappush(self._ends, (until, row.collection, row.key))
        due = None if row.due is None else moment_of(row.due)
        record = Record(row.collection, row.key, row.value, row.revision, due)
        self._collections.setdefault(row.collection, _Collection()).put(_Cell(record, until))

    def _remove(self, collection: str, key: str) -> None:
        known = self._collections[collection]
        known.remove(key)
        if not known.cells:
            del self._collections[collection]

    def _sweep(self, batch: JournalBatch) -> None:
        """Forget those whose time is over, here and in the file."""
        elapsed = self._clock.elapsed()
        while self._ends and self._ends[0][0] <= elapsed:
            until, collection, key = heappop(self._ends)
            known = self._collections.get(collection)
            cell = None if known is None else known.cells.get(key)
            if cell is not None and cell.until == until:
                self._remove(collection, key)
                batch.records[(collection, key)] = RecordRow(collection, key, 0, None, None, b"")

    def restore(self, rows: Sequence[RecordRow]) -> None:
        """Rebuild the collections from the file. What ended meanwhile is swept out with the next write."""
        for row in rows:
            self._place(row)


def check_records(writes: Sequence[RecordWrite]) -> None:
    """Raise a TypeError, ValueError or OverflowError when one of them cannot be stored."""
    for write in writes:
        for name in (write.collection, write.key):
            if not name.isprintable() and any("\ud800" <= letter <= "\udfff" for letter in name):
                raise ValueError(f"the name of a record: expected text, got half a character in {name!r}")
        if write.value is not None and not isinstance(write.value, bytes):
            raise TypeError(f"a record's value: expected bytes, got {type(write.value).__name__}")
        if write.due is not None:
            micros(write.due)
        if write.ttl_s is not None and not math.isfinite(write.ttl_s):
            raise ValueError(f"the time of a record: expected seconds, got {write.ttl_s}")
