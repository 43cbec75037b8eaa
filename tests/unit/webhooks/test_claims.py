"""DeliveryClaims: one instance at a time may send a delivery, and each job's deliveries are first attempted in order."""

from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from regista import MemoryStorage
from regista.clock import SystemClock
from regista.model import RecordWrite
from regista.model.delivery import (
    DEAD_COLLECTION,
    WEBHOOK_COLLECTION,
    WebhookDelivery,
    delivery_of,
    delivery_write,
)
from regista.testing.clock import Clock
from regista.webhooks.claims import ClaimedDelivery, DeliveryClaims, receiver_of
from tests.webhook_kit import THEN, delivery


async def store_of(*deliveries: WebhookDelivery) -> MemoryStorage:
    storage = MemoryStorage(SystemClock())
    await storage.start()
    await storage.put_records([delivery_write(one, THEN) for one in deliveries])
    return storage


async def due(claims: DeliveryClaims, now: datetime = THEN) -> list[ClaimedDelivery]:
    found, _ = await claims.due(now, 100)
    return found


async def test_of_two_instances_one_gets_a_delivery_and_its_record_says_until_when() -> None:
    storage = await store_of(delivery())
    (record,) = await storage.records(WEBHOOK_COLLECTION)
    one, two = (DeliveryClaims(storage, Clock(), 20.0) for _ in range(2))
    mine, theirs = await due(one), await due(two)
    assert await one.claim(mine, THEN) == [True]
    assert await two.claim(theirs, THEN) == [False]
    (moved,) = await storage.records(WEBHOOK_COLLECTION)
    assert (moved.due, moved.revision, moved.value) == (THEN + timedelta(seconds=22), 2, record.value)
    assert await due(two) == []
    await one.complete(mine[0])
    assert await storage.records(WEBHOOK_COLLECTION) == []
    await storage.stop()


async def test_whoever_was_too_late_changes_nothing_that_another_has_claimed() -> None:
    storage = await store_of(delivery())
    one, two = (DeliveryClaims(storage, Clock(), 20.0) for _ in range(2))
    (late,) = await due(one)
    await one.claim([late], THEN)
    (mine,) = await due(two, THEN + timedelta(seconds=23))
    assert await two.claim([mine], THEN + timedelta(seconds=23)) == [True]
    (claimed,) = await storage.records(WEBHOOK_COLLECTION)

    tried = replace(late.delivery, tries=1)
    await one.put_off([(late, THEN)], claimed=True)
    await one.retry(late, tried, THEN)
    await one.complete(late)
    await one.give_up(late, tried)

    assert await storage.records(WEBHOOK_COLLECTION) == [claimed]
    assert await storage.records(DEAD_COLLECTION) == []
    await two.give_up(mine, tried)
    assert await storage.records(WEBHOOK_COLLECTION) == []
    (dead,) = await storage.records(DEAD_COLLECTION)
    assert delivery_of(dead).tries == 1
    await storage.stop()


async def test_a_claim_has_time_until_an_attempt_would_outlive_its_lease() -> None:
    storage, clock = await store_of(delivery()), Clock()
    claims = DeliveryClaims(storage, clock, 20.0)
    (claimed,) = await due(claims)
    clock.move(2)
    assert claims.has_time(claimed)
    clock.move(0.1)
    assert not claims.has_time(claimed)
    await storage.stop()


async def test_a_third_delivery_waits_for_the_first_attempt_of_the_second_whatever_became_of_the_first() -> (
    None
):
    storage = await store_of()
    claims = DeliveryClaims(storage, Clock(), 20.0)
    first, second, third = delivery(tries=1), delivery(revision=3), delivery(revision=4)
    later = THEN + timedelta(hours=1)

    async def ready(*earlier: RecordWrite) -> list[str]:
        await storage.put_records([*earlier, delivery_write(third, THEN)])
        return [each.delivery.id for each in await due(claims)]

    assert await ready(delivery_write(first, later), delivery_write(second, later)) == []
    spoiled = RecordWrite(WEBHOOK_COLLECTION, first.id, b"spoiled", later)
    assert await ready(spoiled) == []
    assert await ready(delivery_write(replace(second, tries=1), later)) == [third.id]
    await storage.stop()


@pytest.mark.parametrize(("put_off_s", "wait_s"), [(20, 1), (600, 601)])
async def test_a_delivery_behind_one_that_was_put_off_for_long_comes_back_after_it(
    put_off_s: float, wait_s: float
) -> None:
    storage = await store_of()
    claims = DeliveryClaims(storage, Clock(), 20.0)
    await storage.put_records(
        [
            delivery_write(delivery(), THEN + timedelta(seconds=put_off_s)),
            delivery_write(delivery(revision=3), THEN),
        ]
    )
    assert await due(claims) == []
    *_, last = await storage.records(WEBHOOK_COLLECTION)
    assert last.due == THEN + timedelta(seconds=wait_s)
    await storage.stop()


async def test_a_record_that_cannot_be_decoded_moves_to_the_failed_ones(
    caplog: pytest.LogCaptureFixture,
) -> None:
    storage = await store_of(delivery())
    await storage.put_records([RecordWrite(WEBHOOK_COLLECTION, "d-1", b"\xa7spoiled", THEN)])
    claims = DeliveryClaims(storage, Clock(), 20.0)
    assert [each.delivery.id for each in await due(claims)] == [delivery().id]
    assert [record.key for record in await storage.records(DEAD_COLLECTION)] == ["d-1"]
    assert "Expected `object`, got `str`" in caplog.text
    await storage.stop()


def test_a_receiver_is_named_without_path_and_password() -> None:
    assert receiver_of("https://ann:pw@example.com:8443/hook?key=1") == "https://example.com:8443"
    assert receiver_of("http://[::1]:99/") == "http://[::1]:99"
    assert receiver_of("http://[::1") == receiver_of("http://a:b/") == "an unreadable URL"


def test_a_receiver_is_the_same_however_its_name_is_written() -> None:
    ways = [
        "https://example.com/a",
        "HTTPS://x@EXAMPLE.com:443",
        "https://example.com.?b",
        "https://example.com:/#c",
    ]
    assert {receiver_of(url) for url in ways} == {"https://example.com"}
    others = ["http://example.com", "https://example.com:80", "https://www.example.com"]
    assert len({receiver_of(url) for url in [*others, *ways]}) == 4
