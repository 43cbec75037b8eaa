"""Records to bytes and back. A parked record is the very bytes that are on disk."""

import msgspec

from ..model import Entry, Job, Message, Task

#: What encoding a record may raise.
UNENCODABLE = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)

_encoder = msgspec.msgpack.Encoder()
encode = _encoder.encode
decode_job = msgspec.msgpack.Decoder(Job).decode
decode_task = msgspec.msgpack.Decoder(Task).decode
decode_message = msgspec.msgpack.Decoder(Message).decode
decode_entry = msgspec.msgpack.Decoder(Entry).decode
