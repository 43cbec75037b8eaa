"""Webhook deliveries and signing secrets."""

from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from ..clock import Clock
from ..errors import DeliveryNotFound, StorageError
from ..model import Record, RecordWrite
from ..model.delivery import (
    DEAD_COLLECTION,
    WEBHOOK_COLLECTION,
    WebhookDelivery,
    delivery_write,
    readable_delivery,
)
from ..storage.base import SharedState, find_record
from ..webhooks.registry import WebhookRegistry
from .audit import AuditService
from .caller import Caller
from .pages import RecordPage, record_page

#: Attempts to write a delivery that the sender keeps changing; more means that something else is wrong.
_MAX_WRITES = 100


class DeliveryState(StrEnum):
    """Where a delivery stands."""

    PENDING = "pending"
    DEAD = "dead"


_SHELVES = {DeliveryState.PENDING: WEBHOOK_COLLECTION, DeliveryState.DEAD: DEAD_COLLECTION}


class FoundDelivery(NamedTuple):
    """A delivery with its stored item and its state."""

    delivery: WebhookDelivery
    item: Record
    state: DeliveryState


class SigningSecrets(Struct, frozen=True):
    """What the deliveries of a client are signed with, newest first."""

    secrets: tuple[str, ...]
    #: Derived by the orchestrator, because `clients.toml` has none for the client.
    derived: bool


class WebhookService:
    """Lists, resends and discards deliveries. A client sees its own, an operator all."""

    def __init__(
        self, records: SharedState, receivers: WebhookRegistry, clock: Clock, audit: AuditService
    ) -> None:
        self._records = records
        self._receivers = receivers
        self._clock = clock
        self._audit = audit

    async def list_page(
        self, caller: Caller, state: DeliveryState, after: str = "", limit: int = 100
    ) -> RecordPage[FoundDelivery]:
        """Deliveries in this state, in the order of their jobs. A page may be short and yet have an `end`."""

        def visible(item: Record) -> FoundDelivery | None:
            delivery = readable_delivery(item)
            if delivery is None or not caller.may_see(delivery.job.client):
                return None
            return FoundDelivery(delivery, item, state)

        return await record_page(self._records, _SHELVES[state], visible, after, limit)

    async def get(self, caller: Caller, delivery_id: str) -> FoundDelivery:
        """A pending or dead delivery; DeliveryNotFound says the same of other clients' and of absent ones."""
        for state in DeliveryState:
            item = await find_record(self._records, _SHELVES[state], delivery_id)
            delivery = None if item is None else readable_delivery(item)
            if item is not None and delivery is not None and caller.may_see(delivery.job.client):
                return FoundDelivery(delivery, item, state)
        raise DeliveryNotFound(delivery_id)

    async def redeliver(self, caller: Caller, delivery_id: str) -> FoundDelivery:
        """Send a delivery again now, with all its retries. One that was not tried yet stays as it is.

        Raises DeliveryNotFound, also if the receiver accepts it before it can be scheduled again.
        """
        found = await self.get(caller, delivery_id)
        if _is_untried(found):
            return found
        work = self._reschedule(caller, delivery_id)
        return await self._audit.perform(caller, "webhook.redeliver", delivery_id, work)

    async def discard(self, caller: Caller, delivery_id: str) -> FoundDelivery:
        """Delete a delivery: it is not tried any more. Returns it as it was."""
        found = await self.get(caller, delivery_id)
        # From both shelves: the sender may have moved it since it was read.
        work = self._records.put_records(
            [RecordWrite(collection, found.item.key, None) for collection in _SHELVES.values()]
        )
        await self._audit.perform(caller, "webhook.discard", delivery_id, work)
        return found

    async def secrets(self, caller: Caller) -> SigningSecrets:
        """The caller's own secrets; not even an operator sees those of other clients."""
        secrets = await self._receivers.secrets_of(caller.name)
        return SigningSecrets(tuple(secrets), not self._receivers.has_own(caller.name))

    async def _reschedule(self, caller: Caller, delivery_id: str) -> FoundDelivery:
        """Writes behind the revision that was read; reads again when the sender has written meanwhile."""
        for _ in range(_MAX_WRITES):
            found = await self.get(caller, delivery_id)
            if _is_untried(found):
                return found  # another request has rescheduled it
            now = self._clock.now()
            fresh = replace(found.delivery, tries=0)
            if found.state is DeliveryState.DEAD:
                # Added to one shelf before it is removed from the other: a crash between both repeats it.
                removal = RecordWrite(DEAD_COLLECTION, found.item.key, None, expected=found.item.revision)
                writes = [delivery_write(fresh, now, 0), removal]
            else:
                writes = [delivery_write(fresh, now, found.item.revision)]
            written = await self._records.put_records(writes)
            if written[0]:
                return FoundDelivery(fresh, replace(found.item, due=now), DeliveryState.PENDING)
        raise StorageError(
            f"delivery {delivery_id}: was changed {_MAX_WRITES} times while it was rescheduled"
        )


def _is_untried(found: FoundDelivery) -> bool:
    return found.state is DeliveryState.PENDING and found.delivery.tries == 0
