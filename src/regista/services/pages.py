"""Pages of small records that are filtered while they are read."""

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from ..model import Record
from ..storage.base import SharedState

T = TypeVar("T")

#: Items that one page examines at most: a rare match gives short pages, not slow ones.
_MAX_EXAMINED = 5000
#: Items that are read at once.
_CHUNK = 500


class RecordPage(NamedTuple, Generic[T]):
    """Some records, and where the next page begins."""

    items: list[T]
    #: The key after which the next page begins; None at the end.
    end: str | None


async def record_page(
    shelves: SharedState, collection: str, select: Callable[[Record], T | None], after: str, limit: int
) -> RecordPage[T]:
    """Up to `limit` records behind the key `after`, in the order of keys.

    `select` makes a record of an item or returns None to leave it out. A page may be short, even empty, and
    yet have an `end`.
    """
    found: list[T] = []
    for _ in range(_MAX_EXAMINED // _CHUNK):
        items = await shelves.records(collection, after=after, limit=_CHUNK)
        for item in items:
            after = item.key
            record = select(item)
            if record is not None:
                found.append(record)
            if len(found) == limit:
                break
        if len(found) == limit or len(items) < _CHUNK:
            break
    more = bool(after) and bool(await shelves.records(collection, after=after, limit=1))
    return RecordPage(found, after if more else None)
