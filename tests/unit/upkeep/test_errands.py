"""Errands: what was taken on is nobody else's for a while."""

from datetime import timedelta

from regista import MemoryStorage
from regista.clock import SystemClock
from regista.model import Item
from regista.model.delivery import WEBHOOK_SHELF, delivery_write
from regista.testing.clock import Clock
from regista.upkeep.errands import Errand, Hands, receiver_of
from tests.webhook_kit import THEN, delivery, in_loop


async def on_shelf() -> tuple[MemoryStorage, Item]:
    storage = MemoryStorage(SystemClock())
    await storage.start()
    await storage.put([delivery_write(delivery(), THEN)])
    (item,) = await storage.items(WEBHOOK_SHELF)
    return storage, item


@in_loop
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
    (moved,) = await storage.items(WEBHOOK_SHELF)
    assert (moved.due, moved.revision, moved.value) == (THEN + timedelta(seconds=22), 2, item.value)
    assert await storage.put([errands[0].removed()]) == [True]
    await storage.stop()


@in_loop
async def test_whoever_is_alone_remembers_it_until_the_lease_is_over() -> None:
    storage, item = await on_shelf()
    clock = Clock()
    hands = Hands(storage, clock, 22.0, alone=True)
    errand = hands.errand(delivery(), item)
    assert not hands.has(item.key)
    assert await hands.take([errand], THEN) == [True]
    assert await storage.items(WEBHOOK_SHELF) == [item]
    assert (hands.has(item.key), hands.full()) == (True, 1)
    clock.move(22)
    assert (hands.has(item.key), hands.full()) == (False, 0)

    await hands.take([errand], THEN)
    hands.let_go(item.key)
    hands.let_go(item.key)
    assert hands.has(item.key)  # who looks just now may still see it
    assert hands.full() == 0
    assert not hands.has(item.key)
    assert await storage.put([errand.removed()]) == [True]
    await storage.stop()


def test_a_receiver_is_named_without_path_and_password() -> None:
    assert receiver_of("https://ann:pw@example.com:8443/hook?key=1") == "https://example.com:8443"
    assert receiver_of("http://[::1") == "an unreadable URL"
