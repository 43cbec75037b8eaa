"""Tests of the exchange: what the instances of a shared store tell each other."""

import asyncio
from collections.abc import Sequence

from regista.dispatch.connected import ConnectedWorkers
from regista.dispatch.elsewhere import Elsewhere
from regista.dispatch.exchange import PATIENCE_S, Exchange
from regista.model import FreeSlots, QueueKey, Worker, queue_key_text
from regista.storage.base import Hint, HintKind
from regista.storage.memory import MemoryStorage

LANE = QueueKey("encode", "encode")


async def heard_after_leaving(stop: bool) -> list[Hint]:
    """The hints about tasks that follow when two tasks of a lane are left to another instance."""
    storage, elsewhere = MemoryStorage(), Elsewhere()
    heard: list[Hint] = []
    await storage.start()
    exchange = Exchange(storage, ConnectedWorkers(), elsewhere, "here")
    exchange.start()
    storage.subscribe(heard.append)
    elsewhere.learn({"there": [FreeSlots(worker=Worker(id="w", skills=("encode",)), free=2, workers=1)]})
    for _ in range(2):
        rival = elsewhere.better_than(None, LANE)
        assert rival is not None
        assert elsewhere.leave(rival, LANE) == "there"
    if stop:
        await exchange.stop()
    await asyncio.sleep(PATIENCE_S + 0.1)
    await exchange.stop()
    await storage.stop()
    return [hint for hint in heard if hint.kind is HintKind.TASK]


def test_of_a_task_that_was_left_to_one_instance_all_are_told_a_moment_later() -> None:
    assert asyncio.run(heard_after_leaving(stop=False)) == [Hint(HintKind.TASK, queue_key_text(LANE))]


def test_a_stopped_exchange_tells_nobody_anything() -> None:
    assert asyncio.run(heard_after_leaving(stop=True)) == []


class SlowStorage(MemoryStorage):
    """A store whose hints never leave."""

    def __init__(self) -> None:
        super().__init__()
        self.began = self.ended = 0

    async def nudge(self, hints: Sequence[Hint]) -> None:
        self.began += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.ended += 1


async def test_stop_cancels_every_broadcast_that_is_under_way() -> None:
    # given a store that holds two broadcasts
    storage, elsewhere = SlowStorage(), Elsewhere()
    await storage.start()
    exchange = Exchange(storage, ConnectedWorkers(), elsewhere, "here")
    exchange.start()
    for _ in range(2):
        elsewhere.learn({"there": [FreeSlots(worker=Worker(id="w", skills=("encode",)), free=2, workers=1)]})
        rival = elsewhere.better_than(None, LANE)
        assert rival is not None
        elsewhere.leave(rival, LANE)
        await asyncio.sleep(PATIENCE_S + 0.05)
    assert (storage.began, storage.ended) == (2, 0)
    # when
    await exchange.stop()
    # then
    assert storage.ended == 2
    await storage.stop()
