"""What other instances have free, and who gets a task because of it."""

import asyncio
from collections.abc import Sequence

from regista.dispatch.connected import CallbackConnection, ConnectedWorker, ConnectedWorkers
from regista.dispatch.peer_slots import BROADCAST_AFTER_S, PeerSlots, SlotExchange
from regista.model import FreeSlots, Profile, QueueKey, Worker, match_options_text, queue_key_text
from regista.storage.base import Hint, HintKind
from regista.storage.memory import MemoryStorage


def worker(cost: float = 1.0, *skills: str, hot: tuple[str, ...] = ()) -> Worker:
    return Worker(id="w", skills=skills or ("work",), profile=Profile(cost_per_second=cost, hot=hot))


def connected(cost: float = 1.0, *holding: str) -> ConnectedWorker:
    return ConnectedWorker(
        worker(cost), CallbackConnection(lambda tasks: None, lambda attempts: None), holding
    )


def queue_key(strategy: str | None = None) -> QueueKey:
    return QueueKey("work", "work", match_options_text({}, None, strategy))


def peers_with(**slots: FreeSlots) -> PeerSlots:
    known = PeerSlots()
    known.update({name: [one] for name, one in slots.items()})
    return known


def test_nobody_elsewhere_is_better_than_anybody() -> None:
    known = peers_with()
    assert not known.classes
    assert known.better_than(None, queue_key()) is None
    assert known.better_than(connected(), queue_key()) is None


def test_whoever_has_a_slot_is_better_than_nobody_but_only_if_it_may_do_the_task() -> None:
    known = peers_with(
        i1=FreeSlots(worker(1.0, "other"), 1, 5), i2=FreeSlots(worker(), 1, 5), i3=FreeSlots(worker(), 0, 0)
    )
    peer = known.better_than(None, queue_key())
    assert peer is not None
    assert peer.instance == "i2"


def test_a_cheaper_or_a_warm_worker_elsewhere_wins_and_a_tie_is_ours() -> None:
    known = peers_with(i1=FreeSlots(worker(0.5), 1, 5))
    assert known.better_than(connected(0.5), queue_key("cheapest")) is None
    assert known.better_than(connected(0.4), queue_key("cheapest")) is None
    peer = known.better_than(connected(0.6), queue_key("cheapest"))
    assert peer is not None
    warm = peers_with(i1=FreeSlots(worker(9.0, hot=("work",)), 1, 5))
    assert warm.better_than(connected(0.1), queue_key()) is not None


def test_what_is_left_to_another_counts_until_there_is_news() -> None:
    known = peers_with(i1=FreeSlots(worker(), 1, 2), i2=FreeSlots(worker(2.0), 1, 1))
    woken = []
    while (peer := known.better_than(None, queue_key("cheapest"))) is not None:
        woken.append(peer.take())
    assert woken == ["i1", "i1", "i2"]
    known.update({"i1": [FreeSlots(worker(), 1, 1)]})
    assert known.better_than(None, queue_key("cheapest")) is not None


def test_strategies_that_spread_look_at_the_load_of_the_least_busy() -> None:
    known = peers_with(i1=FreeSlots(worker(), 2, 20, held=1))
    for strategy in ("round_robin", "least_connections"):
        assert known.better_than(connected(1.0, "a"), queue_key(strategy)) is None
        assert known.better_than(connected(1.0, "a", "b"), queue_key(strategy)) is not None
    peer = known.better_than(connected(1.0, "a", "b"), queue_key("round_robin"))
    assert peer is not None
    peer.take()
    peer.take()  # one for each of its two seats: now it is as busy as ours
    assert known.better_than(connected(1.0, "a", "b"), queue_key("round_robin")) is None


# -- what the instances of a shared store publish ------------------------------------------------------

LANE = QueueKey("encode", "encode")


async def heard_after_leaving(stop: bool) -> list[Hint]:
    """The hints about tasks that follow when two tasks of a lane are left to another instance."""
    storage, peers = MemoryStorage(), PeerSlots()
    heard: list[Hint] = []
    await storage.start()
    exchange = SlotExchange(storage, ConnectedWorkers(), peers, "here")
    exchange.start()
    storage.subscribe(heard.append)
    peers.update({"there": [FreeSlots(worker=Worker(id="w", skills=("encode",)), free=2, workers=1)]})
    for _ in range(2):
        peer = peers.better_than(None, LANE)
        assert peer is not None
        assert peers.leave(peer, LANE) == "there"
    if stop:
        await exchange.stop()
    await asyncio.sleep(BROADCAST_AFTER_S + 0.1)
    await exchange.stop()
    await storage.stop()
    return [hint for hint in heard if hint.kind is HintKind.TASK]


def test_of_a_task_that_was_left_to_one_instance_all_are_told_a_moment_later() -> None:
    assert asyncio.run(heard_after_leaving(stop=False)) == [Hint(HintKind.TASK, queue_key_text(LANE))]


def test_a_stopped_exchange_tells_nobody_anything() -> None:
    assert asyncio.run(heard_after_leaving(stop=True)) == []


class SlowStorage(MemoryStorage):
    """A store whose hints about tasks never leave."""

    def __init__(self) -> None:
        super().__init__()
        self.began = self.ended = 0

    async def publish(self, hints: Sequence[Hint]) -> None:
        if all(hint.kind is not HintKind.TASK for hint in hints):
            return
        self.began += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.ended += 1


async def test_stop_cancels_every_broadcast_that_is_under_way() -> None:
    # given a store that holds two broadcasts
    storage, peers = SlowStorage(), PeerSlots()
    await storage.start()
    exchange = SlotExchange(storage, ConnectedWorkers(), peers, "here")
    exchange.start()
    for _ in range(2):
        peers.update({"there": [FreeSlots(worker=Worker(id="w", skills=("encode",)), free=2, workers=1)]})
        peer = peers.better_than(None, LANE)
        assert peer is not None
        peers.leave(peer, LANE)
        await asyncio.sleep(BROADCAST_AFTER_S + 0.05)
    assert (storage.began, storage.ended) == (2, 0)
    # when
    await exchange.stop()
    # then
    assert storage.ended == 2
    await storage.stop()


def test_an_isolated_task_is_left_to_an_idle_worker_only() -> None:
    isolated = QueueKey("work", "work", match_options_text({}, None, None, isolated=True))
    assert peers_with(i1=FreeSlots(worker(), 1, 5, held=1)).better_than(None, isolated) is None
    assert peers_with(i1=FreeSlots(worker(), 1, 5)).better_than(None, isolated) is not None
