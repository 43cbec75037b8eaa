"""Pages: a list in pieces, and the opaque word that leads from one to the next."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

T = TypeVar("T")

_encode = msgspec.msgpack.Encoder().encode


class Page(Struct, Generic[T], frozen=True):
    """Some items, and what to hand in as `next` for those after them; None at the end."""

    items: list[T]
    next: str | None


class BadPageToken(ValueError):
    """Not a word that a page gave."""


def encode_position(place: object) -> str:
    """The word for a place in a list: safe in a URL, and nobody's business what it says."""
    return urlsafe_b64encode(_encode(place)).decode().rstrip("=")


def decode_position(token: str, shape: type[T]) -> T:
    """The place that a word names; BadToken for words that no page gave."""
    try:
        body = urlsafe_b64decode(token.encode("ascii") + b"=" * (-len(token) % 4))
        place = msgspec.msgpack.decode(body, type=shape)
    except (ValueError, msgspec.MsgspecError) as error:
        raise BadPageToken(f"expected the `next` of an earlier page, got {token[:60]!r}") from error
    return place
