"""Small records beside the jobs, and how much is left: the part of the store that knows shelves and counters."""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime
from itertools import count

from ...model import Item, ItemWrite, Taken
from ..base import Hint
from ..codec import encode, micros
from ..counters import taken
from ..shelves import check_items
from .decode import hints_of, item_of
from .encode import item_write
from .scripts import Scripts

#: Names for calls that change something: by them the server knows a repetition.
_names = map(f"{secrets.token_hex(8)}:put:{{}}".format, count(1))


class RedisShelves(ABC):
    """`Shelves` and `Counters`, for `RedisStorage`, which opens and closes what is used here."""

    _origin: str
    _scripts: Scripts

    @abstractmethod
    def _tell(self, hints: Sequence[Hint]) -> None:
        """Pass hints on to whoever listens in this process."""

    async def put(self, writes: Sequence[ItemWrite]) -> list[bool]:
        if not writes:
            return []
        check_items(writes)
        values: list[bytes] = []
        packed = encode([item_write(write, values) for write in writes])
        reply: bytes = await self._scripts.call("put", next(_names), self._origin, packed, *values)
        letters, _, hints = reply.partition(b"\n")
        self._tell(hints_of(hints))
        return [letter == ord("y") for letter in letters]

    async def item(self, shelf: str, key: str) -> Item | None:
        cell = await self._scripts.call("item", shelf, key)
        return None if cell is None else item_of(shelf, key, cell)

    async def items(self, shelf: str, after: str = "", limit: int = 100) -> list[Item]:
        if limit < 1:
            return []
        return _items_of(shelf, await self._scripts.call("items", shelf, after, limit))

    async def ripe(self, shelf: str, now: datetime, limit: int) -> list[Item]:
        if limit < 1:
            return []
        return _items_of(shelf, await self._scripts.call("ripe", shelf, micros(now), limit))

    # -- counters --------------------------------------------------------------------------------

    async def take(self, bucket: str, n: int, limit: int, window_s: float) -> Taken:
        if limit < 1:
            return taken(0.0, n, limit, window_s)
        ahead = await self._scripts.call("take", bucket, n, limit, repr(float(window_s)))
        return taken(float(ahead), n, limit, window_s)

    async def used(self, counter: str) -> int:
        used: int = await self._scripts.call("used", counter)
        return used


def _items_of(shelf: str, found: Sequence[bytes]) -> list[Item]:
    return [item_of(shelf, found[n].decode(), found[n + 1]) for n in range(0, len(found), 2)]
