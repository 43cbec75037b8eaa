"""Journal: where the hot state is written through to. Nothing, a file, or a simulated disk."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from .base import Hint


class JobRow(NamedTuple):
    """A job as it is stored. `seq` and `open_branches` belong to the store, not to the record."""

    id: str
    live: bool
    seq: int
    open_branches: int
    body: bytes


class RecordRow(NamedTuple):
    """An item as it is stored. Times are microseconds since 1970."""

    collection: str
    key: str
    #: 0: it is removed.
    revision: int
    due: int | None
    expires: int | None
    value: bytes


class CountRow(NamedTuple):
    """How often a quota was used."""

    counter: str
    #: 0: it is forgotten.
    used: int
    #: Microseconds since 1970.
    expires: int


class JournalBatch:
    """What one flush writes: the newest form of every row that changed. None deletes a row."""

    __slots__ = ("counts", "entries", "hints", "jobs", "messages", "prune", "records", "tasks")

    def __init__(self) -> None:
        self.jobs: dict[str, JobRow] = {}
        self.tasks: dict[str, bytes | None] = {}
        self.messages: dict[str, bytes | None] = {}
        #: (number, encoded entry)
        self.entries: list[tuple[int, bytes]] = []
        self.prune = 0
        self.records: dict[tuple[str, str], RecordRow] = {}
        self.counts: dict[str, CountRow] = {}
        #: To be sent once it is durable. A dictionary: no set order may leak into a trace.
        self.hints: dict[Hint, None] = {}


def halves_of(batch: JournalBatch) -> tuple[JournalBatch, JournalBatch] | None:
    """Two batches that write the same, one after the other; None where there is nothing to share out."""
    first, second = JournalBatch(), JournalBatch()
    second.prune = batch.prune
    most = len(batch.entries)
    for name in ("jobs", "tasks", "messages", "records", "counts"):
        rows = list(getattr(batch, name).items())
        most = max(most, len(rows))
        setattr(first, name, dict(rows[: (len(rows) + 1) // 2]))
        setattr(second, name, dict(rows[(len(rows) + 1) // 2 :]))
    first.entries = batch.entries[: (len(batch.entries) + 1) // 2]
    second.entries = batch.entries[len(first.entries) :]
    return (first, second) if most > 1 else None


class Snapshot(NamedTuple):
    """Everything that start-up needs: live jobs and what hangs on them."""

    jobs: list[JobRow]
    tasks: list[bytes]
    messages: list[bytes]
    entries: list[bytes]
    #: The highest id of any job that is kept, live or ended.
    last_id: str
    records: Sequence[RecordRow] = ()
    counts: Sequence[CountRow] = ()


class Journal(Protocol):
    """Keeps batches, in order, for good."""

    #: Ended jobs stay findable here, so memory need not keep them.
    keeps_ended: bool

    async def open(self) -> Snapshot:
        """Take possession and read what is there."""
        ...

    async def write(self, batch: JournalBatch) -> None:
        """Return when the batch is durable. A failure is final."""
        ...

    def find_job(self, job_id: str) -> bytes | None:
        """The body of a job that memory does not hold (any more)."""
        ...

    async def forget(self, job_ids: Sequence[str]) -> None:
        """Delete these jobs, where they have ended."""
        ...

    async def close(self) -> None:
        """Let go. Twice is fine."""
        ...


class NoJournal:
    """Memory only: everything is as durable as it gets the moment it is applied."""

    keeps_ended = False

    async def open(self) -> Snapshot:
        return Snapshot([], [], [], [], "")

    async def write(self, batch: JournalBatch) -> None:
        return None

    def find_job(self, job_id: str) -> bytes | None:
        return None

    async def forget(self, job_ids: Sequence[str]) -> None:
        return None

    async def close(self) -> None:
        return None
