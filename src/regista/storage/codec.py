"""Records to bytes and back. A parked record is the very bytes that are on disk."""

from datetime import datetime, timedelta

import msgspec

from ..clock import EPOCH
from ..model import Entry, Job, Message, Task

#: What encoding a record may raise.
UNENCODABLE = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)

_encoder = msgspec.msgpack.Encoder()
encode = _encoder.encode
decode_job = msgspec.msgpack.Decoder(Job).decode
decode_task = msgspec.msgpack.Decoder(Task).decode
decode_message = msgspec.msgpack.Decoder(Message).decode
decode_entry = msgspec.msgpack.Decoder(Entry).decode

_MICROSECOND = timedelta(microseconds=1)
#: The end of the calendar, in microseconds: nothing is due later.
_END = (datetime.max.replace(tzinfo=EPOCH.tzinfo) - EPOCH) // _MICROSECOND


def micros(moment: datetime) -> int:
    """Microseconds since 1970, exactly."""
    return (moment - EPOCH) // _MICROSECOND


def moment_of(micros: float) -> datetime:
    """The instant that so many microseconds mean. Exact until the year 2255; after that within some microseconds."""
    return EPOCH + timedelta(microseconds=min(int(micros), _END))
