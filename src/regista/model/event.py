"""Event: one line of history."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct, field
from msgspec.msgpack import Encoder
from msgspec.structs import replace

_encode = Encoder().encode


class EventType(StrEnum):
    """The types of events, roughly in the order in which a job meets them."""

    JOB_CREATED = "job_created"
    STATE_STARTED = "state_started"
    STATE_FINISHED = "state_finished"
    STATE_FAILED = "state_failed"
    TASK_DISPATCHED = "task_dispatched"
    TASK_STARTED = "task_started"
    TASK_FINISHED = "task_finished"
    TASK_FAILED = "task_failed"
    TASK_LOST = "task_lost"
    TASK_UNDELIVERED = "task_undelivered"
    TASK_TIMED_OUT = "task_timed_out"
    TASK_RETRIED = "task_retried"
    APPROVAL_REQUESTED = "approval_requested"
    APPROVAL_GIVEN = "approval_given"
    CHILD_STARTED = "child_started"
    CHILD_FINISHED = "child_finished"
    TIMER_STARTED = "timer_started"
    TIMER_FIRED = "timer_fired"
    CANCEL_REQUESTED = "cancel_requested"
    JOB_QUARANTINED = "job_quarantined"
    JOB_RELEASED = "job_released"
    JOB_MIGRATED = "job_migrated"
    JOB_FINISHED = "job_finished"


#: What ends an attempt, and how it has ended then.
ATTEMPT_OUTCOMES = {
    EventType.TASK_FINISHED: "finished",
    EventType.TASK_FAILED: "failed",
    EventType.TASK_LOST: "lost",
    EventType.TASK_UNDELIVERED: "undelivered",
    EventType.TASK_TIMED_OUT: "timed_out",
}
_ATTEMPT_STATES = {
    EventType.TASK_DISPATCHED: "queued",
    EventType.TASK_RETRIED: "queued",
    EventType.TASK_STARTED: "started",
    **ATTEMPT_OUTCOMES,
}


class Event(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What happened to a job. (job_id, seq) names it; `seq` counts from 1 without a gap.

    The store numbers events when it applies the commit that carries them, so a new one has neither.
    """

    type: EventType
    at: datetime
    job_id: str = ""
    seq: int = 0
    state: str | None = None
    previous_state: str | None = None
    next_state: str | None = None
    status: str | None = None
    task_id: str | None = None
    attempt: int | None = None
    worker_id: str | None = None
    duration_ms: float | None = None
    code: str | None = None
    message: str | None = None
    #: Further fields of this type of event.
    detail: dict[str, Any] = field(default_factory=dict)
    #: `state_history` as the handler found it; only at `state_started`.
    snapshot: dict[str, Any] | None = None
    #: Who caused it, if it was a caller: `client:NAME`, `operator:NAME`, `approval_link`.
    actor: str | None = None


def attempt_state_of(event: Event) -> str | None:
    """The state of the attempt that the event names, after it; None for an event of no attempt."""
    state = _ATTEMPT_STATES.get(event.type)
    return "cancelled" if state is not None and event.status == "cancelled" else state


class JobSummary(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The row of a job that lists and searches read."""

    job_id: str
    blueprint: str
    version: str
    client: str
    status: str
    state: str
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None = None
    parent_id: str | None = None
    error_code: str | None = None
    search_attributes: dict[str, Any] = field(default_factory=dict)


class OutboxEntry(Struct, frozen=True, omit_defaults=True, dict=True):
    """One commit's events on their way from the outbox to history."""

    #: Counts the entries of a store; the history cursor is the last one recorded.
    number: int
    job_id: str
    #: The seq of the first event; the others follow without a gap.
    first_seq: int
    events: tuple[Event, ...]
    summary: JobSummary | None = None

    def packed(self) -> bytes:
        """The events as msgpack. Encoded once: the store and the history write the same bytes."""
        kept = self.__dict__
        body: bytes | None = kept.get("body")
        if body is None:
            body = kept["body"] = _encode(self.events)
        return body

    def numbered(self) -> list[Event]:
        """The events with the job id and the sequence numbers that the store gave them."""
        return [
            replace(event, job_id=self.job_id, seq=self.first_seq + offset)
            for offset, event in enumerate(self.events)
        ]
