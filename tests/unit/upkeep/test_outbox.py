"""The OutboxKeeper: history moves, or somebody hears of it."""

import logging

import pytest

from regista.errors import HistoryUnavailable
from regista.history.memory import MemoryHistory
from regista.testing.orchestrator import TestOrchestrator
from regista.upkeep.outbox import OutboxKeeper
from tests.support import one_task


def test_what_history_has_taken_is_counted() -> None:
    with TestOrchestrator(one_task()) as kit:
        director = kit.director
        keeper = OutboxKeeper(
            director.storage, director.history, lambda: None, lambda: director.recorder.recorded
        )
        kit.call(lambda: keeper.run_once(kit.now))
        before = director.recorder.recorded
        kit.submit("script")
        kit.call(director.recorder.drain)

        # A count, though the numbers of entries go in leaps.
        done = kit.call(lambda: keeper.run_once(kit.now)).done
        assert done == director.recorder.recorded - before
        assert 1 <= done <= 20
        assert kit.call(lambda: keeper.run_once(kit.now)).done == 0


def test_an_entry_that_waits_twice_wakes_the_recorder_and_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    woken: list[int] = []
    with TestOrchestrator(one_task()) as kit:
        stuck = MemoryHistory()  # nobody records into this one
        keeper = OutboxKeeper(kit.director.storage, stuck, lambda: woken.append(1), lambda: 0)
        kit.director.upkeep.chores = []
        kit.submit("script")
        with caplog.at_level(logging.WARNING, "regista.upkeep"):
            for _ in range(3):
                kit.call(lambda: keeper.run_once(kit.now))

        assert len(woken) == 2
        assert len([one for one in caplog.records if "still waits" in one.message]) == 1


def test_a_history_that_is_away_says_so_itself() -> None:
    class Away(MemoryHistory):
        async def cursor(self) -> int:
            raise HistoryUnavailable("away")

    with TestOrchestrator(one_task()) as kit:
        keeper = OutboxKeeper(kit.director.storage, Away(), lambda: None, lambda: 0)

        assert kit.call(lambda: keeper.run_once(kit.now)).done == 0
