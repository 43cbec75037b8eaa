"""Promises about how much is left: token buckets, and quotas that creations count."""

import asyncio

import pytest

from ....model import Change, ChildJob, CommitStatus, Job, Quota
from ....storage.base import StorageBackend
from .kit import (
    APPLIED,
    EXISTS,
    FINISHED,
    REPEATED,
    ManualClock,
    Reopen,
    commit,
    job_of,
    make_job,
    next_of,
    on_a_clock,
    over_a_restart,
    shown,
    write,
)

OVER_QUOTA = CommitStatus.OVER_QUOTA
#: Longer than a month.
KEPT_S = 40 * 86400.0


def counted(job: Job, limit: int | None = 3, counter: str = "ann:2026-03", ttl_s: float = KEPT_S) -> Change:
    """The creation of a job that counts."""
    return write(job, quota=Quota(counter, limit, ttl_s))


class CounterPromises:
    """Part of the suite that `StorageConformance` is."""

    @on_a_clock
    async def test_a_new_bucket_is_full_and_gives_all_or_none(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        first = await storage.take_tokens("b", 4, 6, 60)
        assert (first.ok, first.left, first.wait_s) == (True, 2, 0.0)
        assert first.full_in_s == pytest.approx(40)
        refused = await storage.take_tokens("b", 3, 6, 60)
        assert (refused.ok, refused.left) == (False, 2)
        assert refused.wait_s == pytest.approx(10)
        assert refused.full_in_s == pytest.approx(40)
        assert (await storage.take_tokens("b", 2, 6, 60)).ok
        assert (await storage.take_tokens("other", 6, 6, 60)).ok

    @on_a_clock
    async def test_a_bucket_fills_evenly(self, storage: StorageBackend, clock: ManualClock) -> None:
        await storage.take_tokens("b", 6, 6, 60)
        clock.move(9.9)
        assert not (await storage.take_tokens("b", 1, 6, 60)).ok
        clock.move(0.2)
        assert (await storage.take_tokens("b", 1, 6, 60)).ok
        clock.move(20)
        assert [(await storage.take_tokens("b", 1, 6, 60)).ok for _ in range(3)] == [True, True, False]
        clock.move(3600)
        full = await storage.take_tokens("b", 0, 6, 60)
        assert (full.ok, full.left, full.full_in_s) == (True, 6, 0.0)

    @on_a_clock
    async def test_a_bucket_gives_exactly_what_it_holds(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        for limit, window_s in ((1, 0.001), (3, 1.0), (7, 60.0), (11, 3600.0)):
            wishes = (storage.take_tokens(f"{limit}", 1, limit, window_s) for _ in range(limit + 2))
            assert [taken.ok for taken in await asyncio.gather(*wishes)] == [True] * limit + [False] * 2

    @on_a_clock
    async def test_more_than_a_bucket_holds_is_never_given(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        refused = await storage.take_tokens("b", 7, 6, 60)
        assert (refused.ok, refused.left) == (False, 6)
        assert refused.wait_s > 0
        closed = await storage.take_tokens("shut", 1, 0, 60)
        assert (closed.ok, closed.left, closed.wait_s) == (False, 0, 60)

    # -- quotas ----------------------------------------------------------------------------------

    @on_a_clock
    async def test_creations_count_until_the_quota_is_used_up(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        assert await storage.quota_used("ann:2026-03") == 0
        jobs = [make_job(f"job-{n}") for n in range(5)]
        outcomes = await commit(storage, *map(counted, jobs))
        assert outcomes == [APPLIED] * 3 + [OVER_QUOTA] * 2
        assert await storage.quota_used("ann:2026-03") == 3
        assert (await shown(storage, "job-2"), await shown(storage, "job-3")) == (jobs[2], None)
        assert (await storage.outbox(0, 9)).entries == []
        assert await commit(storage, counted(jobs[3], counter="ann:2026-04")) == [APPLIED]

    @on_a_clock
    async def test_a_repeated_or_existing_creation_counts_nothing_and_is_answered(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        first = counted(make_job(), limit=1)
        rival = counted(make_job(), limit=1)
        assert await commit(storage, first, first, rival) == [APPLIED, REPEATED, EXISTS]
        ended = next_of(await job_of(storage), **FINISHED)
        assert await commit(storage, write(ended)) == [APPLIED]
        assert await commit(storage, rival) == [EXISTS]
        assert await storage.quota_used("ann:2026-03") == 1
        assert await commit(storage, counted(make_job("job-2"), limit=1)) == [OVER_QUOTA]

    @on_a_clock
    async def test_only_creations_count_and_children_do_not(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        quota = Quota("ann", 1, KEPT_S)
        birth = ChildJob(make_job("child"), ())
        assert await commit(storage, write(make_job(), quota=quota, children=(birth,))) == [APPLIED]
        later = next_of(await job_of(storage))
        assert await commit(storage, write(later, quota=quota)) == [APPLIED]
        assert await storage.quota_used("ann") == 1

    @on_a_clock
    async def test_without_a_limit_it_is_only_counted(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        jobs = (make_job(f"job-{n}") for n in range(4))
        assert await commit(storage, *(counted(job, None) for job in jobs)) == [APPLIED] * 4
        assert await storage.quota_used("ann:2026-03") == 4
        assert await commit(storage, counted(make_job("none"), limit=0, counter="bob")) == [OVER_QUOTA]

    @on_a_clock
    async def test_a_refused_creation_leaves_no_half_behind(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        bad = counted(make_job(data={"bad": object()}))
        (outcome,) = await storage.commit([bad], "me")
        assert outcome.kind is CommitStatus.UNSTORABLE
        assert await storage.quota_used("ann:2026-03") == 0

    @on_a_clock
    async def test_a_count_is_forgotten_so_long_after_its_last_write(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await commit(storage, counted(make_job("a"), ttl_s=10))
        clock.move(6)
        await commit(storage, counted(make_job("b"), ttl_s=10))
        clock.move(6)
        assert await storage.quota_used("ann:2026-03") == 2
        clock.move(6)
        assert await storage.quota_used("ann:2026-03") == 0
        assert await commit(storage, counted(make_job("c"), limit=1)) == [APPLIED]

    @on_a_clock
    async def test_many_who_create_at_once_never_pass_the_quota(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        rivals = (commit(storage, counted(make_job(f"job-{n}"), limit=5)) for n in range(20))
        outcomes = [outcome for (outcome,) in await asyncio.gather(*rivals)]
        assert outcomes.count(APPLIED) == 5
        assert outcomes.count(OVER_QUOTA) == 15
        assert await storage.quota_used("ann:2026-03") == 5


class CounterPersistence:
    """Part of the suite that `PersistenceConformance` is."""

    @over_a_restart
    async def test_what_a_quota_counted_stays(
        self, storage: StorageBackend, clock: ManualClock, reopen: Reopen
    ) -> None:
        await commit(storage, counted(make_job("a")), counted(make_job("b")))
        await commit(storage, counted(make_job("x"), counter="bob\0ü", ttl_s=10))
        storage = await reopen()
        assert (await storage.quota_used("ann:2026-03"), await storage.quota_used("bob\0ü")) == (2, 1)
        assert await commit(storage, counted(make_job("c")), counted(make_job("d"))) == [APPLIED, OVER_QUOTA]
        clock.move(11)
        storage = await reopen()
        assert (await storage.quota_used("ann:2026-03"), await storage.quota_used("bob\0ü")) == (3, 0)
