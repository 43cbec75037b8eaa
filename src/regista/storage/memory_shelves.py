"""Small records beside the jobs, and how much is left: the part of MemoryStorage that knows shelves and counters."""

from collections.abc import Sequence
from datetime import datetime

from ..model import Item, ItemWrite, Taken
from .counters import Buckets
from .group_commit import GroupCommit
from .image import Image
from .journal import Batch
from .shelves import check_items


class MemoryShelves:
    """`Shelves` and `Counters`. What is written rides in the same batches as the jobs."""

    _group: GroupCommit[Batch]
    _image: Image
    _buckets: Buckets

    async def put(self, writes: Sequence[ItemWrite]) -> list[bool]:
        batch = self._group.batch()
        if not writes:
            return []
        check_items(writes)
        number = self._group.touch()
        done = self._image.shelves.put(writes, batch, number)
        await self._group.wait(number)
        return done

    async def item(self, shelf: str, key: str) -> Item | None:
        self._group.batch()
        found = self._image.shelves.item(shelf, key)
        await self._group.wait(self._image.shelves.unflushed(shelf))
        return found

    async def items(self, shelf: str, after: str = "", limit: int = 100) -> list[Item]:
        self._group.batch()
        found = self._image.shelves.items(shelf, after, limit)
        await self._group.wait(self._image.shelves.unflushed(shelf))
        return found

    async def firsts(self, shelf: str, afters: Sequence[str]) -> list[Item | None]:
        self._group.batch()
        shelves = self._image.shelves
        found = [next(iter(shelves.items(shelf, after, 1)), None) for after in afters]
        await self._group.wait(shelves.unflushed(shelf))
        return found

    async def ripe(self, shelf: str, now: datetime, limit: int) -> list[Item]:
        self._group.batch()
        found = self._image.shelves.ripe(shelf, now, limit)
        await self._group.wait(self._image.shelves.unflushed(shelf))
        return found

    # -- counters --------------------------------------------------------------------------------

    async def take(self, bucket: str, n: int, limit: int, window_s: float) -> Taken:
        self._group.batch()
        return self._buckets.take(bucket, n, limit, window_s)

    async def used(self, counter: str) -> int:
        self._group.batch()
        used = self._image.quotas.used(counter)
        await self._group.drain()
        return used
