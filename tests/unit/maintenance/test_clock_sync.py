"""One time of day for all who share a store, whatever their own clocks say."""

import asyncio
import logging
from datetime import datetime, timedelta

import pytest

from regista.clock import StoreClock
from regista.maintenance.clock_sync import ClockSync
from regista.testing.clock import Clock


class Store:
    """A store whose clock is right; asking takes a while of the machine's own time."""

    def __init__(self, right: Clock, machine: Clock, takes_s: float = 0.0) -> None:
        self.right, self.machine, self.takes_s = right, machine, takes_s

    async def now(self) -> datetime:
        self.right.move(self.takes_s / 2)
        self.machine.move(self.takes_s / 2)
        told = self.right.now()
        self.right.move(self.takes_s / 2)
        self.machine.move(self.takes_s / 2)
        return told


def test_a_clock_that_is_ahead_follows_the_stores(caplog: pytest.LogCaptureFixture) -> None:
    right, machine = Clock(), Clock()
    store = Store(right, machine, takes_s=0.2)
    clock = StoreClock(machine)
    keeper = ClockSync(store, clock)
    # given: a machine that is three minutes ahead
    clock.own = Ahead(machine, timedelta(minutes=3))
    with caplog.at_level(logging.WARNING, "regista.maintenance"):
        for _ in range(3):
            asyncio.run(keeper.run_once(clock.now()))
            assert abs(clock.now() - right.now()) < timedelta(milliseconds=1)
    assert [record.getMessage() for record in caplog.records] == [
        "this machine's clock is 180.0 s ahead of the store's; the store's counts"
    ]


def test_an_answer_that_came_late_is_not_believed() -> None:
    right, machine = Clock(), Clock()
    clock = StoreClock(machine)
    asyncio.run(ClockSync(Store(right, machine, takes_s=3.0), clock).run_once(clock.now()))
    assert clock.ahead == timedelta()


class Ahead:
    """A clock that shows another time of day; what has elapsed is right."""

    def __init__(self, clock: Clock, by: timedelta) -> None:
        self._clock, self._by = clock, by

    def now(self) -> datetime:
        return self._clock.now() + self._by

    def elapsed(self) -> float:
        return self._clock.elapsed()
