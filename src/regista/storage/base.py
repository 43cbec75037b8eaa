"""The storage contract: small protocols that name intentions. DESIGN section 6, FENCES.

Rules that hold for every method:

- *Visibility.* A method that returns something a stranger may see (`get`, `claim_tasks`, `commit`,
  `outbox`) returns only after it was flushed. `load` and `claim_ready` serve deciders: they show the
  newest applied state, since a decision on it is flushed with it or after it.
- *Durations, never instants.* Leases are stamped and compared by the store's own clock.
- *Twice is fine.* Every method can be sent again after a lost answer.
- After a failed flush every method raises `StorageFailed`, for good.
"""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, Protocol

from ..errors import StorageFailed
from ..model import (
    Change,
    CommitOutcome,
    Event,
    FreeSlots,
    Job,
    JobMessage,
    OutboxEntry,
    QueueKey,
    QueueStatus,
    Record,
    RecordWrite,
    Task,
    TokenGrant,
    Worker,
)

#: (blueprint name, version hash)
Version = tuple[str, str]


class DueKind(StrEnum):
    """What a deadline belongs to."""

    JOB = "job"
    TASK = "task"


class Due(NamedTuple):
    """A deadline that has passed."""

    at: datetime
    kind: DueKind
    #: A job id or a task id.
    id: str
    job_id: str


class HintKind(StrEnum):
    """What may have become worth a look."""

    READY = "ready"
    TASK = "task"
    CHANGED = "changed"
    MESSAGE = "message"
    CANCEL = "cancel"
    OUTBOX = "outbox"
    #: A deadline was set that comes before all others, and soon: a later one is found by looking again.
    DEADLINE = "deadline"
    #: Somebody wrote the record of a worker: it has another session or connection, or should be drained.
    WORKER = "worker"
    #: An instance told of its free slots.
    SLOTS = "slots"
    #: How far an attempt is. The id is the word itself, since no store keeps it.
    PROGRESS = "progress"
    #: An item was written that is due, or soon will be; the id is its shelf.
    ITEM = "item"


class Hint(NamedTuple):
    """A nudge. It may be lost or doubled; whoever waits looks again every two seconds anyway."""

    kind: HintKind
    #: A job id (CHANGED, MESSAGE), a worker id (CANCEL, WORKER), a `lane_name` (TASK), an instance (SLOTS), a shelf (ITEM), else empty.
    id: str = ""
    #: The only instance that need act on it; empty: everybody.
    to: str = ""


class TaskClaim(NamedTuple):
    """What a worker was given."""

    tasks: list[Task]
    #: Nothing more waits in these lanes. False with no tasks: this worker may be given nothing, but others may.
    exhausted: bool


class JobStore(Protocol):
    """Jobs, their tasks, and the one way to change them."""

    async def commit(self, changes: Sequence[Change], instance: str) -> list[CommitOutcome]:
        """Apply each change whole or not at all, in order, and answer when all are flushed.

        Refused changes write nothing: STALE when the revision, a task's fence or the consumed message
        has passed on; MISSING when there is no such job; EXISTS when a created job is there already;
        UNSTORABLE, with the reason, when it holds something that cannot be encoded.
        A change whose token is among those of the job's last writers is REPEATED: it had been applied.
        Events get the job's next sequence numbers; every task, deadline, ready entry, child, message
        and outbox entry is part of the same write.
        """
        ...

    async def load(
        self, jobs: Sequence[str], tasks: Sequence[str] = ()
    ) -> tuple[list[Job | None], list[Task | None]]:
        """The newest applied records, in the order asked; None where there is none. For deciders."""
        ...

    async def tasks_of(self, job_id: str) -> list[Task]:
        """The tasks of a job that are kept, in dispatch order. For deciders."""
        ...

    async def get(self, job_ids: Sequence[str]) -> list[Job | None]:
        """The jobs as clients may see them: flushed. Ended jobs are found too; None where there is none."""
        ...


