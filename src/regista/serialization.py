"""Checks that a value from outside can be stored: types, size, depth, and text that can be encoded.

Input, results, decisions and messages of exceptions pass here once. The result is a copy that shares nothing with the
original, and that every store can write and read again.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from .errors import NotSerializable

T = TypeVar("T")

#: A larger value belongs in a payload store, not in a job.
MAX_BYTES = 32 * 1024 * 1024
#: Longer texts are cut.
MAX_TEXT_CHARS = 10_000

#: A value must be readable inside a larger record and deep in the call stack: both count against the same recursion
#: limit. So it is decoded once inside this many nested lists.
_SPARE_DEPTH = 400
_NESTED_LISTS = b"\x91" * _SPARE_DEPTH

_encode = msgspec.msgpack.Encoder().encode
_decode_any = msgspec.msgpack.Decoder().decode
_decode_dict = msgspec.msgpack.Decoder(dict[str, Any]).decode
_ENCODING_ERRORS = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)


def to_storable(value: object, decode: Callable[[bytes], T], what: str) -> T:
    """The value as a store would return it, checked against the type that `decode` reads. Raises NotSerializable."""
    try:
        body = _encode(value)
        if len(body) <= MAX_BYTES:
            if len(body) > _SPARE_DEPTH:  # each level takes a byte at least
                _decode_any(_NESTED_LISTS + body)
            return decode(body)
    except _ENCODING_ERRORS as error:
        raise NotSerializable(what, safe_text(error)) from error
    raise NotSerializable(what, f"{len(body):,} bytes are more than {MAX_BYTES:,}")


def to_storable_dict(value: dict[str, Any] | None, what: str) -> dict[str, Any]:
    """A dict with str keys and storable values; None becomes an empty dict."""
    return to_storable(value, _decode_dict, what) if value else {}


def to_storable_text(value: object, what: str) -> str:
    """A str that can be encoded."""
    if not isinstance(value, str):
        raise NotSerializable(what, f"expected a str, got {type(value).__name__}")
    return safe_text(value)


def safe_text(value: object) -> str:
    """`str(value)`, shortened, as text that every store and terminal accepts. Never raises."""
    try:
        text = str(value)
    except Exception:  # noqa: BLE001  # a user's `__str__`, while an error is being reported
        text = f"<a {type(value).__name__} that cannot be printed>"
    return text.encode("utf-8", "backslashreplace").decode()[:MAX_TEXT_CHARS]
