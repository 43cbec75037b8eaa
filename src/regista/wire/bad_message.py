"""BadMessage: what came over the wire is not what was agreed on."""

from typing import TypeVar

import msgspec

T = TypeVar("T")


class BadMessage(ValueError):
    """A message that cannot be read. Nothing of it was acted on; the words say where it is wrong."""


def read(body: bytes, shape: type[T]) -> T:
    """The JSON `body` as a record, or BadMessage. Unknown members are ignored."""
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise BadMessage(str(error) or "nested too deep") from error