class ReadyQueue(Protocol):
    """Jobs whose next handler can run, per blueprint version."""

    async def claim_ready(
        self, instance: str, versions: Collection[Version], limit: int, lease_s: float
    ) -> list[Job]:
        """Take up to `limit` runnable jobs of these versions, each for `lease_s` seconds.

        Oldest first within a version, and one from each version in turn.

        Two claimers never get the same job. An entry was written for one revision and is dropped when
        that has passed. A job whose lease lapsed can be claimed again.
        """
        ...

    async def extend(self, instance: str, job_ids: Sequence[str], lease_s: float) -> list[str]:
        """Keep these leases for `lease_s` from now; returns the ids that this instance still holds."""
        ...

    async def relinquish(self, instance: str) -> int:
        """Put back in line whatever this instance has claimed; returns how many jobs that were.

        For its start, since an earlier life of it may have been killed with jobs in its hands, and for its
        end: nobody should have to wait for those leases.
        """
        ...

    async def attend(self, instance: str, versions: Collection[Version], lease_s: float) -> None:
        """Say which versions this instance can run; forgotten after `lease_s` without another word."""
        ...

    async def stranded(self, limit: int) -> list[Job]:
        """Runnable jobs of versions that no instance attends, oldest first."""
        ...


class TaskQueue(Protocol):
    """Tasks that wait for a worker."""

    async def claim_tasks(
        self, worker: Worker, lanes: Collection[QueueKey], limit: int, now: datetime
    ) -> TaskClaim:
        """Offer up to `limit` of the tasks that wait in these lanes to the worker.

        The caller has made sure that the worker may do what waits there. A worker whose session was replaced
        is given nothing, and is not told that the lanes are empty.

        Clients take turns: next is the one whose line in any of these lanes was served longest ago (a new
        line counts as served when it began), and then all its lines in these lanes count as served. It
        gives its best task: the lowest `enqueued_at - priority x AGEING_STEP_S`, then the order of arrival.
        Each task is offered (worker, session, `offered_at=now`) in the write that takes it from its lane.
        """
        ...

    async def lanes(self) -> list[QueueStatus]:
        """What waits: a row for each client in each lane, in that order. Empty lines are not told of."""
        ...

    async def held_by(self, worker_id: str) -> list[Task]:
        """The tasks that are offered to or started by this worker."""
        ...

    async def holders(self) -> list[str]:
        """The ids of all workers that have a task in their hands, known or not."""
        ...


class Deadlines(Protocol):
    """Instants at which somebody must look. They follow from the records; nobody sets them apart."""

    async def due(self, now: datetime, limit: int) -> list[Due]:
        """The passed deadlines, earliest first. Never pops: the commit that acts moves the deadline."""
        ...

    async def next_due(self) -> datetime | None:
        """The earliest deadline, passed or not."""
        ...


class Messages(Protocol):
    """Durable words between jobs."""

    async def messages(self, limit: int) -> list[JobMessage]:
        """Those that nobody has acted on yet, oldest first."""
        ...


class WorkerStore(Protocol):
    """Who is there. A lease of three beats says so; a closed socket says nothing."""

    async def register(self, worker: Worker, lease_s: float) -> Worker:
        """Note the worker under a new session, which the returned record carries, and hint at it (WORKER)."""
        ...

    async def heartbeat(self, worker_id: str, session: int, lease_s: float) -> bool:
        """Renew the lease. False when the session is not the worker's last one, or it is unknown."""
        ...

    async def note(self, worker: Worker) -> Worker | None:
        """Write the record again, and hint at it (WORKER). Returns it as it is known now.

        None, and nothing changes, when it names another session than the worker's last one, or another count of `notes`:
        somebody has written in between. Whoever is refused reads again, and decides again. What was just written, said again by
        somebody who has missed the answer, counts once.
        """
        ...

    async def worker(self, worker_id: str) -> Worker | None:
        """The record of one worker, lapsed or not."""
        ...

    async def workers(self) -> list[Worker]:
        """Everybody known, in the order of their ids."""
        ...

    async def lapsed(self) -> list[Worker]:
        """Those whose lease is over. Never pops: `forget` does."""
        ...

    async def forget(self, worker_id: str, session: int, *, lapsed: bool = False) -> bool:
        """Strike the worker off, unless it has a newer session; with `lapsed`, only while its lease is over. Hints (WORKER)."""
        ...


