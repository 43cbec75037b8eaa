"""DeliveryClaims: which deliveries are due, and which of them this instance may send."""

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime
from typing import cast
from urllib.parse import urlsplit

from msgspec import Struct

from ..clock import Clock, add_seconds
from ..model import Record, RecordWrite
from ..model.delivery import (
    DEAD_COLLECTION,
    DEAD_TTL_S,
    UNREADABLE,
    WEBHOOK_COLLECTION,
    WebhookDelivery,
    dead_write,
    delivery_of,
    delivery_write,
    readable_delivery,
)
from ..storage.base import SharedState

log = logging.getLogger("regista.webhooks")

_DEFAULT_PORTS = {"http": 80, "https": 443}
#: Seconds that a claimed delivery may wait in memory before it is sent: its lease is longer than an attempt by these.
SPARE_S = 2.0
#: Seconds until a delivery is looked at again that waits for the first attempt of an earlier one of its job.
_BEHIND_S = 1.0


class ClaimedDelivery(Struct, frozen=True, gc=False):
    """A delivery that is due or claimed, and the revision of its record once it is claimed."""

    delivery: WebhookDelivery
    #: Scheme, host and port of its URL.
    receiver: str
    record: Record
    #: When it was read, by the clock's elapsed seconds; its lease began later.
    since: float

    @property
    def revision(self) -> int:
        """The revision of its record while it is claimed. Each write of somebody else raises it."""
        return self.record.revision + 1


