"""Task: one piece of work for a worker. Attempt: one try of it."""

from datetime import datetime
from functools import lru_cache
from typing import Any

from msgspec import Struct, field

from ..clock import later
from ..trace import under
from .lane import Lane, needs_text
from .status import AttemptState

#: `Lane(...)`, remembered: every task asks for its lane several times, and there are few of them.
_lane_of = lru_cache(maxsize=4096)(Lane)
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
    #: Share of a pause that is left to chance, so that a crowd does not come back at once.
    jitter: float = 0.1
    #: Attempts that may be lost (dead worker, never delivered) before the task counts as failed.
    lost_budget: int = 10

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ValueError(f"max_attempts: expected at least 1, got {self.max_attempts}")
        if self.first_s < 0 or self.cap_s < 0 or self.factor < 1 or not 0 <= self.jitter <= 1:
            raise ValueError(f"expected first_s, cap_s >= 0, factor >= 1, jitter in 0..1; got {self}")


#: The policy of a task that names none. It is left out of the stored record as this very object, not by its value.
DEFAULT_RETRY = RetryPolicy()


class TaskFailure(Struct, frozen=True, omit_defaults=True, gc=False):
    """A worker's error, as data."""

    code: str
    message: str = ""
    details: Any = None


class TaskResult(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a worker says about one attempt. `task_id` names the attempt, as on the wire."""

    task_id: str
    job_id: str
    worker_id: str = ""
    status: str | None = None
    data: Any = None
    error: TaskFailure | None = None
    #: When the worker began, where it says so.
    started_at: datetime | None = None
    #: What a failed attempt leaves for the next one; the orchestrator adds it, from its last progress.
    checkpoint: Any = None

    @property
    def failed(self) -> bool:
        """It may be tried again."""
        return self.error is not None or self.status == "failure"

    @property
    def outcome(self) -> str:
        """The key into `transitions`: no status means `success`, unless there is an error."""
        return self.status or ("failure" if self.error else "success")

    def as_dict(self) -> dict[str, Any]:
        """The whole result, as an aggregator sees it: `task_id` is the task's, as everywhere but on the worker's wire."""
        error = None
        if self.error is not None:
            error = {"code": self.error.code, "message": self.error.message}
            if self.error.details is not None:
                error["details"] = self.error.details
        return {
            "task_id": task_of(self.task_id)[0],
            "attempt_id": self.task_id,
            "job_id": self.job_id,
            "worker_id": self.worker_id,
            "status": self.outcome,
            "data": self.data,
            "error": error,
        }


class Task(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One piece of work, with the attempt that is under way. Earlier attempts are history."""

    #: Stable over retries: `job id`_`visit`_`index`.
    id: str
    job_id: str
    type: str
    index: int = 0
    #: A branch of a fan-out: its end is counted, and its result is kept for the aggregator.
    branch: bool = False
    params: dict[str, Any] = field(default_factory=dict)
    #: The status of the result → the state where the job goes on.
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
    #: Bounds one attempt, from the moment it was offered.
    attempt_timeout_s: float | None = None
    #: Bounds the silence of a started attempt between two reports of progress.
    heartbeat_timeout_s: float | None = None

    attempt: int = 1
    state: AttemptState = AttemptState.QUEUED
    worker_id: str | None = None
    session: int = 0
    #: What the worker that holds it costs, per second.
    price: float = 0.0
    queued_at: datetime | None = None
    #: A retry waits until then.
    not_before: datetime | None = None
    offered_at: datetime | None = None
    started_at: datetime | None = None
    #: The last sign of life of this attempt; only kept where `heartbeat_timeout_s` asks for it.
    seen_at: datetime | None = None
    failed_runs: int = 0
    lost_runs: int = 0
    #: Attempts whose worker was heard: a result of theirs that comes again is fine (FENCES 6).
    heard: tuple[int, ...] = ()
    cancel_requested: bool = False
    progress: float | None = None
    progress_message: str = ""
    #: The last checkpoint of any attempt, handed to the next one.
    checkpoint: Any = None
    #: How a closed branch ended.
    result: TaskResult | None = None

    @property
    def attempt_id(self) -> str:
        """The id of the current attempt: what a worker sees as `task_id`."""
        number = self.attempt
        # Most tasks have one attempt, and to make a text of a number costs more than all the rest.
        return f"{self.id}-1" if number == 1 else f"{self.id}-{number}"

    @property
    def trace(self) -> dict[str, str]:
        """The trace context that the worker goes on from: the span of this attempt."""
        return under(self.tracing_context, self.attempt_id) if self.tracing_context else self.tracing_context

    @property
    def lane(self) -> Lane:
        """Where it waits."""
        task_type, needs = self.type, ""
        isolated = self.lost_runs >= ISOLATED_AFTER_LOSSES
        if self.requirements or self.max_cost is not None or self.strategy is not None or isolated:
            needs = needs_text(self.requirements, self.max_cost, self.strategy, isolated)
        return _lane_of(self.queue or task_type, task_type, needs)

    @property
    def isolated(self) -> bool:
        """It runs alone on its worker: it was lost so often that it may be what ends its workers."""
        return self.lost_runs >= ISOLATED_AFTER_LOSSES

    @property
    def waiting(self) -> bool:
        """It may be handed to a worker now."""
        return self.state is _QUEUED and self.not_before is None

    @property
    def deadline(self) -> datetime | None:
        """The next instant at which somebody must look at this task, if there is one."""
        state, nearest = self.state, self.result_by
        if state is _CLOSED:
            return None
        if state is _QUEUED:
            if self.not_before is not None:
                nearest = _earlier(nearest, self.not_before)
            return nearest if self.dispatch_by is None else _earlier(nearest, self.dispatch_by)
        if self.attempt_timeout_s is not None and self.offered_at is not None:
            nearest = _earlier(nearest, later(self.offered_at, self.attempt_timeout_s))
        if self.heartbeat_timeout_s is not None and self.seen_at is not None:
            nearest = _earlier(nearest, later(self.seen_at, self.heartbeat_timeout_s))
        return nearest


def _earlier(one: datetime | None, other: datetime | None) -> datetime | None:
    if one is None or other is None:
        return one or other
    return one if one < other else other


def job_of(task_id: str) -> str:
    """The id of the job that a task id begins with."""
    return task_id.rsplit("_", 2)[0]


def task_id_of(attempt_id: str) -> str:
    """The stable task id that an attempt id begins with. Only for finding it: `task_of` also says which attempt."""
    return attempt_id.rpartition("-")[0]


def task_of(attempt_id: str) -> tuple[str, int]:
    """The stable task id and the attempt number that an attempt id names."""
    task_id, _, number = attempt_id.rpartition("-")
    # Any text may come in here: `isdigit` alone takes ² for a digit, and `int` refuses thousands of them.
    sane = task_id and len(number) < 10 and number.isascii() and number.isdigit()
    return (task_id, int(number)) if sane else (attempt_id, 0)
