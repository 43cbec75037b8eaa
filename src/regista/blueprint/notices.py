"""Notices: what of a change is worth a word to the job's webhook. Pure; the word rides in the same write."""

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from ..model import Event, EventType, Job, JobStatus, RecordWrite
from ..model.delivery import WebhookDelivery, delivery_write

#: The status in which a change may leave the job → the event that must be part of the change.
_TELLING = {
    JobStatus.FINISHED: EventType.JOB_FINISHED,
    JobStatus.FAILED: EventType.JOB_FINISHED,
    JobStatus.CANCELLED: EventType.JOB_FINISHED,
    JobStatus.QUARANTINED: EventType.JOB_QUARANTINED,
    JobStatus.WAITING_FOR_HUMAN: EventType.APPROVAL_REQUESTED,
}
#: Bytes that a delivery may have. A larger one goes without the job's result; whoever wants it asks for the job.
MAX_BYTES = 256 * 1024


def notices(job: Job, events: Iterable[Event]) -> tuple[RecordWrite, ...]:
    """The word about what a change made of a job that has a webhook: one, or none.

    `job` is as it will be stored, with its new revision. A child says only what needs a person: its end is its
    parent's business.
    """
    telling = _TELLING.get(job.status)
    if telling is None or (job.parent_id is not None and job.status.terminal):
        return ()
    for event in events:
        if event.type is telling:
            return (_write(job),)
    return ()


def _write(job: Job) -> RecordWrite:
    delivery = WebhookDelivery(
        # Ids of one job sort in the order of its revisions.
        id=f"{job.id}-{job.revision:06d}",
        event=job.status.value,
        at=job.updated_at,
        url=job.webhook_url or "",
        job=replace(
            job,
            input={},
            data={},
            tracing_context={},
            finished_tasks=(),
            webhook_url=None,
            token="",
            body_hash="",
        ),
    )
    try:
        write = delivery_write(delivery, job.updated_at)
        if len(write.value or b"") <= MAX_BYTES:
            return write
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        pass  # no store can keep such a result, and ours will say so
    small = replace(delivery, job=_bare(delivery.job), omitted=("result",))
    return delivery_write(small, job.updated_at)


def _bare(job: Job) -> Job:
    error = job.error
    if error is not None and len(error.message) > 1000:
        error = replace(error, message=error.message[:1000] + "…")
    return replace(job, result=None, error=error, search_attributes={})
