"""Webhook deliveries: the record of one, and which change of a job causes one. Written with that change."""

from collections.abc import Iterable
from datetime import datetime

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from .event import Event, EventType
from .job import Job
from .record import Record, RecordWrite
from .status import JobStatus

#: The collection of pending deliveries; a record is due at its next try.
WEBHOOK_COLLECTION = "webhooks"
#: The collection of failed deliveries, kept until they are sent again or expire.
DEAD_COLLECTION = "webhooks_dead"
#: Seconds for which a failed delivery is kept.
DEAD_TTL_S = 30 * 86_400.0
#: Status that a change leaves the job in → the event that must be part of the change.
_EVENTS = {
    JobStatus.FINISHED: EventType.JOB_FINISHED,
    JobStatus.FAILED: EventType.JOB_FINISHED,
    JobStatus.CANCELLED: EventType.JOB_FINISHED,
    JobStatus.QUARANTINED: EventType.JOB_QUARANTINED,
    JobStatus.WAITING_FOR_HUMAN: EventType.APPROVAL_REQUESTED,
}
#: The largest delivery in bytes. A larger one is sent without the job's result, which the API has.
MAX_BYTES = 256 * 1024


class WebhookDelivery(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A notification, its URL, and the result of the tries so far."""

    #: The same for every try; the key of its record.
    id: str
    #: finished, failed, cancelled, quarantined or waiting_for_human.
    event: str
    at: datetime
    url: str
    #: The job at that time, without its input and data.
    job: Job
    #: Fields that were left out because they were too large.
    omitted: tuple[str, ...] = ()
    tries: int = 0
    tried_at: datetime | None = None
    #: The last HTTP status, if there was a response, and the last error.
    status: int | None = None
    error: str = ""


#: Errors raised by damaged bytes and by bytes of a newer version.
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError)

encode_delivery = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(WebhookDelivery).decode


def delivery_of(record: Record) -> WebhookDelivery:
    """The delivery in this record. Raises one of UNREADABLE."""
    return _decode(record.value)


def readable_delivery(record: Record) -> WebhookDelivery | None:
    """The delivery in this record; None if it cannot be decoded."""
    try:
        return _decode(record.value)
    except UNREADABLE:
        return None


def delivery_write(delivery: WebhookDelivery, due: datetime, expected: int | None = None) -> RecordWrite:
    """Writes the delivery to the pending ones."""
    return RecordWrite(WEBHOOK_COLLECTION, delivery.id, encode_delivery(delivery), due, expected)


def dead_write(delivery: WebhookDelivery) -> RecordWrite:
    """Writes the delivery to the failed ones."""
    return RecordWrite(DEAD_COLLECTION, delivery.id, encode_delivery(delivery), ttl_s=DEAD_TTL_S)


def webhook_records(job: Job, events: Iterable[Event]) -> tuple[RecordWrite, ...]:
    """The webhook delivery that a change of this job causes: one, or none.

    `job` is as it will be stored, with its new revision. A child job causes one only where it needs a person; its
    end concerns its parent.
    """
    expected = _EVENTS.get(job.status)
    if expected is None or (job.parent_id is not None and job.status.terminal):
        return ()
    for event in events:
        if event.type is expected:
            return (_delivery(job),)
    return ()


def _delivery(job: Job) -> RecordWrite:
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
            approvals=(),
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
    small = replace(delivery, job=_without_result(delivery.job), omitted=("result",))
    return delivery_write(small, job.updated_at)


def _without_result(job: Job) -> Job:
    error = job.error
    if error is not None and len(error.message) > 1000:
        error = replace(error, message=error.message[:1000] + "…")
    return replace(job, result=None, error=error, search_attributes={})
