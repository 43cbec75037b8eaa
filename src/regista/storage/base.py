"""The storage contract: what jobs need (`JobStorage`), what all parts share (`SharedState`), and both with a lifecycle.

Rules that hold for every method:

- *Visibility.* A method that returns something a client or worker may see (`get`, `claim_tasks`, `commit`,
  `outbox`, `records`) returns only after it was flushed. `load` and `claim_ready` serve deciders: they show the
  newest applied state, since a decision on it is flushed with it or after it.
- *Durations, never instants.* Leases are stamped and compared by the store's own clock.
- *Twice is fine.* Every method can be sent again after a lost answer.
- After a failed flush every method raises `StorageFailed`, for good.
"""

import secrets
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, Protocol

from ..errors import StorageFailed
from ..model import (
    Change,
    CommitOutcome,
    Event,
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

#: The collection of `shared_secret`.
SECRETS = "secrets"
#: Seconds of waiting that one point of priority is worth. Fixed at enqueue, so nothing starves.
AGEING_STEP_S = 60.0
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
    #: The record of a worker was written: it has another session or connection, or should be drained.
    WORKER = "worker"
    #: An instance has published its free slots.
    SLOTS = "slots"
    #: How far an attempt is. The id is the message itself, since no store keeps it.
    PROGRESS = "progress"
    #: A record was written that is due, or soon will be; the id is its collection.
    RECORD = "record"


class Hint(NamedTuple):
    """A notification that may be lost or doubled: all waiting parts look again every two seconds anyway."""

    kind: HintKind
    #: A job id (CHANGED, MESSAGE), a worker id (CANCEL, WORKER), a `queue_key_text` (TASK), an instance (SLOTS), a collection (RECORD), else empty.
    id: str = ""
    #: The only instance that need act on it; empty: all.
    to: str = ""


class Heartbeat(NamedTuple):
    """A sign of life of a worker's session, which renews its lease."""

    worker_id: str
    session: int
    lease_s: float


class TaskClaim(NamedTuple):
    """What a worker was given."""

    tasks: list[Task]
    #: Nothing more waits under these keys. False with no tasks: this worker may be given nothing, but others may.
    exhausted: bool


class OutboxPage(NamedTuple):
    """Entries on their way to history."""

    entries: list[OutboxEntry]
    #: The number of the newest entry there ever was; 0 if there was none.
    newest: int


class Outbox(Protocol):
    """Events on their way to history: what a recorder needs."""

    async def outbox(self, after: int, limit: int) -> OutboxPage:
        """The flushed entries numbered above `after`, in order."""
        ...

    async def prune(self, upto: int) -> None:
        """Forget the entries up to this number; history has them for good. Rides with a later flush."""
        ...

    async def tail(self, job_id: str, after_seq: int) -> list[Event]:
        """The flushed events of a job above `after_seq` that are still in the outbox."""
        ...

    async def skip_outbox_numbers(self, above: int) -> int:
        """Go on counting entries from so many numbers above; returns the last number below the gap.

        For a history that knows numbers which a restored store would give again.
        """
        ...


class JobStorage(Outbox, Protocol):
    """Jobs, tasks, workers and events: what an engine needs."""

    # -- jobs

    async def commit(self, changes: Sequence[Change], instance: str) -> list[CommitOutcome]:
        """Apply each change whole or not at all, in order, and answer when all are flushed.

        Refused changes write nothing: STALE when the revision, a task's fence or the consumed message
        has passed on; MISSING when there is no such job; EXISTS when a created job is there already;
        UNSTORABLE, with the reason, when it holds something that cannot be encoded.
        A change whose token is among those of the job's last writers is REPEATED: it had been applied.
        Events get the job's next sequence numbers; every task, deadline, ready entry, child, message
        and outbox entry is part of the same write. An offer to a session that its worker has replaced
        is stored as a waiting task and named in `not_offered`.
        """
        ...

    async def load(
        self, job_ids: Sequence[str], task_ids: Sequence[str] = ()
    ) -> tuple[list[Job | None], list[Task | None]]:
        """The newest applied records, in the order asked; None where there is none. For deciders."""
        ...

    async def tasks_of(self, job_id: str) -> list[Task]:
        """The tasks of a job that are kept, in dispatch order. For deciders."""
        ...

    async def get(self, job_ids: Sequence[str]) -> list[Job | None]:
        """The jobs as clients may see them: flushed. Ended jobs are found too; None where there is none."""
        ...

    async def forget_jobs(self, job_ids: Sequence[str]) -> None:
        """Delete these jobs, where they have ended, for good. A crash may bring some back."""
        ...

    # -- ready queue

    async def claim_ready(
        self, instance: str, versions: Collection[Version], limit: int, lease_s: float
    ) -> list[Job]:
        """Take up to `limit` runnable jobs of these versions, each for `lease_s` seconds.

        Oldest first within a version, and one from each version in turn.

        Two claimers never get the same job. An entry was written for one revision and is dropped when
        that has passed. A job whose lease lapsed can be claimed again.
        """
        ...

    async def extend_leases(self, instance: str, job_ids: Sequence[str], lease_s: float) -> list[str]:
        """Keep these leases for `lease_s` from now; returns the ids that this instance still holds."""
        ...

    async def release_leases(self, instance: str) -> int:
        """Queue again all jobs that this instance has claimed; returns how many.

        Called at its start, since an earlier process may have been killed with claimed jobs, and at its end,
        so that no job has to wait for those leases.
        """
        ...

    async def stranded(self, known: Collection[Version], limit: int) -> list[Job]:
        """Runnable jobs of other versions than these, oldest first."""
        ...

    # -- tasks

    async def claim_tasks(
        self, worker: Worker, keys: Collection[QueueKey], limit: int, now: datetime
    ) -> TaskClaim:
        """Offer up to `limit` of the tasks that wait under these keys to the worker.

        The caller has made sure that the worker may do what waits there. A worker whose session was replaced
        is given nothing, and is not told that the queues are empty.

        Clients take turns: next is the one whose queue under any of these keys was served longest ago (a new
        queue counts as served when it began), and then all its queues under these keys count as served. It
        gives its best task: the lowest `enqueued_at - priority x AGEING_STEP_S`, then the order of arrival.
        Each task is offered (worker, session, `offered_at=now`) in the write that takes it from its queue.
        """
        ...

    async def queue_status(self) -> list[QueueStatus]:
        """What waits: a row for each client under each key, in that order. Empty queues are left out."""
        ...

    async def held_by(self, worker_id: str) -> list[Task]:
        """The tasks that are offered to or started by this worker."""
        ...

    async def holders(self) -> list[str]:
        """The ids of all workers that hold a task, registered or not."""
        ...

    # -- deadlines and messages

    async def due(self, now: datetime, limit: int) -> list[Due]:
        """The passed deadlines, earliest first. Never pops: the commit that acts moves the deadline.

        Deadlines follow from the records; no method sets them.
        """
        ...

    async def next_due(self) -> datetime | None:
        """The earliest deadline, passed or not."""
        ...

    async def messages(self, limit: int) -> list[JobMessage]:
        """The messages between jobs that no change has consumed yet, oldest first."""
        ...

    # -- workers

    async def register(self, worker: Worker, lease_s: float) -> Worker:
        """Store the worker under a new session, which the returned record carries. Hints (WORKER)."""
        ...

    async def heartbeat(self, beats: Sequence[Heartbeat]) -> list[bool]:
        """Renew these leases. False for a session that is not the worker's last one, and for an unknown worker."""
        ...

    async def update_worker(self, worker: Worker) -> Worker | None:
        """Write the record again. Returns it as it is stored now. Hints (WORKER).

        None, and nothing changes, when it names another session than the worker's last one, or another `record_version`: it was
        written in between. The caller reads again, and decides again. The same write sent again after a lost answer counts once.
        """
        ...

    async def workers(self, ids: Collection[str] | None = None, *, lapsed_only: bool = False) -> list[Worker]:
        """The registered workers, in the order of their ids; of those named only, where ids are given.

        With `lapsed_only` those whose lease is over. Never pops: `forget_worker` does.
        """
        ...

    async def forget_worker(self, worker_id: str, session: int, *, only_if_lapsed: bool = False) -> bool:
        """Remove the worker, unless it has a newer session or, if asked, its lease still runs. Hints (WORKER)."""
        ...


class SharedState(Protocol):
    """Small durable records, counters and hints: what all parts beside the engine need."""

    async def put_records(self, writes: Sequence[RecordWrite]) -> list[bool]:
        """Write or remove each, in order, each behind its own fence; durable when answered. Hints (RECORD).

        False: the fence did not hold, and nothing changed. Of two that remove the same revision one gets True,
        which is all that a one-time password needs. Removing what is not there is fine. A name that is not text, or a
        time that is no number, is a ValueError, and nothing at all is written.
        """
        ...

    async def records(
        self, collection: str, *, keys: Sequence[str] | None = None, after: str = "", limit: int = 100
    ) -> list[Record]:
        """The records of a collection whose keys come after `after`, in the order of their keys, as they were flushed.

        With `keys` those of them that exist, in the order asked, all of them.
        """
        ...

    async def due_records(self, collection: str, now: datetime, limit: int) -> list[Record]:
        """The records whose `due` has come, earliest first. Never pops: the write that acts moves or removes it."""
        ...

    async def take_tokens(self, bucket: str, n: int, limit: int, window_s: float) -> TokenGrant:
        """Take `n` tokens out of a bucket that holds `limit` and fills evenly within `window_s`.

        All or none; more than `limit` is never given. An unknown bucket is full. Not durable: a store that
        starts anew may have full buckets. A call that is sent again after a lost answer may take twice.
        """
        ...

    async def quota_used(self, counter: str) -> int:
        """How often the quota of this name was used; see `Change.quota`."""
        ...

    async def lead(self, name: str, instance: str, ttl_s: float) -> bool:
        """Become or stay the leader of a chore for `ttl_s`. False when another instance is.

        It saves work; correctness never rests on it.
        """
        ...

    async def now(self) -> datetime:
        """The time of day by the store's own clock: the one that all instances go by."""
        ...

    async def publish(self, hints: Sequence[Hint]) -> None:
        """Send hints to all subscribers, here and in other processes, and keep nothing."""
        ...

    def subscribe(self, callback: Callable[[Hint], None]) -> Callable[[], None]:
        """Call `callback` with hints until the returned function is called."""
        ...


class StorageBackend(JobStorage, SharedState, Protocol):
    """Both, with a lifecycle."""

    #: Other processes may work on the same store.
    shared: bool

    async def start(self) -> None:
        """Open, recover, and be ready. What was acknowledged before is there again."""
        ...

    async def stop(self) -> None:
        """Flush and close. Twice is fine, and so is before `start`."""
        ...

    async def failed(self) -> StorageFailed:
        """Return when a flush has failed for good. The process should stop then: all further calls fail."""
        ...


async def shared_secret(state: SharedState, name: str) -> bytes:
    """32 random bytes that all instances on this store share: made by the first call for `name`, then always the same."""
    while not (found := await state.records(SECRETS, keys=[name])):
        await state.put_records([RecordWrite(SECRETS, name, secrets.token_bytes(32), expected=0)])
    return found[0].value


async def find_record(state: SharedState, collection: str, key: str) -> Record | None:
    """One record, as it was flushed."""
    found = await state.records(collection, keys=[key])
    return found[0] if found else None


async def find_worker(storage: JobStorage, worker_id: str) -> Worker | None:
    """One registered worker, lapsed or not."""
    found = await storage.workers([worker_id])
    return found[0] if found else None
