from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from regista import OrchestratorEngine
from regista.errors import DeliveryNotFound
from regista.model import RecordWrite
from regista.model.delivery import (
    DEAD_COLLECTION,
    WEBHOOK_COLLECTION,
    dead_write,
    delivery_of,
    delivery_write,
)
from regista.services.webhooks import DeliveryState, WebhookService
from regista.storage.base import find_record
from regista.storage.memory import MemoryStorage
from tests.services_kit import ADA, BOB, OPS, actions_of, orchestrator
from tests.webhook_kit import THEN, delivery


class Raced(MemoryStorage):
    """Another writer comes first, once: the sender with its next attempt, or with its success."""

    def __init__(self) -> None:
        super().__init__()
        self.first: list[RecordWrite] = []

    async def put_records(self, writes: Sequence[RecordWrite]) -> list[bool]:
        first, self.first = self.first, []
        if first:
            await super().put_records(first)
        return await super().put_records(writes)


def service(director: OrchestratorEngine) -> WebhookService:
    return director.services.webhooks


async def test_a_client_sees_its_own_deliveries_and_an_operator_all() -> None:
    async with orchestrator() as director:
        mine, yours = delivery(job="a", client="ada"), delivery(job="b", client="bob")
        await director.storage.put_records([dead_write(mine), dead_write(yours)])

        async def seen(caller: object) -> list[str]:
            page = await service(director).list_page(caller, DeliveryState.DEAD)  # type: ignore[arg-type]
            return [found.delivery.id for found in page.items]

        assert await seen(ADA) == [mine.id]
        assert await seen(OPS) == [mine.id, yours.id]
        assert (await service(director).get(ADA, mine.id)).state is DeliveryState.DEAD
        for call in (service(director).get, service(director).redeliver, service(director).discard):
            with pytest.raises(DeliveryNotFound):
                await call(BOB, mine.id)
            with pytest.raises(DeliveryNotFound):
                await call(BOB, "absent")
        assert await actions_of(director.storage, BOB) == []


async def test_a_dead_delivery_is_sent_again_with_all_its_retries() -> None:
    async with orchestrator() as director:
        dead = delivery(client="ada", tries=9)
        await director.webhooks.stop(0.0)  # so that it stays where it is put
        await director.storage.put_records([dead_write(dead)])

        found = await service(director).redeliver(ADA, dead.id)

        assert (found.state, found.delivery.tries) == (DeliveryState.PENDING, 0)
        assert await find_record(director.storage, DEAD_COLLECTION, dead.id) is None
        assert await actions_of(director.storage, ADA) == [("webhook.redeliver", dead.id)]


async def test_redelivery_that_loses_the_race_to_the_sender_is_decided_again() -> None:
    storage = Raced()
    async with orchestrator(storage=storage) as director:
        pending = delivery(client="ada", tries=3)
        await storage.put_records([delivery_write(pending, THEN.replace(year=2100))])
        # The sender has tried once more, and failed, between our read and our write.
        storage.first = [delivery_write(replace(pending, tries=4), THEN.replace(year=2101))]

        found = await service(director).redeliver(ADA, pending.id)

        item = await find_record(storage, WEBHOOK_COLLECTION, pending.id)
        assert found.delivery.tries == 0
        assert item is None or delivery_of(item).tries < 3  # it is due now, so the sender may have it
        assert await actions_of(storage, ADA) == [("webhook.redeliver", pending.id)]


async def test_redelivery_of_what_was_delivered_meanwhile_is_not_found_and_not_recorded() -> None:
    storage = Raced()
    async with orchestrator(storage=storage) as director:
        pending = delivery(client="ada", tries=3)
        await storage.put_records([delivery_write(pending, THEN.replace(year=2100))])
        storage.first = [RecordWrite(WEBHOOK_COLLECTION, pending.id, None)]

        with pytest.raises(DeliveryNotFound):
            await service(director).redeliver(ADA, pending.id)

        assert await find_record(storage, WEBHOOK_COLLECTION, pending.id) is None
        assert await actions_of(storage, ADA) == []


async def test_a_delivery_that_was_not_tried_yet_stays_as_it_is() -> None:
    async with orchestrator() as director:
        pending = delivery(client="ada")
        later = THEN.replace(year=2100)
        await director.storage.put_records([delivery_write(pending, later)])
        found = await service(director).redeliver(ADA, pending.id)
        assert found.item.due == later
        assert await actions_of(director.storage, ADA) == []


async def test_a_discarded_delivery_is_gone_although_the_sender_gave_it_up_meanwhile() -> None:
    storage = Raced()
    async with orchestrator(storage=storage) as director:
        pending = delivery(client="ada", tries=3)
        await storage.put_records([delivery_write(pending, THEN.replace(year=2100))])
        storage.first = [RecordWrite(WEBHOOK_COLLECTION, pending.id, None), dead_write(pending)]

        assert (await service(director).discard(ADA, pending.id)).delivery.id == pending.id

        with pytest.raises(DeliveryNotFound):
            await service(director).get(ADA, pending.id)
        assert await actions_of(storage, ADA) == [("webhook.discard", pending.id)]


async def test_each_client_has_its_own_signing_secret() -> None:
    async with orchestrator() as director:
        mine, yours = await service(director).secrets(ADA), await service(director).secrets(BOB)
        assert mine.derived
        assert mine.secrets != yours.secrets
