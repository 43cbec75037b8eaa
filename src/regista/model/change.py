"""Change: everything that one decision writes, as one atomic write."""

from enum import StrEnum
from typing import Any

from msgspec import Struct

from .event import Event
from .job import Job
from .record import Quota, RecordWrite
from .status import AttemptState
from .task import Task


class TaskWrite(Struct, frozen=True, gc=False):
    """A task to be written, with its fence.

    The write counts if the stored task has this `attempt` and one of these `states`. A new task has no fence
    (`attempt` 0).
    """

    task: Task
    attempt: int = 0
    states: tuple[AttemptState, ...] = ()
    #: The instance to notify, because it has a free slot for the task; empty: every instance.
    notify_instance: str = ""


class JobMessageKind(StrEnum):
    """What one job sends to another."""

    CHILD_ENDED = "child_ended"
    CANCEL = "cancel"


class JobMessage(Struct, frozen=True, omit_defaults=True, gc=False):
    """A durable message from one job to another. The commit that acts on it removes it."""

    id: str
    kind: JobMessageKind
    to_job: str
    from_job: str
    body: dict[str, Any] = {}


class ChildJob(Struct, frozen=True, gc=False):
    """A job that is created in its parent's write."""

    job: Job
    events: tuple[Event, ...]


class Change(Struct, frozen=True, kw_only=True, gc=False):
    """One atomic write. Applied whole or not at all.

    With `job`, the stored revision must be `expected` (None: the job must not exist yet). Without
    it only tasks change, each behind its own fence. Branches of a fan-out close this way, so that a
    hundred results do not compete for one record. `expected` is then the revision that the decision was
    based on (None: any), so that no decision from before a cancel is written after it.
    """

    job_id: str
    token: str
    job: Job | None = None
    expected: int | None = None
    tasks: tuple[TaskWrite, ...] = ()
    #: Removes all tasks that the job had. `tasks` with a fence are then only checked.
    drop_tasks: bool = False
    #: The number of branches that this change closes. The change that closes the last one makes the job ready.
    closes_branches: int = 0
    #: Set with a new fan-out.
    opens_branches: int | None = None
    #: Jobs that are created in this write.
    children: tuple[ChildJob, ...] = ()
    messages: tuple[JobMessage, ...] = ()
    #: The message that this change acts on; it must still be stored.
    consumes_message: str | None = None
    events: tuple[Event, ...] = ()
    #: Records that are written with it, without a fence of their own.
    records: tuple[RecordWrite, ...] = ()
    #: Counted when the job is created; when it is used up, nothing is written.
    quota: Quota | None = None
    #: Seconds for which the writer keeps its lease on the job; None releases the lease.
    keep_lease_s: float | None = None


class CommitStatus(StrEnum):
    """The outcome of a commit."""

    APPLIED = "applied"
    #: Applied by an earlier call whose answer was lost.
    REPEATED = "repeated"
    #: Another writer was first. Nothing was written.
    STALE = "stale"
    #: It could not be encoded. Nothing was written.
    UNSTORABLE = "unstorable"
    MISSING = "missing"
    EXISTS = "exists"
    #: The quota is used up. Nothing was written.
    OVER_QUOTA = "over_quota"


#: Both mean that the change is in the store.
_APPLIED, _REPEATED = CommitStatus.APPLIED, CommitStatus.REPEATED


class CommitOutcome(Struct, frozen=True, gc=False):
    """The store's answer to one change."""

    kind: CommitStatus
    #: The change closed the last branch: the job can be run at once.
    ready: bool = False
    #: Why it is UNSTORABLE.
    reason: str = ""
    #: Ids of tasks that were to be offered but wait in their lane: the session named was replaced, or its lease is over.
    not_offered: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """The change is in the store."""
        return self.kind is _APPLIED or self.kind is _REPEATED
