"""Pages of a shelf: some of its items as records, as far as they are wanted."""

from collections.abc import Callable
from typing import TypeVar

from aiohttp import web

from ..model import Record
from ..schemas.pages import Page, encode_position
from ..storage.base import Shelves
from . import parameters
from .stage import STAGE

T = TypeVar("T")

#: Items that one page looks at, at most: whoever wants few among many gets short pages, not slow ones.
_LOOKED_AT = 5000
#: Of them, at a time.
_CHUNK = 500


async def shelf_page(request: web.Request, collection: str, shown: Callable[[Record], T | None]) -> Page[T]:
    """The page that a request asks for (`limit`, `next`). `shown` makes a record of an item, or leaves it out.

    In the order of the keys. A page may be short, even empty, and yet have a `next`.
    """
    stage = request.app[STAGE]
    limit = parameters.whole(request, "limit", 100, 1, stage.config.max_page)
    after = parameters.place(request, str) or ""
    found: list[T] = []
    for _ in range(_LOOKED_AT // _CHUNK):
        items = await stage.storage.items(collection, after, _CHUNK)
        for item in items:
            after = item.key
            record = shown(item)
            if record is not None:
                found.append(record)
            if len(found) == limit:
                break
        if len(found) == limit or len(items) < _CHUNK:
            break
    return Page(found, encode_position(after) if await _is_more(stage.storage, collection, after) else None)


async def _is_more(shelves: Shelves, collection: str, after: str) -> bool:
    return bool(after) and bool(await shelves.items(collection, after, 1))
