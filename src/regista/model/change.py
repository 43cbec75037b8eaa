"""Change: everything that one decision writes, so that there is no second write to forget."""

from enum import StrEnum
from typing import Any

from msgspec import Struct

from .event import Event
from .item import ItemWrite, Quota
from .job import Job
from .status import AttemptState
from .task import Task


class TaskWrite(Struct, frozen=True, gc=False):
    """A task as it shall be, and the fence that guards it.

    `attempt` and `states` are what the stored task must show for the write to count; a new task
    has no fence (`attempt` 0).
    """

    task: Task
    attempt: int = 0
    states: tuple[AttemptState, ...] = ()
    #: The instance that shall take the task from its lane; empty: whoever can.
    wakes: str = ""


class MessageKind(StrEnum):
    """What one job may tell another."""

    CHILD_ENDED = "child_ended"
    CANCEL = "cancel"


class Message(Struct, frozen=True, omit_defaults=True, gc=False):
    """A durable word from one job to another. It is gone with the commit that acted on it."""

    id: str
    kind: MessageKind
    to_job: str
    from_job: str
    body: dict[str, Any] = {}


class Birth(Struct, frozen=True, gc=False):
    """A job that is born in another job's write."""

    job: Job
    events: tuple[Event, ...]


class Change(Struct, frozen=True, kw_only=True, gc=False):
    """One atomic write. Applied whole or not at all.

    With `job`, the stored revision must be `expected` (None: the job must not exist yet). Without
    it only tasks change, each behind its own fence; a fan-out's branches close this way, so that a
    hundred results do not race for one record. `expected` is then the revision that they were judged
    by (None: any), so that nothing decided before a cancel is written after it.
    """

    job_id: str
    token: str
    job: Job | None = None
    expected: int | None = None
    tasks: tuple[TaskWrite, ...] = ()
    #: The tasks that the job had are over: forget them. `tasks` with a fence are then only checked.
    drop_tasks: bool = False
    #: The number of branches that this change closes; whoever closes the last makes the job ready.
    closes_branches: int = 0
    #: Set with a new fan-out.
    opens_branches: int | None = None
    #: Jobs that are born in this write.
    children: tuple[Birth, ...] = ()
    messages: tuple[Message, ...] = ()
    #: The message that this change acts on; it must still be there.
    consumes: str | None = None
    events: tuple[Event, ...] = ()
    #: Items that are written with it, without a fence of their own.
    items: tuple[ItemWrite, ...] = ()
    #: Counted with a creation; when it is used up nothing is written.
    quota: Quota | None = None
    #: Seconds for which the writer goes on working on the job; None lets go of it.
    hold_s: float | None = None


class OutcomeKind(StrEnum):
    """How a commit went."""

    APPLIED = "applied"
    #: It had been applied before; only the answer was lost.
    REPEATED = "repeated"
    #: Somebody else was first. Nothing was written.
    STALE = "stale"
    #: It could not be encoded. Nothing was written.
    UNSTORABLE = "unstorable"
    MISSING = "missing"
    EXISTS = "exists"
    #: The quota is used up. Nothing was written.
    OVER_QUOTA = "over_quota"


#: Both mean that the change is in the store.
_APPLIED, _REPEATED = OutcomeKind.APPLIED, OutcomeKind.REPEATED


class Outcome(Struct, frozen=True, gc=False):
    """The store's answer to one change."""

    kind: OutcomeKind
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
