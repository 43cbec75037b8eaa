"""WebhookDelivery: a notification about a job. It is stored by the commit that it reports."""

from datetime import datetime

import msgspec
from msgspec import Struct

from .job import Job
from .record import Record, RecordWrite

#: The collection of pending deliveries; a record is due at its next try.
WEBHOOK_COLLECTION = "webhooks"
#: The collection of failed deliveries, kept until they are sent again or expire.
DEAD_COLLECTION = "webhooks_dead"
#: Seconds for which a failed delivery is kept.
DEAD_TTL_S = 30 * 86_400.0


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
