"""Errands: deliveries that a sender has taken on, and the proof that they are its own."""

import logging
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from urllib.parse import urlsplit

from msgspec import Struct

from ..clock import Clock, later
from ..model import Item, ItemWrite
from ..model.delivery import DEAD_SHELF, DEAD_TTL_S, WEBHOOK_SHELF, Delivery, readable
from ..storage.base import Shelves

log = logging.getLogger("regista.webhooks")

#: URLs whose receivers are remembered.
_REMEMBERED = 500


class Errand(Struct, frozen=True, gc=False):
    """A delivery on its way, and its item on the shelf."""

    delivery: Delivery
    #: Who is told: scheme, host and port of the URL.
    receiver: str
    item: Item
    #: What the item's revision is while it is ours.
    revision: int

    def moved(self, due: datetime, expected: int) -> ItemWrite:
        """The same item, due at another time."""
        return ItemWrite(WEBHOOK_SHELF, self.item.key, self.item.value, due, expected)

    def removed(self) -> ItemWrite:
        """Nothing in its place, if it is still ours."""
        return ItemWrite(WEBHOOK_SHELF, self.item.key, None, None, self.revision)


class Hands:
    """Takes deliveries on for a while; when nothing comes of it, they are due again.

    Where several senders share a store, its item says so: the due time moves behind the lease, fenced by the revision,
    so of two senders one gets it, and when that one dies it is due again. Whoever is `alone` at a store keeps the same
    lease in memory, and writes nothing: when it dies, nobody else has it, and its heir finds it due.
    """

    def __init__(self, shelves: Shelves, clock: Clock, lease_s: float, alone: bool) -> None:
        self._shelves = shelves
        self._clock = clock
        self._lease_s = lease_s
        self._alone = alone
        #: Key → until when it is ours, where the shelf does not say so.
        self._until: dict[str, float] = {}
        #: Those of them that were let go since somebody began to look at the shelf.
        self._let_go: list[str] = []

    def full(self) -> int:
        """How many of what is due are ours already. Asked before each look at the shelf."""
        for key in self._let_go:
            self._until.pop(key, None)
        self._let_go.clear()
        return len(self._until)

    def errand(self, delivery: Delivery, item: Item) -> Errand:
        """What the delivery will be once it was taken on."""
        revision = item.revision if self._alone else item.revision + 1
        return Errand(delivery, receiver_of(delivery.url), item, revision)

    def has(self, key: str) -> bool:
        """It was taken on, and its time is not over."""
        until = self._until.get(key)
        if until is None:
            return False
        if until > self._clock.elapsed():
            return True
        del self._until[key]
        return False

    async def take(self, errands: Sequence[Errand], now: datetime) -> Sequence[bool]:
        """Take them on; says of each whether it is ours now."""
        if self._alone:
            until = self._clock.elapsed() + self._lease_s
            self._until.update((errand.item.key, until) for errand in errands)
            return [True] * len(errands)
        due = later(now, self._lease_s)
        return await self._shelves.put([errand.moved(due, errand.item.revision) for errand in errands])

    def let_go(self, key: str) -> None:
        """What became of it is written down. Whoever looks at the shelf just now may still see it as it was, so it is
        ours until the next look.
        """
        if self._alone:
            self._let_go.append(key)


def read(item: Item, writes: list[ItemWrite]) -> Delivery | None:
    """The delivery; one that nobody can read is put among the dead ones: it must not keep all others waiting."""
    delivery = readable(item)
    if delivery is None:
        told = {"action": "webhook_unreadable", "delivery_id": item.key}
        log.error("delivery %s cannot be read; it lies among the dead ones now", item.key, extra=told)
        writes.append(ItemWrite(DEAD_SHELF, item.key, item.value, ttl_s=DEAD_TTL_S))
        writes.append(ItemWrite(item.shelf, item.key, None, None, item.revision))
    return delivery


@lru_cache(_REMEMBERED)
def receiver_of(url: str) -> str:
    """Who is told, without the path and whatever secrets it has: scheme, host and port."""
    try:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    except ValueError:
        return "an unreadable URL"
