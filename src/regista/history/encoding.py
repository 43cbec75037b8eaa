"""Events to bytes and back. Nothing that a job carries can keep its history from being written."""

from typing import Any

import msgspec
from msgspec.structs import asdict

from ..errors import StorageError
from ..model import Event, OutboxEntry

#: How deep a value is followed when it has to be made legible.
MAX_DEPTH = 64

# What msgspec does not know (a set of the user's own objects, say) is written as its text.
_msgpack = msgspec.msgpack.Encoder(enc_hook=str)
_json = msgspec.json.Encoder(enc_hook=str)
#: How an encoder says no.
_REFUSALS = (TypeError, ValueError, OverflowError, RecursionError)
_events = msgspec.msgpack.Decoder(tuple[Event, ...])


def encode_events(entry: OutboxEntry) -> bytes:
    """The msgpack form of an entry's events."""
    try:
        return entry.packed()
    except _REFUSALS:
        return _encode_anyhow(entry.events)


def _encode_anyhow(events: tuple[Event, ...]) -> bytes:
    try:
        return _msgpack.encode(events)
    except _REFUSALS:
        return _msgpack.encode([make_encodable(asdict(event)) for event in events])


def decode_events(body: bytes) -> tuple[Event, ...]:
    """The events that `encode_events` wrote."""
    try:
        return _events.decode(body)
    except msgspec.DecodeError as error:
        raise StorageError(f"an entry of history cannot be read: {error}") from error


def encode_json(value: Any) -> bytes:
    """`value` as JSON."""
    try:
        return _json.encode(value)
    except _REFUSALS:
        return _json.encode(make_encodable(value))


def encoded_json(value: Any) -> Any:
    """`value` as it comes back from a JSON column: a datetime as its text, a tuple as a list."""
    return msgspec.json.decode(encode_json(value))


def make_encodable(value: Any, depth: int = MAX_DEPTH) -> Any:
    """`value` with what no encoder takes put into words.

    A number beyond 64 bits, half a surrogate pair (file names have them) or a value that contains
    itself would otherwise be refused on every retry, and keep all later entries out of history.
    """
    match value:
        case str():
            return without_surrogates(value)
        case bool() | None:
            return value
        case int():
            return value if -(1 << 63) <= value < 1 << 63 else str(value)
        case dict() | list() | tuple() | set() | frozenset() if depth == 0:
            return "…"
        case dict():
            return {_key(key): make_encodable(part, depth - 1) for key, part in value.items()}
        case list() | tuple() | set() | frozenset():
            return [make_encodable(part, depth - 1) for part in value]
        case _:
            return _encodable(value)


def _encodable(value: Any) -> Any:
    try:
        _msgpack.encode(value)
    except _REFUSALS:
        return repr(value)
    return value


def _key(key: Any) -> Any:
    return make_encodable(key if isinstance(key, str | int) else str(key))


#: What stands in JSON for the one character that PostgreSQL keeps in no text.
_NUL = rb"\u0000"


def without_surrogates(text: str) -> str:
    """`text` with half of a surrogate pair as its escape: no database takes it."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def storable_text(text: str) -> str:
    """The same, and NUL as its escape: PostgreSQL keeps it in no text."""
    return without_surrogates(text).replace("\0", _NUL.decode())


def storable_json(value: Any) -> str:
    """`value` as JSON that PostgreSQL takes."""
    encoded = encode_json(value)
    if _NUL in encoded:
        encoded = encode_json(_without_nul(msgspec.json.decode(encoded)))
    return encoded.decode()


def _without_nul(value: Any) -> Any:
    match value:
        case str():
            return storable_text(value)
        case dict():
            return {storable_text(key): _without_nul(part) for key, part in value.items()}
        case list():
            return [_without_nul(part) for part in value]
        case _:
            return value
