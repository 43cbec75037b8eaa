"""Promises about jobs whose next handler can run, and who may run it."""

import asyncio

from ....model import AwaitVersion, JobStatus
from ....storage.base import StorageBackend
from .kit import (
    ALL,
    APPLIED,
    FINISHED,
    PARKED,
    STALE,
    V1,
    V2,
    ManualClock,
    claim,
    commit,
    create,
    dispatch,
    fan_out,
    job_of,
    make_job,
    make_task,
    next_of,
    on_a_clock,
    timer,
    write,
)


class ReadyPromises:
    """Part of the suite that `StorageConformance` is."""

    @on_a_clock
    async def test_two_claimers_have_one_winner(self, storage: StorageBackend, clock: ManualClock) -> None:
        await create(storage, *(make_job(f"job-{n:02}") for n in range(20)))
        shares = await asyncio.gather(*(claim(storage, f"i{n}", limit=3) for n in range(10)))
        taken = [job_id for share in shares for job_id in share]
        assert sorted(taken) == [f"job-{n:02}" for n in range(20)]

    @on_a_clock
    async def test_a_claimed_job_is_the_newest_record(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await create(storage, make_job())
        newest = next_of(await job_of(storage), data={"n": 1})
        await commit(storage, write(newest))
        assert await storage.claim_ready("me", [V1], ALL, 30) == [newest]

    @on_a_clock
    async def test_jobs_of_a_version_are_claimed_oldest_first(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        for job_id in ("c", "a", "b", "d"):
            await create(storage, make_job(job_id))
        assert await claim(storage, limit=2) == ["c", "a"]
        assert await claim(storage, limit=0) == []
        assert await claim(storage, limit=3) == ["b", "d"]

    @on_a_clock
    async def test_only_the_versions_asked_for_are_claimed(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await create(storage, make_job("old"), make_job("new", version="v2"), make_job("x", blueprint="x"))
        assert await claim(storage, versions=[V2]) == ["new"]
        assert await claim(storage, versions=[]) == []
        assert sorted(await claim(storage, versions=[V1, V2, ("x", "v1"), ("y", "v1")])) == ["old", "x"]

    @on_a_clock
    async def test_a_job_that_waits_for_something_is_not_claimed(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await dispatch(storage, make_task("a"))
        await fan_out(storage, 1, "b")
        await create(storage, make_job("c", **PARKED), make_job("d", **timer(1)))
        await create(storage, make_job("e", status=JobStatus.QUARANTINED))
        waiting = make_job("f", status=JobStatus.RUNNING, wait=AwaitVersion("v1"))
        await create(storage, waiting)
        clock.move(100)
        assert await claim(storage) == ["f"]

    @on_a_clock
    async def test_a_lapsed_lease_returns_the_job(self, storage: StorageBackend, clock: ManualClock) -> None:
        await create(storage, make_job())
        assert await claim(storage, "me", lease_s=30) == ["job-1"]
        clock.move(29)
        assert await claim(storage, "you") == []
        clock.move(2)
        assert await claim(storage, "you") == ["job-1"]
        assert await claim(storage, "me") == []

    @on_a_clock
    async def test_an_extended_lease_does_not_lapse(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await create(storage, make_job())
        await claim(storage, "me", lease_s=30)
        for _ in range(4):
            clock.move(20)
            assert await storage.extend_leases("me", ["job-1"], 30) == ["job-1"]
            assert await claim(storage, "you") == []
        clock.move(31)
        assert await claim(storage, "you") == ["job-1"]

    @on_a_clock
    async def test_a_lease_is_extended_from_now_even_if_that_is_sooner(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await create(storage, make_job())
        await claim(storage, "me", lease_s=300)
        assert await storage.extend_leases("me", ["job-1"], 10) == ["job-1"]
        clock.move(11)
        assert await claim(storage, "you") == ["job-1"]

    @on_a_clock
    async def test_only_leases_that_one_holds_are_extended(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await create(storage, make_job("mine"), make_job("yours"), make_job("free"), make_job("ended"))
        assert await claim(storage, "me", limit=1) == ["mine"]
        assert await claim(storage, "you", limit=1) == ["yours"]
        await commit(storage, write(next_of(await job_of(storage, "ended"), **FINISHED)))
        asked = ["ended", "free", "mine", "yours", "unknown"]
        assert await storage.extend_leases("me", asked, 30) == ["mine"]
        clock.move(31)
        assert await claim(storage, "you", limit=ALL) == ["free", "mine", "yours"]
        assert await storage.extend_leases("me", asked, 30) == []

    @on_a_clock
    async def test_a_commit_lets_go_of_the_lease(self, storage: StorageBackend, clock: ManualClock) -> None:
        await create(storage, make_job())
        await claim(storage, "me")
        await commit(storage, write(next_of(await job_of(storage), state="next")))
        assert await storage.extend_leases("me", ["job-1"], 30) == []
        assert await claim(storage, "you") == ["job-1"]

    @on_a_clock
    async def test_a_commit_can_hold_the_job_for_a_while(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        assert await commit(storage, write(make_job(), keep_lease_s=30), instance="me") == [APPLIED]
        assert await claim(storage, "you") == []
        assert await storage.extend_leases("you", ["job-1"], 30) == []
        assert await storage.extend_leases("me", ["job-1"], 30) == ["job-1"]
        await commit(storage, write(next_of(await job_of(storage)), keep_lease_s=10), instance="me")
        clock.move(11)
        assert await claim(storage, "you") == ["job-1"]

    @on_a_clock
    async def test_a_refused_change_takes_nobodys_lease(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        first = make_job()
        await create(storage, first)
        await commit(storage, write(next_of(first)))
        await claim(storage, "me")
        assert await commit(storage, write(next_of(first), keep_lease_s=99), instance="you") == [STALE]
        assert await storage.extend_leases("me", ["job-1"], 30) == ["job-1"]
        clock.move(31)
        assert await claim(storage, "they") == ["job-1"]

    @on_a_clock
    async def test_a_ready_entry_whose_revision_has_passed_is_dropped(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        for job_id, fields in (("parked", PARKED), ("ended", FINISHED), ("moved", {"version": "v2"})):
            await create(storage, make_job(job_id))
            await commit(storage, write(next_of(await job_of(storage, job_id), **fields)))
        assert await claim(storage, versions=[V1]) == []
        assert await claim(storage, versions=[V1, V2]) == ["moved"]
        clock.move(1000)
        assert await claim(storage, versions=[V1]) == []

    @on_a_clock
    async def test_a_job_that_was_written_twice_is_claimed_once(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await create(storage, make_job())
        await commit(storage, write(next_of(await job_of(storage))))
        await commit(storage, write(next_of(await job_of(storage))))
        assert await claim(storage, "me") == ["job-1"]
        assert await claim(storage, "you") == []

    @on_a_clock
    async def test_a_lapsed_lease_of_a_job_that_moved_on_returns_nothing(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await create(storage, make_job("a"), make_job("b"))
        await claim(storage, "me", lease_s=10)
        await commit(storage, write(next_of(await job_of(storage, "a"), **PARKED)))
        await commit(storage, write(next_of(await job_of(storage, "b"), **FINISHED)))
        clock.move(11)
        assert await claim(storage, "you") == []

    @on_a_clock
    async def test_what_an_instance_relinquishes_can_be_claimed_at_once(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await create(storage, *(make_job(job_id) for job_id in ("a", "b", "c", "d", "e")))
        assert await claim(storage, "me", limit=4) == ["a", "b", "c", "d"]
        assert await claim(storage, "you") == ["e"]
        await commit(storage, write(next_of(await job_of(storage, "b"), **PARKED)))
        await commit(storage, write(next_of(await job_of(storage, "c"), **FINISHED)))

        assert await storage.release_leases("me") == 2
        assert await storage.extend_leases("me", ["a", "d"], 30) == []
        assert sorted(await claim(storage, "you")) == ["a", "d"]
        assert await storage.release_leases("me") == 0
        assert await storage.extend_leases("you", ["a", "d", "e"], 30) == ["a", "d", "e"]

    @on_a_clock
    async def test_jobs_of_other_versions_than_the_known_ones_are_stranded(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await create(storage, make_job("a", version="v2"), make_job("b"), make_job("c", version="v2"))
        assert [job.id for job in await storage.stranded([V1], ALL)] == ["a", "c"]
        assert [job.id for job in await storage.stranded([V1], 1)] == ["a"]
        assert await storage.stranded([V1, V2], ALL) == []
        assert {job.id for job in await storage.stranded([], ALL)} == {"a", "b", "c"}

    @on_a_clock
    async def test_stranded_shows_what_is_runnable_and_takes_nothing(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        for job_id, fields in (("parked", PARKED), ("ended", FINISHED), ("moved", {"version": "v2"})):
            await create(storage, make_job(job_id))
            await commit(storage, write(next_of(await job_of(storage, job_id), **fields)))
        await create(storage, make_job("free"))
        assert [job.id for job in await storage.stranded([V2], ALL)] == ["free"]
        assert await claim(storage, "me", lease_s=10) == ["free"]
        assert await storage.stranded([V2], ALL) == []
        clock.move(11)
        assert [job.id for job in await storage.stranded([V2], ALL)] == ["free"]
