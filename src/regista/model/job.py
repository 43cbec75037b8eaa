"""Job: one run of a blueprint, and what it may wait for."""

from datetime import datetime
from typing import Any

from msgspec import Struct, field

from ..trace_context import child_context
from .status import JobStatus


class Fault(Struct, frozen=True, omit_defaults=True, gc=False):
    """Why a job failed or was quarantined."""

    code: str
    message: str = ""


class AwaitTask(Struct, frozen=True, tag="task", omit_defaults=True, gc=False):
    """One task; its status is the key into the task's `transitions`."""

    task_id: str
    #: Where an unknown status leads; None ends the job as failed.
    unhandled: str | None = None


class AwaitBranches(Struct, frozen=True, tag="branches", omit_defaults=True, gc=False):
    """All tasks of a fan-out; then the aggregator of that state runs once."""

    aggregator: str
    total: int
    #: Set when all are over and no instance has this version of the blueprint or a newer one with that aggregator.
    missing: str = ""


class AwaitHuman(Struct, frozen=True, tag="human", omit_defaults=True, gc=False):
    """A person's decision; it is the key into `transitions`."""

    message: str
    transitions: dict[str, str]
    integration: str | None = None


class AwaitChild(Struct, frozen=True, tag="child", omit_defaults=True, gc=False):
    """The end of a child job; its end state, else its outcome, is the key into `transitions`."""

    child_id: str
    blueprint: str
    transitions: dict[str, str]
    unhandled: str | None = None


class AwaitTimer(Struct, frozen=True, tag="timer", omit_defaults=True, gc=False):
    """A point in time."""

    until: datetime
    then: str


class AwaitRetry(Struct, frozen=True, tag="retry", omit_defaults=True, gc=False):
    """The pause before a handler that raised is run again."""

    until: datetime
    failures: int


class AwaitVersion(Struct, frozen=True, tag="version", omit_defaults=True, gc=False):
    """An instance that loads a blueprint version with which the job can continue."""

    version: str
    reason: str = "blueprint_version_missing"


Wait = AwaitTask | AwaitBranches | AwaitHuman | AwaitChild | AwaitTimer | AwaitRetry | AwaitVersion


class Cancellation(Struct, frozen=True, omit_defaults=True, gc=False):
    """A request to cancel. It is never withdrawn."""

    at: datetime
    #: Without a worker's acknowledgement by then, the job ends as unconfirmed.
    deadline: datetime
    reason: str = ""


class Approval(Struct, frozen=True, omit_defaults=True, gc=False):
    """A person's decision, remembered so that the same one is accepted again."""

    visit: int
    decision: str
    #: The state that asked.
    state: str = ""


#: How many decisions a job remembers.
APPROVALS_KEPT = 16


class FinishedTasks(Struct, frozen=True, omit_defaults=True, gc=False):
    """The finished tasks of one visit: enough to recognise a result that is sent again."""

    visit: int
    size: int
    #: index → attempts whose result was accepted, where that is not just the first attempt.
    odd: dict[int, tuple[int, ...]] = field(default_factory=dict)


#: How many of these a job keeps. A worker repeats a result within seconds, not many visits later.
FINISHED_TASKS_KEPT = 16


class Job(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One run of a blueprint. Immutable: a change is a new record with the next revision."""

    id: str
    blueprint: str
    #: The version (a hash of the graph) that this job is pinned to.
    version: str
    status: JobStatus = JobStatus.PENDING
    state: str
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None = None
    client: str = ""

    #: Counts the commits of this record; the fence against two deciders.
    revision: int = 0
    #: The commit token of the last writer. It distinguishes a lost answer from a lost race.
    token: str = ""
    #: Counts the entries into states, to distinguish what belongs to one entry.
    visit: int = 0
    entered_at: datetime | None = None

    input: dict[str, Any] = field(default_factory=dict)
    #: `context.state_history`.
    data: dict[str, Any] = field(default_factory=dict)
    result: Any = None
    error: Fault | None = None
    search_attributes: dict[str, Any] = field(default_factory=dict)
    tracing_context: dict[str, str] = field(default_factory=dict)

    wait: Wait | None = None
    waiting_since: datetime | None = None
    handler_failures: int = 0
    cancel: Cancellation | None = None
    #: A cancelled job whose worker never confirmed.
    unconfirmed: bool = False
    #: The last decisions of people, the newest at the end.
    approvals: tuple[Approval, ...] = ()
    finished_tasks: tuple[FinishedTasks, ...] = ()

    priority: float = 0.0
    dispatch_timeout_s: float | None = None
    result_timeout_s: float | None = None
    webhook_url: str | None = None
    parent_id: str | None = None
    depth: int = 0
    #: Set where an idempotency key was: the hash of the body that came with it.
    body_hash: str = ""

    @property
    def deadline(self) -> datetime | None:
        """When a timer of this job fires next, if it has one."""
        if self.status is JobStatus.CANCELLING:
            return self.cancel.deadline if self.cancel else None
        wait = self.wait
        return wait.until if type(wait) is AwaitTimer or type(wait) is AwaitRetry else None

    @property
    def ids(self) -> dict[str, str]:
        """The fields of log lines about this job."""
        return {"job_id": self.id, "client": self.client}

    @property
    def trace(self) -> dict[str, str]:
        """The trace context of this job: its own span, a child of the submitter's."""
        return child_context(self.tracing_context, self.id) if self.tracing_context else self.tracing_context

    def runnable(self, open_branches: int) -> bool:
        """A handler can run for it now: it belongs in the ready queue."""
        status, wait = self.status, self.wait
        if status in (JobStatus.RUNNING, JobStatus.PENDING):
            return wait is None or type(wait) is AwaitVersion
        # A cancelled fan-out needs one more turn too, once its last branch is over.
        return open_branches == 0 and type(wait) is AwaitBranches and not status.settled


def was_accepted(job: Job, task_id: str, attempt: int) -> bool:
    """A result of this attempt of a finished task was accepted before."""
    prefix, _, index = task_id.rpartition("_")
    _, _, visit = prefix.rpartition("_")
    if not (index.isdigit() and visit.isdigit()):
        return False
    for finished in job.finished_tasks:
        if finished.visit == int(visit) and int(index) < finished.size:
            return attempt in finished.odd.get(int(index), (1,))
    return False
