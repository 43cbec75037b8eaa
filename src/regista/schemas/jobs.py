"""Jobs as clients see them: what they may ask for, and what they get back. Both ends share these records."""

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

Text = Annotated[str, Meta(min_length=1, max_length=1000)]
Positive = Annotated[float, Meta(gt=0)]
#: Whether it may be told is seen when the job is made, and when it is told.
WebhookUrl = Annotated[
    str,
    Meta(
        pattern=r"^https?://[^\s/?#]+",
        max_length=2000,
        description="an http or https URL, like https://example.com/hook",
    ),
]
#: Sent to us where a person types it; longer ones belong into `data`.
Words = Annotated[str, Meta(max_length=10_000)]


class JobRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job that somebody wants."""

    blueprint: Text
    input: dict[str, Any] = field(default_factory=dict)
    #: The same key and body return the same job; the header `Idempotency-Key` says the same.
    idempotency_key: Text | None = None
    priority: float = 0.0
    webhook_url: WebhookUrl | None = None
    #: Seconds that a task may wait for a worker, and may take in all, where its dispatch names none.
    dispatch_timeout: Positive | None = None
    result_timeout: Positive | None = None
    search_attributes: dict[str, Any] = field(default_factory=dict)


class Cancel(Struct, frozen=True, forbid_unknown_fields=True):
    """A request to stop."""

    reason: Words = ""


class Decision(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a person decided."""

    decision: Text
    comment: Words = ""
    data: dict[str, Any] = field(default_factory=dict)


class Release(Struct, frozen=True, forbid_unknown_fields=True):
    """Let a quarantined job try again; `data` is merged into what it keeps first."""

    data: dict[str, Any] = field(default_factory=dict)


class FailRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """End a quarantined job as failed."""

    reason: Words = ""


class Fork(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new job like an old one, but for what is named here; members of `input` replace those of the old input."""

    input: dict[str, Any] = field(default_factory=dict)
    idempotency_key: Text | None = None
    priority: float | None = None
    search_attributes: dict[str, Any] = field(default_factory=dict)


class WaitForAny(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Wait until one of these jobs has ended."""

    ids: Annotated[list[str], Meta(min_length=1)]
    timeout: Annotated[float, Meta(ge=0)] = 30.0
    #: Seconds to wait for company after the first end: one answer with many is cheaper than many with one.
    linger: Annotated[float, Meta(ge=0, le=5)] = 0.0
    #: Without them `attempts` and `bill` stay empty, and no story has to be read: cheaper for thousands of jobs.
    attempts: bool = True


class ErrorView(Struct, frozen=True):
    """What went wrong."""

    code: str
    message: str = ""


class AttemptErrorView(ErrorView, frozen=True):
    """What went wrong in an attempt. `details` is there where its worker told more than words."""

    details: Any | UnsetType = UNSET


class WaitingFor(Struct, frozen=True):
    """Why the job does not go on right now."""

    #: worker, parallel, human, child, timer, retry, version, release or cancel.
    kind: str
    detail: dict[str, Any]
    since: datetime | None


class Attempt(Struct, frozen=True):
    """One try of a task. `task_id` is the id that the worker saw: it names this attempt, as `attempt_id` does."""

    task_id: str
    worker_id: str | None
    #: queued, offered, started; then finished, failed, lost, undelivered, timed_out or cancelled.
    state: str
    started_at: datetime | None
    error: AttemptErrorView | None
    attempt_id: str
    #: Which try of its task it is, from 1.
    attempt: int
    #: The skill that its task asks for; empty where the events at hand do not tell.
    type: str


class Bill(Struct, frozen=True):
    """What the job's tasks have used: seconds of workers, and what these cost."""

    seconds: float
    cost: float


class JobObject(Struct, frozen=True):
    """A job. `data` is what its handlers keep (`state_history`), `result` what it ended with."""

    id: str
    blueprint: str
    version: str
    status: str
    state: str
    input: dict[str, Any]
    data: dict[str, Any]
    result: Any
    error: ErrorView | None
    progress: float | None
    waiting_for: WaitingFor | None
    attempts: list[Attempt]
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    search_attributes: dict[str, Any]
    parent_id: str | None
    bill: Bill
    #: Whose it is; there where an operator looks at a job or lists jobs.
    client: str | UnsetType = UNSET
    #: Members that could not be told, since history is away; not there when nothing is missing.
    incomplete: list[str] | UnsetType = UNSET


class Progress(Struct, frozen=True, kw_only=True):
    """How far an attempt is, on a live stream only: it has no place in history and no id."""

    type: Literal["progress"] = "progress"
    at: datetime
    job_id: str
    #: As in the events of the task; `attempt_id` names the attempt.
    task_id: str
    attempt_id: str = ""
    progress: float | None
    message: str


class Waited(Struct, frozen=True):
    """The jobs that have ended, those that have not, and the ids that name no job of yours."""

    items: list[JobObject]
    pending: list[str]
    unknown: list[str]


class Accepted(Struct, frozen=True):
    """The answer of a blueprint's own endpoint, as the documents have it."""

    status: Literal["accepted"]
    job_id: str
