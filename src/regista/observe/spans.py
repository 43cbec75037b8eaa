"""Spans: tells of jobs and attempts as spans once they are over, from the commit that ended them.

A job may outlive the process that began it, and a span object cannot. So the span of a job or an attempt has an id
that follows from its name (`trace.under`): children refer to it from the first moment, and whoever writes the end
tells of it as a whole. Nothing is kept meanwhile.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from ..model import Change, CommitOutcome, CommitStatus, Event, EventType, Job, JobStatus, Task
from ..model.event import ATTEMPT_OUTCOMES
from ..trace_context import SpanReference, span_id_of, span_in

_WELL = frozenset({JobStatus.FINISHED.value, JobStatus.CANCELLED.value})


class SpanRecord(Struct, frozen=True, kw_only=True):
    """A span that is over."""

    name: str
    place: SpanReference
    #: The span above it.
    parent_id: str
    start: datetime
    end: datetime
    attributes: dict[str, str | int | float | bool]
    kind: str = "internal"
    #: Why it failed; None when it did not.
    error: str | None = None


Emit = Callable[[SpanRecord], None]


class SpanObserver:
    """Makes spans of what is committed, for those jobs that somebody traces."""

    def __init__(self, emit: Emit) -> None:
        self.emit = emit

    def committed(self, changes: Sequence[Change], outcomes: Sequence[CommitOutcome], now: datetime) -> None:
        """These are in the store, or were refused."""
        for change, outcome in zip(changes, outcomes, strict=True):
            if outcome.kind is CommitStatus.APPLIED:
                self._tell(change, now)

    def _tell(self, change: Change, now: datetime) -> None:
        for event in change.events:
            if event.type in ATTEMPT_OUTCOMES:
                task = next((write.task for write in change.tasks if write.task.id == event.task_id), None)
                record = None if task is None else attempt_span(task, event, now)
            elif event.type is EventType.JOB_FINISHED and change.job is not None:
                record = job_span(change.job, event)
            else:
                continue
            if record is not None:
                self.emit(record)


def job_span(job: Job, event: Event) -> SpanRecord | None:
    """The whole of a job, below whatever asked for it; None when nobody traces it."""
    above = span_in(job.tracing_context)
    if above is None or not above.sampled:
        return None
    status = str(event.status or "")
    told: dict[str, str | int | float | bool] = {
        "regista.job_id": job.id,
        "regista.blueprint": job.blueprint,
        "regista.client": job.client,
        "regista.status": status,
        "regista.state": job.state,
    }
    if job.parent_id is not None:
        told["regista.parent_id"] = job.parent_id
    return SpanRecord(
        name=f"job {job.blueprint}",
        place=above._replace(span_id=span_id_of(job.id)),
        parent_id=above.span_id,
        start=job.created_at,
        end=event.at,
        attributes=told,
        error=None if status in _WELL else f"{event.code or status}: {event.message or ''}".rstrip(": "),
    )


def attempt_span(task: Task, event: Event, now: datetime) -> SpanRecord | None:
    """One attempt, from its place in line to its end; None when nobody traces it."""
    above = span_in(task.tracing_context)
    if above is None or not above.sampled:
        return None
    attempt_id = f"{task.id}-{event.attempt}"
    ran_s = (event.duration_ms or 0.0) / 1000
    began = event.at - timedelta(seconds=ran_s)
    same = event.attempt == task.attempt and task.queued_at is not None  # a retry's task is the next attempt
    queued = task.queued_at if same and task.queued_at is not None else began
    well = event.type is EventType.TASK_FINISHED
    return SpanRecord(
        name=f"task {task.type}",
        place=above._replace(span_id=span_id_of(attempt_id)),
        parent_id=span_id_of(task.job_id),
        start=min(queued, event.at),
        end=event.at,
        kind="producer",
        attributes={
            "regista.job_id": task.job_id,
            "regista.task_id": task.id,
            "regista.attempt_id": attempt_id,
            "regista.task": task.type,
            "regista.queue": task.queue or task.type,
            "regista.worker_id": event.worker_id or "",
            "regista.attempt": event.attempt or 0,
            "regista.outcome": event.status or event.type.value,
            "regista.schedule_to_start_s": max(0.0, (began - queued).total_seconds()),
        },
        error=None if well else f"{event.code or event.type.value}: {event.message or ''}".rstrip(": "),
    )
