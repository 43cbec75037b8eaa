"""Errands: deliveries that a sender has taken on, and the proof that they are its own."""

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import cast
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from ..clock import Clock, add_seconds
from ..model import Record, RecordWrite
from ..model.delivery import (
    DEAD_COLLECTION,
    DEAD_TTL_S,
    UNREADABLE,
    WEBHOOK_COLLECTION,
    WebhookDelivery,
    delivery_of,
    readable_delivery,
)
from ..storage.base import SharedState

log = logging.getLogger("regista.webhooks")

#: URLs whose receivers are remembered.
_REMEMBERED = 500
#: Leases in memory from which on those are looked for whose time is over.
_MANY = 500
#: Ports that nobody needs to name.
_PORTS = {"http": 80, "https": 443}
#: Seconds that a lease is longer than a delivery can take: so long may it stand in a line before it is sent.
SPARE_S = 2.0
#: Seconds for which a later word of a job waits before it looks again whether the one before it was tried.
_BEHIND_S = 1.0


class Errand(Struct, frozen=True, gc=False):
    """A delivery on its way, and its item on the shelf."""

    delivery: WebhookDelivery
    #: Who is told: scheme, host and port of the URL.
    receiver: str
    item: Record
    #: What the item's revision is while it is ours.
    revision: int
    #: When it was taken on, by the clock's elapsed seconds.
    since: float

    def moved(self, due: datetime, expected: int) -> RecordWrite:
        """The same item, due at another time."""
        return RecordWrite(WEBHOOK_COLLECTION, self.item.key, self.item.value, due, expected)

    def removed(self) -> RecordWrite:
        """Nothing in its place, if it is still ours."""
        return RecordWrite(WEBHOOK_COLLECTION, self.item.key, None, None, self.revision)


class Hands:
    """Takes deliveries on for a while; when nothing comes of it, they are due again.

    Where several senders share a store, its item says so: the due time moves behind the lease, fenced by the revision,
    so of two senders one gets it, and when that one dies it is due again. Whoever is `alone` at a store keeps the same
    lease in memory, and writes nothing: when it dies, nobody else has it, and its heir finds it due.
    """

    def __init__(self, shelves: SharedState, clock: Clock, lease_s: float, alone: bool) -> None:
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
        if len(self._until) > _MANY:
            # Some were taken off the shelf by others, so nobody will ask for them again.
            now = self._clock.elapsed()
            self._until = {key: until for key, until in self._until.items() if until > now}
        return len(self._until)

    def errand(self, delivery: WebhookDelivery, item: Record) -> Errand:
        """What the delivery will be once it was taken on."""
        revision = item.revision if self._alone else item.revision + 1
        return Errand(delivery, receiver_of(delivery.url), item, revision, self._clock.elapsed())

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
            self._until.update((errand.item.key, self._end(errand)) for errand in errands)
            return [True] * len(errands)
        due = add_seconds(now, self._lease_s)
        return await self._shelves.put_records(
            [errand.moved(due, errand.item.revision) for errand in errands]
        )

    def owns(self, errand: Errand) -> bool:
        """It is ours still, as far as can be seen from here: others may have taken it on after its time."""
        end = self._end(errand)
        if self._alone and self._until.get(errand.item.key) != end:
            return False
        return end > self._clock.elapsed()

    def has_time(self, errand: Errand) -> bool:
        """It can be sent before its time is over."""
        return self._clock.elapsed() <= errand.since + SPARE_S

    async def renew(self, errand: Errand) -> Errand | None:
        """Take it on for another while, since it stood in a line for long; None: it is not ours any more."""
        if not self.owns(errand):
            return None
        renewed = replace(errand, since=self._clock.elapsed())
        if self._alone:
            self._until[errand.item.key] = self._end(renewed)
            return renewed
        due = add_seconds(self._clock.now(), self._lease_s)
        (mine,) = await self._shelves.put_records([errand.moved(due, errand.revision)])
        return replace(renewed, revision=errand.revision + 1) if mine else None

    def _end(self, errand: Errand) -> float:
        return errand.since + self._lease_s

    async def behind(self, deliveries: Sequence[WebhookDelivery], now: datetime) -> list[datetime | None]:
        """For each when to look again, where an earlier word about the same job was not tried yet; None: it may go.

        Once the earlier one was tried, nobody waits for its retries. All are looked up together, and again only
        those before which another delivery lies.
        """
        found: list[datetime | None] = [None] * len(deliveries)
        afters = {place: f"{delivery.job.id}-" for place, delivery in enumerate(deliveries)}
        while afters:
            pages = await asyncio.gather(  # they share a round trip
                *(
                    self._shelves.records(WEBHOOK_COLLECTION, after=after, limit=1)
                    for after in afters.values()
                )
            )
            before = [
                (place, item)
                for place, items in zip(afters, pages, strict=True)
                for item in items
                if item.key < deliveries[place].id
            ]
            afters = {}
            for place, item in before:
                found[place] = self._look_again(item, deliveries[place], now)
                if found[place] is None:
                    afters[place] = item.key
        return found

    def _look_again(self, item: Record, delivery: WebhookDelivery, now: datetime) -> datetime | None:
        """When to look again at a delivery before which this lies; None: that keeps nobody waiting."""
        first = readable_delivery(item)  # one that nobody can read is put aside when it is its turn
        if first is None or first.job.id != delivery.job.id or first.tries:
            return None
        # Within a lease it may be on its way; one that was put off for longer is not asked for each second.
        put_off = item.due is not None and item.due > add_seconds(now, self._lease_s)
        return add_seconds(cast(datetime, item.due) if put_off else now, _BEHIND_S)

    def let_go(self, key: str) -> None:
        """What became of it is written down. Whoever looks at the shelf just now may still see it as it was, so it is
        ours until the next look.
        """
        if self._alone:
            self._let_go.append(key)


def read(item: Record, writes: list[RecordWrite]) -> WebhookDelivery | None:
    """The delivery; one that nobody can read is put among the dead ones: it must not keep all others waiting."""
    try:
        return delivery_of(item)
    except UNREADABLE as error:
        told = {"action": "webhook_unreadable", "delivery_id": item.key}
        log.error(
            "delivery %s cannot be read (%s); it lies among the dead ones now", item.key, error, extra=told
        )
        writes.append(RecordWrite(DEAD_COLLECTION, item.key, item.value, ttl_s=DEAD_TTL_S))
        writes.append(RecordWrite(item.collection, item.key, None, None, item.revision))
        return None


@lru_cache(_REMEMBERED)
def receiver_of(url: str) -> str:
    """Who is told, without the path and whatever secrets it has: scheme, host and port.

    However it is written: a receiver has one line, and not one for each way to write its name.
    """
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return "an unreadable URL"
    told = f"{parts.scheme}://[{host}]" if ":" in host else f"{parts.scheme}://{host}"
    return told if port in (None, _PORTS.get(parts.scheme)) else f"{told}:{port}"
