"""Buckets give what they hold and what has come back since, no more; and full ones are forgotten."""

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regista.errors import StorageFailed
from regista.model import Quota
from regista.storage.counters import QuotaCounters, TokenBuckets, check_quota, taken
from regista.storage.journal import JournalBatch
from regista.storage.memory import MemoryStorage
from regista.testing.clock import Clock, LoopClock
from regista.testing.conformance.storage.counters import counted
from regista.testing.conformance.storage.kit import make_job
from regista.testing.disk import SimulatedDisk
from regista.testing.loop import VirtualLoop


@given(
    limit=st.integers(1, 50),
    window_s=st.sampled_from([0.5, 1.0, 7.0, 60.0]),
    steps=st.lists(st.tuples(st.sampled_from([0.0, 0.01, 0.3, 2.0]), st.integers(0, 12)), max_size=60),
)
def test_a_bucket_never_gives_more_than_it_held_and_got(
    limit: int, window_s: float, steps: list[tuple[float, int]]
) -> None:
    clock = Clock()
    buckets = TokenBuckets(clock)
    given_out = 0
    for pause, n in steps:
        clock.move(pause)
        answer = buckets.take("b", n, limit, window_s)
        given_out += n if answer.ok else 0
        assert given_out <= limit + clock.elapsed() * limit / window_s + 1e-3
        assert 0 <= answer.left <= limit
        assert 0 <= answer.full_in_s <= window_s * 1.000001
        if not answer.ok and n <= limit:
            # Whoever waits for as long as he was told gets it.
            clock.move(answer.wait_s + 1e-6)
            assert buckets.take("b", n, limit, window_s).ok
            given_out += n


def test_many_small_takes_add_up_exactly() -> None:
    clock = Clock()
    buckets = TokenBuckets(clock)
    clock.move(days=400)  # a large clock has coarse fractions
    assert [buckets.take("b", 1, 7777, 1.0).ok for _ in range(7778)].count(True) == 7777


def test_full_buckets_are_forgotten() -> None:
    clock = Clock()
    buckets = TokenBuckets(clock)
    for n in range(20_000):
        buckets.take(f"address-{n}", 1, 10, 1.0)
        clock.move(0.001)
    assert len(buckets) < 3_000


def test_whoever_asks_for_more_than_there_ever_is_is_told_to_wait_a_while() -> None:
    assert taken(0.0, 11, 10, 60.0).wait_s == pytest.approx(6.0)
    assert taken(30.0, 11, 10, 60.0).wait_s == pytest.approx(30.0)


def test_counts_of_long_ago_are_forgotten_here_and_in_the_file() -> None:
    clock, batch = Clock(), JournalBatch()
    quotas = QuotaCounters(clock)
    for n in range(1000):
        quotas.count(Quota(f"old-{n}", None, 10.0), batch)
    clock.move(11)
    for n in range(1000):
        quotas.count(Quota(f"new-{n}", None, 10.0), batch)
    assert {name for name, row in batch.counts.items() if row.used == 0} == {f"old-{n}" for n in range(1000)}
    assert (quotas.used("old-1"), quotas.used("new-1")) == (0, 1)


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_never_parts_a_job_from_its_count(seed: int) -> None:
    chance = random.Random(seed)
    limit, jobs = 20, [make_job(f"job-{n:02}") for n in range(40)]

    async def main() -> None:
        clock = LoopClock(asyncio.get_running_loop())
        disk = SimulatedDisk(delay=lambda: chance.random())
        storage, done = MemoryStorage(clock, disk), set[str]()
        await storage.start()
        while len(done) < len(jobs):
            change = counted(chance.choice([job for job in jobs if job.id not in done]), limit)
            writing = asyncio.ensure_future(storage.commit([change], "me"))
            await asyncio.wait([writing], timeout=chance.random() * 2)
            if writing.done():
                done.add(change.job_id)
                continue
            disk.pull_the_plug()
            with pytest.raises(StorageFailed):
                await writing
            storage = MemoryStorage(clock, disk)
            await storage.start()
            assert await storage.quota_used("ann:2026-03") == len(disk.jobs) <= limit
        assert await storage.quota_used("ann:2026-03") == len(disk.jobs) == limit
        await storage.stop()

    loop = VirtualLoop()
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


@pytest.mark.parametrize("quota", [Quota("\ud800", 1, 1.0), Quota("a", 1, float("inf"))])
def test_what_no_store_can_keep_is_refused(quota: Quota) -> None:
    with pytest.raises(ValueError, match=r"surrogates|expected seconds"):
        check_quota(quota)
