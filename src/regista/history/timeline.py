"""Timeline: a job's life as spans of time. A span without an end still goes on. `projection` makes them."""

from datetime import datetime
from typing import Any

from msgspec import Struct, field


class Wait(Struct, frozen=True, kw_only=True):
    """A stretch in which nothing could be done but wait."""

    #: worker, retry, human, child, timer, release or cancel.
    reason: str
    began_at: datetime
    ended_at: datetime | None = None
    #: Who or what it was: the question, the child, the seconds.
    detail: dict[str, Any] = field(default_factory=dict)


class AttemptSpan(Struct, frozen=True, kw_only=True):
    """One try of a task, from its place in the queue to its end."""

    attempt: int
    #: queued, started; then finished, failed, lost, undelivered, timed_out or cancelled.
    outcome: str
    queued_at: datetime
    #: When its worker began; None while there is no evidence of that.
    started_at: datetime | None = None
    ended_at: datetime | None = None
    worker_id: str | None = None
    code: str | None = None
    message: str | None = None


class TaskSpan(Struct, frozen=True, kw_only=True):
    """One piece of work, with its attempts."""

    task_id: str
    type: str
    queue: str
    began_at: datetime
    #: That of its last attempt.
    outcome: str
    ended_at: datetime | None = None
    attempts: list[AttemptSpan] = field(default_factory=list)
    #: For a worker, and for another try.
    waits: list[Wait] = field(default_factory=list)


class StateSpan(Struct, frozen=True, kw_only=True):
    """One visit to a state."""

    state: str
    began_at: datetime
    ended_at: datetime | None = None
    next_state: str | None = None
    tasks: list[TaskSpan] = field(default_factory=list)
    #: For a person, a child, a timer, another try of the handler, a release, or the end of a cancellation.
    waits: list[Wait] = field(default_factory=list)
    #: How often its handler raised.
    failures: int = 0


class Timeline(Struct, frozen=True, kw_only=True):
    """All of it. `at` is when it was looked at: what is open goes on until then at least."""

    job_id: str
    blueprint: str
    status: str
    began_at: datetime
    at: datetime
    ended_at: datetime | None = None
    states: list[StateSpan] = field(default_factory=list)
    #: There was more than could be told; the end is missing.
    truncated: bool = False