class DeliveryClaims:
    """Reads due deliveries and claims them, over the records of the store.

    A claim moves the record's due time behind a lease, fenced by its revision. So of several instances one gets a
    delivery, and when that one dies, it is due again. Every later write is fenced by the claim's revision: an
    instance whose lease has passed changes nothing that another has claimed.
    """

    def __init__(self, records: SharedState, clock: Clock, lease_s: float) -> None:
        """`lease_s`: how long an attempt can take; claims last for SPARE_S longer."""
        self._records = records
        self._clock = clock
        self._lease_s = lease_s + SPARE_S

    async def due(self, now: datetime, limit: int) -> tuple[list[ClaimedDelivery], bool]:
        """Deliveries that may be sent, earliest first, and whether there may be more than `limit`.

        A record that cannot be decoded moves to the failed ones. A delivery whose job has an earlier one that was
        never attempted is put off, so that first attempts keep the order of each job.
        """
        records = await self._records.due_records(WEBHOOK_COLLECTION, now, limit)
        writes: list[RecordWrite] = []
        found = self._decode(records, writes)
        behind = await self._look_behind([each.delivery for each in found], now)
        ready = [each for each, due in zip(found, behind, strict=True) if due is None]
        writes += [
            _moved(each.record, due, each.record.revision)
            for each, due in zip(found, behind, strict=True)
            if due is not None
        ]
        if writes:
            await self._records.put_records(writes)
        return ready, len(records) == limit

    async def claim(self, deliveries: Sequence[ClaimedDelivery], now: datetime) -> list[bool]:
        """Claim them; says of each whether it is claimed now."""
        if not deliveries:
            return []
        due = add_seconds(now, self._lease_s)
        return await self._records.put_records(
            [_moved(each.record, due, each.record.revision) for each in deliveries]
        )

    def has_time(self, claimed: ClaimedDelivery) -> bool:
        """An attempt that begins now ends before the lease."""
        return self._clock.elapsed() <= claimed.since + SPARE_S

    async def put_off(self, deliveries: Sequence[tuple[ClaimedDelivery, datetime]], *, claimed: bool) -> None:
        """Let them be due at these times; `claimed`: they were claimed before."""
        if deliveries:
            await self._records.put_records(
                [
                    _moved(each.record, due, each.revision if claimed else each.record.revision)
                    for each, due in deliveries
                ]
            )

    async def drop(self, deliveries: Sequence[ClaimedDelivery]) -> None:
        """Remove deliveries that are due and that their client does not want."""
        if deliveries:
            await self._records.put_records(
                [_removed(each.record, each.record.revision) for each in deliveries]
            )

    async def complete(self, claimed: ClaimedDelivery) -> None:
        """Remove a delivery that was accepted."""
        await self._records.put_records([_removed(claimed.record, claimed.revision)])

    async def retry(self, claimed: ClaimedDelivery, tried: WebhookDelivery, due: datetime) -> None:
        """Store the failed attempt, and when the next one is due."""
        await self._records.put_records([delivery_write(tried, due, claimed.revision)])

    async def give_up(self, claimed: ClaimedDelivery, tried: WebhookDelivery) -> None:
        """Move a delivery to the failed ones, unless another instance has claimed it meanwhile."""
        # Into one collection before out of the other: a crash in between repeats it, and loses nothing.
        _, mine = await self._records.put_records(
            [dead_write(tried), _removed(claimed.record, claimed.revision)]
        )
        if not mine:
            await self._records.put_records([RecordWrite(DEAD_COLLECTION, tried.id, None)])

    def _decode(self, records: Sequence[Record], writes: list[RecordWrite]) -> list[ClaimedDelivery]:
        found, since = [], self._clock.elapsed()
        for record in records:
            try:
                delivery = delivery_of(record)
            except UNREADABLE as error:
                fields = {"action": "webhook_unreadable", "delivery_id": record.key}
                log.error("delivery %s cannot be decoded, giving up: %s", record.key, error, extra=fields)
                writes.append(RecordWrite(DEAD_COLLECTION, record.key, record.value, ttl_s=DEAD_TTL_S))
                writes.append(_removed(record, record.revision))
                continue
            found.append(ClaimedDelivery(delivery, receiver_of(delivery.url), record, since))
        return found

    async def _look_behind(
        self, deliveries: Sequence[WebhookDelivery], now: datetime
    ) -> list[datetime | None]:
        """For each delivery: None if it may be sent, else when to look again.

        It may be sent once each earlier delivery of its job was attempted; their retries do not hold it up. All are
        looked up together, and again only those before which another delivery lies.
        """
        found: list[datetime | None] = [None] * len(deliveries)
        afters = {place: f"{delivery.job.id}-" for place, delivery in enumerate(deliveries)}
        while afters:
            pages = await asyncio.gather(  # they share a round trip
                *(
                    self._records.records(WEBHOOK_COLLECTION, after=after, limit=1)
                    for after in afters.values()
                )
            )
            before = [
                (place, record)
                for place, records in zip(afters, pages, strict=True)
                for record in records
                if record.key < deliveries[place].id
            ]
            afters = {}
            for place, record in before:
                found[place] = self._look_again(record, deliveries[place], now)
                if found[place] is None:
                    afters[place] = record.key
        return found

    def _look_again(self, record: Record, delivery: WebhookDelivery, now: datetime) -> datetime | None:
        """When to look again at a delivery before which this record lies; None: the record does not hold it up."""
        earlier = readable_delivery(record)  # one that cannot be decoded is given up when it is due
        if earlier is None or earlier.job.id != delivery.job.id or earlier.tries:
            return None
        # Within a lease it may be under way. One that was put off for longer is not asked for each second.
        later = record.due is not None and record.due > add_seconds(now, self._lease_s)
        return add_seconds(cast(datetime, record.due) if later else now, _BEHIND_S)


def receiver_of(url: str) -> str:
    """Scheme, host and port of a URL, in one spelling and without path or credentials."""
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return "an unreadable URL"
    name = f"{parts.scheme}://[{host}]" if ":" in host else f"{parts.scheme}://{host}"
    return name if port in (None, _DEFAULT_PORTS.get(parts.scheme)) else f"{name}:{port}"


def _moved(record: Record, due: datetime, expected: int) -> RecordWrite:
    return RecordWrite(WEBHOOK_COLLECTION, record.key, record.value, due, expected)


def _removed(record: Record, expected: int) -> RecordWrite:
    return RecordWrite(WEBHOOK_COLLECTION, record.key, None, None, expected)
