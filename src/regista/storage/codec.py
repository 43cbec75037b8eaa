"""Records to bytes and back. A parked record is the very bytes that are on disk."""

import logging
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec

from ..clock import EPOCH
from ..model import Job, JobMessage, OutboxEntry, Task

log = logging.getLogger("regista.storage")

T = TypeVar("T")

#: What encoding a record may raise.
UNENCODABLE = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)

_encoder = msgspec.msgpack.Encoder()
encode = _encoder.encode
decode_job = msgspec.msgpack.Decoder(Job).decode
decode_task = msgspec.msgpack.Decoder(Task).decode
decode_message = msgspec.msgpack.Decoder(JobMessage).decode
decode_entry = msgspec.msgpack.Decoder(OutboxEntry).decode


_MICROSECOND = timedelta(microseconds=1)
#: The end of the calendar, in microseconds: nothing is due later.
_END = (datetime.max.replace(tzinfo=EPOCH.tzinfo) - EPOCH) // _MICROSECOND


def micros(moment: datetime) -> int:
    """Microseconds since 1970, exactly."""
    return (moment - EPOCH) // _MICROSECOND


def moment_of(micros: float) -> datetime:
    """The instant that so many microseconds mean. Exact until the year 2255; after that within some microseconds."""
    return EPOCH + timedelta(microseconds=min(int(micros), _END))


def readable(decode: Callable[[Any], T], rows: Iterable[Any]) -> list[T]:
    """The records that can be decoded. An unreadable one is logged and skipped: it must not stop the others."""
    records = []
    for row in rows:
        try:
            records.append(decode(row))
        except (msgspec.MsgspecError, TypeError) as error:  # damaged, of another version, or gone
            log.error("a record cannot be read and is left alone: %s", error, extra={"action": "unreadable"})
    return records