class SlotBoard(Protocol):
    """Who has room, by instance and class of workers. A hint in numbers: it may be some moments old."""

    async def show_slots(self, instance: str, slots: Sequence[FreeSlots], ttl_s: float) -> None:
        """Say how many free slots this instance has; forgotten after `ttl_s` without another word. Hints (SLOTS)."""
        ...

    async def slots(self) -> dict[str, list[FreeSlots]]:
        """The newest word of every instance."""
        ...


class Outbox(Protocol):
    """Events on their way to history."""

    async def outbox(self, after: int, limit: int) -> list[OutboxEntry]:
        """The flushed entries numbered above `after`, in order."""
        ...

    async def prune(self, upto: int) -> None:
        """Forget the entries up to this number; history has them for good. Rides with a later flush."""
        ...

    async def tail(self, job_id: str, after_seq: int) -> list[Event]:
        """The flushed events of a job above `after_seq` that are still in the outbox."""
        ...


class Leadership(Protocol):
    """Saves work; correctness never rests on it."""

    async def lead(self, name: str, instance: str, ttl_s: float) -> bool:
        """Become or stay the leader of a chore for `ttl_s`. False when somebody else is."""
        ...


class Shelves(Protocol):
    """Small durable records that belong to no job: tokens, deliveries, schedules. Written rarely, so one at a time is fine."""

    async def put(self, writes: Sequence[RecordWrite]) -> list[bool]:
        """Write or remove each, in order, each behind its own fence; durable when answered. Hints (ITEM).

        False: the fence did not hold, and nothing changed. Of two who remove the same revision one gets True,
        which is all that a one-time password needs. To remove what is not there is fine. A name that is not text, or a
        time that is no number, is a ValueError, and nothing at all is written.
        """
        ...

    async def item(self, collection: str, key: str) -> Record | None:
        """The item as it was flushed."""
        ...

    async def items(self, collection: str, after: str = "", limit: int = 100) -> list[Record]:
        """The items of a shelf whose keys come after `after`, in the order of their keys."""
        ...

    async def ripe(self, collection: str, now: datetime, limit: int) -> list[Record]:
        """The items whose `due` has come, earliest first. Never pops: the write that acts moves or removes it."""
        ...


class Counters(Protocol):
    """How much is left."""

    async def take(self, bucket: str, n: int, limit: int, window_s: float) -> TokenGrant:
        """Take `n` tokens out of a bucket that holds `limit` and fills evenly within `window_s`.

        All or none; more than `limit` is never given. A bucket that nobody has seen is full. Not durable: a store that
        starts anew may have full buckets. A call that is sent again after a lost answer may take twice.
        """
        ...

    async def used(self, counter: str) -> int:
        """How often the quota of this name was used; see `Change.quota`."""
        ...


class Secrets(Protocol):
    """What all who share a store must know alike, and nobody else."""

    async def secret(self, name: str) -> bytes:
        """32 random bytes, made at the first call for `name` and the same ever after."""
        ...


class StorageBackend(
    JobStore,
    ReadyQueue,
    TaskQueue,
    Deadlines,
    Messages,
    WorkerStore,
    SlotBoard,
    Outbox,
    Leadership,
    Shelves,
    Counters,
    Secrets,
    Protocol,
):
    """All of it, with a life."""

    #: Other processes may work on the same store.
    shared: bool

    async def start(self) -> None:
        """Open, recover, and be ready. What was acknowledged before is there again."""
        ...

    async def stop(self) -> None:
        """Flush and close. Twice is fine, and so is before `start`."""
        ...

    async def failed(self) -> StorageFailed:
        """Return when a flush has failed for good. The process should stop then: the store answers nothing any more."""
        ...

    async def now(self) -> datetime:
        """The time of day by the store's own clock: the one that all who share it go by."""
        ...

    async def nudge(self, hints: Sequence[Hint]) -> None:
        """Tell all who listen, here and in other processes, and keep nothing."""
        ...

    def listen(self, hear: Callable[[Hint], None]) -> Callable[[], None]:
        """Call `hear` with hints until the returned function is called."""
        ...


#: Seconds of waiting that one point of priority is worth. Fixed at enqueue, so nothing starves.
AGEING_STEP_S = 60.0
