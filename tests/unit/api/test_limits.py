"""Limits: local, shared by several instances, and with a store that is away."""

import asyncio

import pytest

from regista.api import limits as module
from regista.api.limits import Limits
from regista.config.rates import rates_of
from regista.errors import StorageUnavailable
from regista.model import Rate, TokenGrant
from regista.storage.counters import TokenBuckets
from regista.testing.clock import Clock

RATE = Rate(100, 100.0)


class Store:
    """The shared bucket, and how often it was asked."""

    def __init__(self, clock: Clock) -> None:
        self.buckets = TokenBuckets(clock)
        self.asked = 0
        self.away = False
        self.silent = False

    async def take(self, bucket: str, n: int, limit: int, window_s: float) -> TokenGrant:
        self.asked += 1
        if self.silent:
            await asyncio.sleep(60)
        await asyncio.sleep(0)
        if self.away:
            raise StorageUnavailable("away")
        return self.buckets.take(bucket, n, limit, window_s)


async def spent(limits: Limits, times: int, key: str = "ada", n: int = 1) -> int:
    """How many of so many wishes were granted."""
    granted = 0
    for _ in range(times):
        granted += await limits.spend(limits.bucket("submit", key, RATE), n)
    return granted


async def test_alone_it_asks_nobody_and_keeps_everybody_apart() -> None:
    clock = Clock()
    limits = Limits(rates_of({}), clock.elapsed)
    assert await spent(limits, 150) == 100
    assert await spent(limits, 150, "bob") == 100
    clock.move(10.0)
    assert await spent(limits, 150) == 10
    bucket = limits.bucket("submit", "ada", RATE)
    assert limits.is_spent(bucket)
    assert limits.wait_s(bucket) == 1.0


async def test_instances_that_share_a_store_let_through_what_the_limit_says_together() -> None:
    clock = Clock()
    store = Store(clock)
    instances = [Limits(rates_of({}), clock.elapsed, store.take) for _ in range(3)]
    granted = await asyncio.gather(*(spent(one, 100) for one in instances))
    assert sum(granted) == 100
    assert min(granted) > 0
    # Far fewer round trips than requests, though the bucket is small.
    assert store.asked < 60
    clock.move(50.0)
    more = [await spent(one, 100) for one in instances]
    assert 40 <= sum(more) <= 50 + 3 * 10
    for one in instances:
        await one.close()


async def test_a_large_limit_costs_one_round_trip_in_hundreds_of_requests() -> None:
    clock = Clock()
    store = Store(clock)
    limits = Limits(rates_of({}), clock.elapsed, store.take)
    rate = Rate(600_000, 60.0)
    for _ in range(5000):
        assert await limits.spend(limits.bucket("submit", "ada", rate))
    assert store.asked <= 8
    await limits.close()


async def test_a_store_that_is_away_makes_each_count_for_itself() -> None:
    clock = Clock()
    store = Store(clock)
    store.away = True
    limits = Limits(rates_of({}), clock.elapsed, store.take)
    assert await spent(limits, 150) == 100
    assert store.asked == 1  # left alone for a while
    await limits.close()


def test_a_store_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        store = Store(Clock())
        store.silent = True
        limits = Limits(rates_of({}), loop.time, store.take)
        assert await asyncio.wait_for(limits.spend(limits.bucket("submit", "ada", RATE)), 5)
        # Once is enough: nobody else waits meanwhile, whoever it is.
        began = loop.time()
        for number in range(20):
            assert await limits.spend(limits.bucket("submit", f"client-{number}", RATE))
        assert loop.time() - began < 0.5
        await limits.close()

    monkeypatch.setattr(module, "_PATIENCE_S", 0.05)
    asyncio.run(main())


async def test_a_batch_takes_as_many_as_it_holds() -> None:
    clock = Clock()
    store = Store(clock)
    for limits in (
        Limits(rates_of({}), clock.elapsed),
        Limits(rates_of({}), clock.elapsed, store.take),
    ):
        assert await spent(limits, 1, n=60) == 1
        assert await spent(limits, 1, n=60) == 0
        assert await spent(limits, 1, n=40) == 1
        await limits.close()


async def test_what_is_charged_afterwards_counts_for_all_instances() -> None:
    clock = Clock()
    store = Store(clock)
    one, other = (Limits(rates_of({}), clock.elapsed, store.take) for _ in range(2))
    for _ in range(110):
        one.charge(one.bucket("auth", "10.0.0.1", RATE))
        await asyncio.sleep(0.0)
        await asyncio.sleep(0.0)
    bucket = other.bucket("auth", "10.0.0.1", RATE)
    other.charge(bucket)
    for _ in range(5):
        await asyncio.sleep(0)
    assert one.is_spent(one.bucket("auth", "10.0.0.1", RATE))
    assert other.is_spent(bucket)
    await one.close()
    await other.close()


async def test_the_memory_of_strangers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SWEEP_AT", 100)
    monkeypatch.setattr(module, "_MOST", 400)

    clock = Clock()
    limits = Limits(rates_of({}), clock.elapsed)
    for number in range(3000):
        await limits.spend(limits.bucket("public", f"10.0.{number}", RATE))
    assert len(limits) <= 400
    clock.move(100.0)
    for number in range(401):
        limits.bucket("public", f"10.1.{number}", RATE)
    assert len(limits) <= 401


async def test_a_client_whose_rate_is_changed_begins_with_a_full_bucket_and_one_that_stays_does_not() -> None:
    limits = Limits(rates_of({}), Clock().elapsed)
    assert await spent(limits, 100) == 100
    same = limits.bucket("submit", "ada", Rate(100, 100.0))
    assert same.left() == 0
    assert limits.bucket("submit", "ada", Rate(5, 1.0)).left() == 5
