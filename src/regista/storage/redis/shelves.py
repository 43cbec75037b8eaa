"""Small records beside the jobs, and how much is left: the part of the store that knows shelves and counters."""

from abc import ABC
from collections.abc import Sequence
from datetime import datetime

from ...model import Record, RecordWrite, TokenGrant
from ..codec import micros
from ..counters import taken
from ..group_commit import GroupCommit
from ..shelves import check_items
from .decode import item_of
from .flushing import Batch
from .scripts import Scripts


class RedisShelves(ABC):
    """`Shelves` and `Counters`, for `RedisStorage`, which opens and closes what is used here."""

    _group: GroupCommit[Batch]
    _scripts: Scripts

    async def put(self, writes: Sequence[RecordWrite]) -> list[bool]:
        if not writes:
            return []
        check_items(writes)
        # They travel with whatever else is flushed now: on their own most of them would be alone.
        batch = self._group.batch()
        answers = [batch.put(write) for write in writes]
        await self._group.wait(self._group.touch())
        return [answer.get().ok for answer in answers]

    async def item(self, collection: str, key: str) -> Record | None:
        cell = await self._scripts.call("item", collection, key)
        return None if cell is None else item_of(collection, key, cell)

    async def items(self, collection: str, after: str = "", limit: int = 100) -> list[Record]:
        if limit < 1:
            return []
        return _items_of(collection, await self._scripts.call("items", collection, after, limit))

    async def ripe(self, collection: str, now: datetime, limit: int) -> list[Record]:
        if limit < 1:
            return []
        return _items_of(collection, await self._scripts.call("ripe", collection, micros(now), limit))

    # -- counters --------------------------------------------------------------------------------

    async def take(self, bucket: str, n: int, limit: int, window_s: float) -> TokenGrant:
        if limit < 1:
            return taken(0.0, n, limit, window_s)
        ahead = await self._scripts.call("take", bucket, n, limit, repr(float(window_s)))
        return taken(float(ahead), n, limit, window_s)

    async def used(self, counter: str) -> int:
        used: int = await self._scripts.call("used", counter)
        return used


def _items_of(collection: str, found: Sequence[bytes]) -> list[Record]:
    return [item_of(collection, found[n].decode(), found[n + 1]) for n in range(0, len(found), 2)]
