"""Small records beside the jobs, and how much is left: the part of MemoryStorage that knows shelves and counters."""

from collections.abc import Sequence
from datetime import datetime

from ..model import Record, RecordWrite, TokenGrant
from .counters import Buckets
from .group_commit import GroupCommit
from .journal import Batch
from .shelves import check_items
from .state import State


class MemoryShelves:
    """`Shelves` and `Counters`. What is written rides in the same batches as the jobs."""

    _group: GroupCommit[Batch]
    _state: State
    _buckets: Buckets

    async def put(self, writes: Sequence[RecordWrite]) -> list[bool]:
        batch = self._group.batch()
        if not writes:
            return []
        check_items(writes)
        number = self._group.touch()
        done = self._state.shelves.put(writes, batch, number)
        await self._group.wait(number)
        return done

    async def item(self, collection: str, key: str) -> Record | None:
        self._group.batch()
        found = self._state.shelves.item(collection, key)
        await self._group.wait(self._state.shelves.unflushed(collection))
        return found

    async def items(self, collection: str, after: str = "", limit: int = 100) -> list[Record]:
        self._group.batch()
        found = self._state.shelves.items(collection, after, limit)
        await self._group.wait(self._state.shelves.unflushed(collection))
        return found

    async def ripe(self, collection: str, now: datetime, limit: int) -> list[Record]:
        self._group.batch()
        found = self._state.shelves.ripe(collection, now, limit)
        await self._group.wait(self._state.shelves.unflushed(collection))
        return found

    # -- counters --------------------------------------------------------------------------------

    async def take(self, bucket: str, n: int, limit: int, window_s: float) -> TokenGrant:
        self._group.batch()
        return self._buckets.take(bucket, n, limit, window_s)

    async def used(self, counter: str) -> int:
        self._group.batch()
        used = self._state.quotas.used(counter)
        await self._group.drain()
        return used
