"""OutboxIndex: the entries of the outbox that are not pruned yet, in their order and by job."""

from collections import deque
from itertools import dropwhile, islice

from ..model import Event, OutboxEntry

#: The batch that carries an entry, and the entry.
_Carried = tuple[int, OutboxEntry]


class OutboxIndex:
    """Entries in memory. Only those of flushed batches are shown (FENCES 4)."""

    __slots__ = ("_by_job", "_entries", "last")

    def __init__(self) -> None:
        self._entries: deque[_Carried] = deque()
        #: The same by job: a look at one job reads its own entries only.
        self._by_job: dict[str, list[_Carried]] = {}
        #: The number of the last entry. Every start goes on from the time of day in microseconds, so that
        #: a history that remembers more than this store never sees a number twice.
        self.last = 0

    def put(self, batch: int, entry: OutboxEntry) -> None:
        """Add an entry with the number after the last."""
        carried = (batch, entry)
        self.last = entry.number
        self._entries.append(carried)
        tail = self._by_job.get(entry.job_id)
        if tail is None:
            self._by_job[entry.job_id] = [carried]
        else:
            tail.append(carried)

    def after(self, number: int, limit: int, flushed: int) -> list[OutboxEntry]:
        """The next entries after `number`."""
        entries = self._entries
        if not entries or entries[-1][1].number <= number:
            return []
        # Numbers count on without a gap, but for the gap at a restart: mostly this is the exact position.
        start = number + 1 - entries[0][1].number
        if not 0 <= start < len(entries) or entries[start][1].number != number + 1:
            start = 0
        newer = dropwhile(lambda carried: carried[1].number <= number, islice(entries, start, None))
        return [entry for batch, entry in islice(newer, limit) if batch <= flushed]

    def tail(self, job_id: str, after_seq: int, flushed: int) -> list[Event]:
        """The events of one job."""
        entries = (entry for batch, entry in self._by_job.get(job_id, ()) if batch <= flushed)
        return [event for entry in entries for event in entry.numbered() if event.seq > after_seq]

    def prune(self, upto: int) -> None:
        """Forget the entries up to this number: history has them."""
        entries, by_job = self._entries, self._by_job
        while entries and (entry := entries[0][1]).number <= upto:
            carried = entries.popleft()
            tail = by_job[entry.job_id]
            if tail[-1] is carried:
                del by_job[entry.job_id]
            else:
                del tail[0]
