"""Delivery: a word about a job on its way to somebody's URL. Written with the very commit that it tells of."""

from datetime import datetime

import msgspec
from msgspec import Struct

from .item import Item, ItemWrite
from .job import Job

#: The shelf of what shall be sent; an item is due when it shall be tried.
WEBHOOK_SHELF = "webhooks"
#: The shelf of what was given up, until somebody sends it again or its time is over.
DEAD_SHELF = "webhooks_dead"
#: Seconds for which a dead letter is kept.
DEAD_TTL_S = 30 * 86_400.0


class Delivery(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What shall be told, to whom, and how the tries went."""

    #: Names the event, whatever number of times it is sent; the key of its item.
    id: str
    #: finished, failed, cancelled, quarantined or waiting_for_human.
    event: str
    at: datetime
    url: str
    #: The job as it was then, without what it was given and what it keeps.
    job: Job
    #: Members that were left out, since they were too large.
    omitted: tuple[str, ...] = ()
    tries: int = 0
    tried_at: datetime | None = None
    #: The last answer, where there was one, and what was wrong with it.
    status: int | None = None
    error: str = ""


#: What spoiled bytes raise, or those of a newer version.
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError)

encode_delivery = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Delivery).decode


def delivery_of(item: Item) -> Delivery:
    """The delivery that lies there."""
    return _decode(item.value)


def readable(item: Item) -> Delivery | None:
    """The delivery that lies there; None where nobody can read it."""
    try:
        return _decode(item.value)
    except UNREADABLE:
        return None


def delivery_write(delivery: Delivery, due: datetime, expected: int | None = None) -> ItemWrite:
    """The delivery as it shall lie among those to be sent."""
    return ItemWrite(WEBHOOK_SHELF, delivery.id, encode_delivery(delivery), due, expected)


def dead_write(delivery: Delivery) -> ItemWrite:
    """The delivery as it shall lie among those that were given up."""
    return ItemWrite(DEAD_SHELF, delivery.id, encode_delivery(delivery), ttl_s=DEAD_TTL_S)
