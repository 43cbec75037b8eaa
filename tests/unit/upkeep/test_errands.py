"""Errands: what was taken on is nobody else's for a while."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from regista import MemoryStorage
from regista.clock import SystemClock
from regista.model import Record, RecordWrite
from regista.model.delivery import DEAD_COLLECTION, WEBHOOK_COLLECTION, delivery_write
from regista.testing.clock import Clock
from regista.upkeep.errands import Errand, Hands, read, receiver_of
from tests.webhook_kit import THEN, delivery


async def on_shelf() -> tuple[MemoryStorage, Record]:
    storage = MemoryStorage(SystemClock())
    await storage.start()
    await storage.put_records([delivery_write(delivery(), THEN)])
    (item,) = await storage.records(WEBHOOK_COLLECTION)
    return storage, item


async def test_of_two_who_share_a_store_one_gets_it_and_the_shelf_says_until_when() -> None:
    storage, item = await on_shelf()
    errands: list[Errand] = []
    answers: list[bool] = []
    for _ in range(2):
        hands = Hands(storage, Clock(), 22.0, alone=False)
        errands.append(hands.errand(delivery(), item))
        answers += await hands.take(errands[-1:], THEN)
        assert hands.full() == 0
    assert answers == [True, False]
    (moved,) = await storage.records(WEBHOOK_COLLECTION)
    assert (moved.due, moved.revision, moved.value) == (THEN + timedelta(seconds=22), 2, item.value)
    assert await storage.put_records([errands[0].removed()]) == [True]
    await storage.stop()


async def test_whoever_is_alone_remembers_it_until_the_lease_is_over() -> None:
    storage, item = await on_shelf()
    clock = Clock()
    hands = Hands(storage, clock, 22.0, alone=True)
    errand = hands.errand(delivery(), item)
    assert not hands.has(item.key)
    assert await hands.take([errand], THEN) == [True]
    assert await storage.records(WEBHOOK_COLLECTION) == [item]
    assert (hands.has(item.key), hands.full()) == (True, 1)
    clock.move(22)
    assert (hands.has(item.key), hands.full()) == (False, 0)

    errand = hands.errand(delivery(), item)
    await hands.take([errand], THEN)
    hands.let_go(item.key)
    hands.let_go(item.key)
    assert hands.has(item.key)  # who looks just now may still see it
    assert hands.full() == 0
    assert not hands.has(item.key)
    assert await storage.put_records([errand.removed()]) == [True]
    await storage.stop()


async def test_leases_of_what_nobody_finds_on_the_shelf_any_more_do_not_pile_up() -> None:
    storage, item = await on_shelf()
    clock = Clock()
    hands = Hands(storage, clock, 22.0, alone=True)
    for number in range(1000):
        await hands.take([hands.errand(delivery(), replace(item, key=f"job-{number}"))], THEN)
    assert hands.full() == 1000
    clock.move(23)
    assert hands.full() == 0
    await storage.stop()


@pytest.mark.parametrize("alone", [True, False])
async def test_what_stood_in_a_line_for_long_is_taken_on_anew_before_its_time_is_over(alone: bool) -> None:
    storage, item = await on_shelf()
    clock = Clock()
    hands = Hands(storage, clock, 22.0, alone)
    errand = hands.errand(delivery(), item)
    await hands.take([errand], clock.now())
    assert hands.has_time(errand)

    clock.move(20)
    assert not hands.has_time(errand)
    renewed = await hands.renew(errand)
    assert renewed is not None
    assert hands.has_time(renewed)
    clock.move(20)
    assert (hands.owns(renewed), hands.owns(errand)) == (True, False)
    assert await storage.put_records([renewed.removed()]) == [True]
    await storage.stop()


@pytest.mark.parametrize("alone", [True, False])
async def test_what_was_taken_on_by_somebody_after_its_time_is_given_back_by_nobody(alone: bool) -> None:
    storage, item = await on_shelf()
    clock = Clock()
    hands = Hands(storage, clock, 22.0, alone)
    late = hands.errand(delivery(), item)
    await hands.take([late], clock.now())
    clock.move(23)
    assert not hands.has(item.key)
    (item,) = await storage.records(WEBHOOK_COLLECTION)
    errand = hands.errand(delivery(), item)
    assert await hands.take([errand], clock.now()) == [True]

    assert not hands.owns(late)
    assert await hands.renew(late) is None
    assert hands.owns(errand)
    assert await storage.put_records([errand.removed()]) == [True]
    await storage.stop()


async def test_a_third_word_waits_for_the_first_try_of_the_second_whatever_became_of_the_first() -> None:
    storage, _ = await on_shelf()
    first, second, third = delivery(tries=1), delivery(revision=3), delivery(revision=4)
    await storage.put_records([delivery_write(one, THEN) for one in (first, second, third)])
    hands = Hands(storage, Clock(), 22.0, alone=True)
    assert await hands.behind([second], THEN) == [None]
    assert await hands.behind([third], THEN) == [THEN + timedelta(seconds=1)]
    await storage.put_records([RecordWrite(WEBHOOK_COLLECTION, first.id, b"spoiled", THEN)])
    assert await hands.behind([third], THEN) == [THEN + timedelta(seconds=1)]
    await storage.put_records([delivery_write(delivery(revision=3, tries=1), THEN)])
    assert await hands.behind([third], THEN) == [None]
    await storage.stop()


async def test_a_word_behind_one_that_was_put_off_for_long_comes_back_after_it_and_not_each_second() -> None:
    storage, _ = await on_shelf()
    hands = Hands(storage, Clock(), 22.0, alone=True)
    for put_off_s, wait_s in ((20, 1), (600, 601)):
        due = THEN + timedelta(seconds=put_off_s)
        await storage.put_records([delivery_write(delivery(), due)])
        assert await hands.behind([delivery(revision=3)], THEN) == [THEN + timedelta(seconds=wait_s)]
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


def test_why_a_delivery_cannot_be_read_is_told(caplog: pytest.LogCaptureFixture) -> None:
    writes: list[RecordWrite] = []
    assert read(Record(WEBHOOK_COLLECTION, "d-1", b"\xa7spoiled", 3, THEN), writes) is None
    assert "delivery d-1 cannot be read (Expected `object`, got `str`)" in caplog.text
    assert [(write.collection, write.key) for write in writes] == [
        (DEAD_COLLECTION, "d-1"),
        (WEBHOOK_COLLECTION, "d-1"),
    ]
