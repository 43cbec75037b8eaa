"""Task: one piece of work for a worker. Attempt: one try of it."""

from datetime import datetime
from typing import Any

from msgspec import Struct, field

from ..clock import add_seconds
from ..trace_context import child_context
from .queue_key import QueueKey, match_options_text
from .status import AttemptState

#: A task that was lost so often runs alone on its worker.
ISOLATED_AFTER_LOSSES = 2
#: Members that every task is asked about: to find one through its class costs more than the question.
_QUEUED, _CLOSED = AttemptState.QUEUED, AttemptState.CLOSED


class RetryPolicy(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """How often a task that really failed is run, and how long to wait in between."""

    #: Runs in all, the first one included. `JOB_MAX_RETRIES=3` is `max_attempts=4`.
    max_attempts: int = 4
    #: Seconds before the second run; each further pause is `factor` times longer, up to `cap_s`.
    first_s: float = 1.0
    factor: float = 2.0
    cap_s: float = 60.0
    #: Share of a pause that is random, so that retries do not synchronise.
    jitter: float = 0.1
    #: Attempts that may be lost (dead worker, never delivered) before the task counts as failed.
    lost_budget: int = 10

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ValueError(f"max_attempts: expected at least 1, got {self.max_attempts}")
        if self.first_s < 0 or self.cap_s < 0 or self.factor < 1 or not 0 <= self.jitter <= 1:
            raise ValueError(f"expected first_s, cap_s >= 0, factor >= 1, jitter in 0..1; got {self}")


#: The default policy. Stored records omit it when it is this object.
DEFAULT_RETRY = RetryPolicy()


class TaskFailure(Struct, frozen=True, omit_defaults=True, gc=False):
    """A worker's error, as data."""

    code: str
    message: str = ""
    details: Any = None


class TaskResult(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A worker's result of one attempt. `task_id` is the attempt's id, as on the wire."""

    task_id: str
    job_id: str
    worker_id: str = ""
    status: str | None = None
    data: Any = None
    error: TaskFailure | None = None
    #: When the worker started, if it reports that.
    started_at: datetime | None = None
    #: Data of a failed attempt for the next one; the orchestrator takes it from the last progress report.
    checkpoint: Any = None

    @property
    def failed(self) -> bool:
        """The attempt failed; it may be retried."""
        return self.error is not None or self.status == "failure"

    @property
    def outcome(self) -> str:
        """The key into `transitions`: no status means `success`, unless there is an error."""
        return self.status or ("failure" if self.error else "success")

    def as_dict(self) -> dict[str, Any]:
        """The result as an aggregator gets it. Here `task_id` is the task's id, not the attempt's."""
        error = None
        if self.error is not None:
            error = {"code": self.error.code, "message": self.error.message}
            if self.error.details is not None:
                error["details"] = self.error.details
        return {
            "task_id": split_attempt_id(self.task_id)[0],
            "attempt_id": self.task_id,
            "job_id": self.job_id,
            "worker_id": self.worker_id,
            "status": self.outcome,
            "data": self.data,
            "error": error,
        }


class Task(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One piece of work with its current attempt. Earlier attempts are only in the history."""

    #: Stable over retries: `job id`_`visit`_`index`.
    id: str
    job_id: str
    type: str
    index: int = 0
    #: A branch of a fan-out: its end is counted and its result kept for the aggregator.
    branch: bool = False
    params: dict[str, Any] = field(default_factory=dict)
    #: Status of the result → next state of the job.
    transitions: dict[str, str] = field(default_factory=dict)
    queue: str = ""
    client: str = ""
    priority: float = 0.0
    strategy: str | None = None
    requirements: dict[str, Any] = field(default_factory=dict)
    max_cost: float | None = None
    retry: RetryPolicy = DEFAULT_RETRY
    tracing_context: dict[str, str] = field(default_factory=dict)

    #: Both count from the commit that dispatched the task; `result_by` spans retries.
    dispatch_by: datetime | None = None
    result_by: datetime | None = None
    #: Limits one attempt, from the time it was offered.
    attempt_timeout_s: float | None = None
    #: Limits the time between two progress reports of a started attempt.
    heartbeat_timeout_s: float | None = None

    attempt: int = 1
    state: AttemptState = AttemptState.QUEUED
    worker_id: str | None = None
    session: int = 0
    #: Cost per second of the worker that holds it.
    price: float = 0.0
    queued_at: datetime | None = None
    #: A retry is not queued before this time.
    not_before: datetime | None = None
    offered_at: datetime | None = None
    started_at: datetime | None = None
    #: The last progress of this attempt; only kept with `heartbeat_timeout_s`.
    seen_at: datetime | None = None
    failed_runs: int = 0
    lost_runs: int = 0
    #: Attempts whose result was accepted: sent again, it is accepted again (FENCES 6).
    accepted_attempts: tuple[int, ...] = ()
    cancel_requested: bool = False
    progress: float | None = None
    progress_message: str = ""
    #: The last checkpoint of any attempt, given to the next one.
    checkpoint: Any = None
    #: The result of a closed branch.
    result: TaskResult | None = None

    @property
    def attempt_id(self) -> str:
        """The id of the current attempt. On the wire of workers it is `task_id`."""
        return f"{self.id}-{self.attempt}"

    @property
    def trace(self) -> dict[str, str]:
        """The trace context for the worker: the span of this attempt."""
        return (
            child_context(self.tracing_context, self.attempt_id)
            if self.tracing_context
            else self.tracing_context
        )

    @property
    def queue_key(self) -> QueueKey:
        """Where it waits."""
        options = match_options_text(self.requirements, self.max_cost, self.strategy, self.isolated)
        return QueueKey(self.queue or self.type, self.type, options)

    @property
    def isolated(self) -> bool:
        """It runs alone on its worker: it was lost so often that it may be what ends its workers."""
        return self.lost_runs >= ISOLATED_AFTER_LOSSES

    @property
    def waiting(self) -> bool:
        """It can be offered to a worker now."""
        return self.state is AttemptState.QUEUED and self.not_before is None

    @property
    def deadline(self) -> datetime | None:
        """When a timer of this task fires next, if it has one."""
        state, nearest = self.state, self.result_by
        if state is AttemptState.CLOSED:
            return None
        if state is AttemptState.QUEUED:
            if self.not_before is not None:
                nearest = _earlier(nearest, self.not_before)
            return nearest if self.dispatch_by is None else _earlier(nearest, self.dispatch_by)
        if self.attempt_timeout_s is not None and self.offered_at is not None:
            nearest = _earlier(nearest, add_seconds(self.offered_at, self.attempt_timeout_s))
        if self.heartbeat_timeout_s is not None and self.seen_at is not None:
            nearest = _earlier(nearest, add_seconds(self.seen_at, self.heartbeat_timeout_s))
        return nearest


def _earlier(one: datetime | None, other: datetime | None) -> datetime | None:
    if one is None or other is None:
        return one or other
    return one if one < other else other


def job_id_of_task(task_id: str) -> str:
    """The id of the job that a task id begins with."""
    return task_id.rsplit("_", 2)[0]


def task_id_of_attempt(attempt_id: str) -> str:
    """The stable task id in an attempt id, unchecked; `split_attempt_id` checks the format."""
    return attempt_id.rpartition("-")[0]


def split_attempt_id(attempt_id: str) -> tuple[str, int]:
    """The stable task id and the attempt number of an attempt id; number 0 if the format is wrong."""
    task_id, _, number = attempt_id.rpartition("-")
    # Any text may come in: `isdigit` alone accepts ², and `int` refuses thousands of digits.
    valid = task_id and len(number) < 10 and number.isascii() and number.isdigit()
    return (task_id, int(number)) if valid else (attempt_id, 0)
