"""Signatures of the worker protocol: HMAC-SHA256 over a canonical form of a JSON object.

The form is that of the stock SDK, byte for byte: compact JSON, keys sorted, null members left out at every
depth, floats of integral value written as integers.
"""

import hmac
from collections.abc import Collection, Mapping
from hashlib import sha256
from typing import Any

import msgspec

from .messages import BadMessage

#: Members that never are part of what is signed.
_NEVER = ("security", "_signature")
#: The stock SDK refuses deeper ones, too.
_MAX_DEPTH = 64

#: Of these there is only one form.
_PLAIN = frozenset({str, int, bool})

_encode = msgspec.json.Encoder(order="sorted").encode


def canonical(members: Mapping[str, Any], leave_out: Collection[str] = ()) -> bytes:
    """The bytes that are signed. `leave_out` names further members of the top level that are not."""
    kept = {key: value for key, value in members.items() if key not in _NEVER and key not in leave_out}
    try:
        return _encode(_normal(kept, 0))
    except (OverflowError, ValueError, TypeError) as error:
        raise BadMessage(f"cannot be signed: {error}") from error


def sign(members: Mapping[str, Any], key: str, leave_out: Collection[str] = ()) -> str:
    """The signature, in hex."""
    return hmac.new(key.encode(), canonical(members, leave_out), sha256).hexdigest()


def verify(members: Mapping[str, Any], signature: str, key: str, leave_out: Collection[str] = ()) -> bool:
    """The signature fits. How long the comparison takes says nothing about the right one."""
    return hmac.compare_digest(sign(members, key, leave_out).encode(), signature.encode())


def _normal(value: Any, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise ValueError(f"nested deeper than {_MAX_DEPTH}")
    plain = _PLAIN if depth < _MAX_DEPTH else ()
    if isinstance(value, dict):
        return {
            key: inner if type(inner) in plain else _normal(inner, depth + 1)
            for key, inner in value.items()
            if inner is not None
        }
    if isinstance(value, (list, tuple)):
        return [inner if type(inner) in plain else _normal(inner, depth + 1) for inner in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
