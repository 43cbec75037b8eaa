"""Promises of stores that keep what they acknowledged."""

import pytest
from msgspec.structs import replace

from ....clock import Clock
from ....model import ChildJob, CommitOutcome, JobStatus
from ....storage.base import Heartbeat, StorageBackend, shared_secret
from .counters import CounterPersistence
from .kit import (
    ALL,
    APPLIED,
    EXISTS,
    FINISHED,
    PARKED,
    REPEATED,
    STALE,
    START,
    STARTED,
    V1,
    V2,
    ManualClock,
    Reopen,
    StorageFactory,
    at,
    claim,
    claim_tasks,
    close_branch,
    closed,
    commit,
    create,
    dispatch,
    due,
    event,
    fan_out,
    fenced,
    job_of,
    make_job,
    make_task,
    make_worker,
    message,
    next_of,
    offers,
    only,
    over_a_restart,
    picture,
    shown,
    timer,
    told,
    waiting_messages,
    write,
)
from .shelves import ShelfPersistence


class PersistenceConformance(ShelfPersistence, CounterPersistence):
    """The suite for stores that keep what they acknowledged. The same fixture, and a way to leave."""

    #: Others may use the store while we are gone: what is held or led there stays so.
    shared = False

    @pytest.fixture
    def open_storage(self) -> StorageFactory:
        """Supplied by the subclass; called again, another store on the same place."""
        raise NotImplementedError

    async def leave(
        self, storage: StorageBackend, open_storage: StorageFactory, clock: Clock
    ) -> StorageBackend:
        """Be done with `storage` and return the next one. A subclass may pull the plug instead."""
        await storage.stop()
        return open_storage(clock)

    @over_a_restart
    async def test_everything_acknowledged_is_there_again(
        self, storage: StorageBackend, clock: ManualClock, reopen: Reopen
    ) -> None:
        await create(storage, make_job("a", data={"at": START, "ü": [1, None]}), events=(event("created"),))
        await fan_out(storage, 3, "b")
        await commit(storage, close_branch(1, "b"))
        await offers(storage, limit=1)
        await create(storage, make_job("c", **timer(90)), messages=(message("m2"), message("m1")))
        await dispatch(storage, make_task("d", dispatch_by=at(4)), make_task("d", 1, not_before=at(3)))
        await create(storage, make_job("e", **PARKED), children=(ChildJob(make_job("f"), (event("born"),)),))
        before = await picture(storage, list("abcdef"))
        assert await picture(await reopen(), list("abcdef")) == before
        assert await picture(await reopen(), list("abcdef")) == before

    @over_a_restart
    async def test_a_look_at_many_shows_the_same_after_a_restart(
        self, storage: StorageBackend, clock: ManualClock, reopen: Reopen
    ) -> None:
        for status in JobStatus:
            await create(storage, make_job(status.value, client=f"of {status.value}"))
            await commit(storage, write(next_of(await job_of(storage, status.value), status=status)))
        names = [status.value for status in JobStatus]
        before = await storage.get(names)
        assert await (await reopen()).get(names) == before

    @over_a_restart
    async def test_many_changes_of_one_flush_are_there_again(
        self, storage: StorageBackend, clock: ManualClock, reopen: Reopen
    ) -> None:
        jobs = [make_job(f"job-{n:03}") for n in range(200)]
        changes = [write(job, events=(event(job.id),), messages=(message(job.id),)) for job in jobs]
        changes += [write(next_of(job, **FINISHED), consumes_message=job.id) for job in jobs[::2]]
        assert await commit(storage, *changes) == [APPLIED] * 300
        storage = await reopen()
        assert await claim(storage) == [job.id for job in jobs[1::2]]
        assert await waiting_messages(storage) == [job.id for job in jobs[1::2]]
        assert [entry.job_id for entry in (await storage.outbox(0, ALL)).entries] == [job.id for job in jobs]

    @over_a_restart
    async def test_the_ready_queue_is_rebuilt_in_the_order_of_ids(
        self, storage: StorageBackend, clock: ManualClock, reopen: Reopen
    ) -> None:
        await create(storage, make_job("a"), make_job("b", version="v2"), make_job("c"), make_job("d"))
        await commit(storage, write(next_of(await job_of(storage, "c"), **PARKED)))
        storage = await reopen()
        assert await claim(storage, versions=[V1]) == ["a", "d"]
        assert await claim(storage, versions=[V2]) == ["b"]

    @over_a_restart
    async def test_leases_workers_and_leaders_are_gone_unless_others_share_the_store(
        self, storage: StorageBackend, clock: ManualClock, reopen: Reopen
    ) -> None:
        await create(storage, make_job())
        await commit(storage, write(make_job("job-2"), keep_lease_s=3600))
        await claim(storage, "me", limit=1, lease_s=3600)
        await storage.register(make_worker(), 3600)
        await storage.lead("rescue", "me", 3600)
        storage = await reopen()
        left = [worker.id for worker in await storage.workers()]
        leads = await storage.lead("rescue", "you", 30)
        held = await storage.extend_leases("me", ["job-1", "job-2"], 30)
        free = await claim(storage, "you")
        if self.shared:
            assert (left, leads, held, free) == (["w1"], False, ["job-1", "job-2"], [])
        else:
            assert (left, leads, held, free) == ([], True, [], ["job-1", "job-2"])

    @over_a_restart
    async def test_a_session_never_comes_back(
        self, storage: StorageBackend, clock: ManualClock, reopen: Reopen
    ) -> None:
        before = [(await storage.register(make_worker(f"w{n}"), 30)).session for n in range(5)]
        clock.move(1)
        storage = await reopen()
        again = await storage.register(make_worker("w4"), 30)
        assert again.session > max(before)
        assert (await storage.heartbeat([Heartbeat("w4", before[-1], 30)]))[0] is False

    @over_a_restart
    async def test_tasks_in_the_hands_of_a_worker_stay_there(
        self, storage: StorageBackend, clock: ManualClock, reopen: Reopen
    ) -> None:
        await fan_out(storage, 3)
        first, second = await claim_tasks(storage, make_worker(session=4), 2, at(1))
        started = replace(first, state=STARTED, started_at=at(2))
        await commit(storage, only("job-1", fenced(started)))
        storage = await reopen()
        assert await storage.holders() == ["w1"]
        assert await storage.held_by("w1") == [started, second]
        assert await offers(storage) == ["job-1_1_2"]

    @over_a_restart
    async def test_lanes_are_rebuilt_in_the_same_order(
        self, storage: StorageBackend, clock: ManualClock, reopen: Reopen
    ) -> None:
        await dispatch(storage, *(make_task("a", n) for n in range(12)))
        await dispatch(storage, *(make_task("b", n) for n in range(3)))
        await dispatch(storage, make_task("c", queued_at=at(-30)), make_task("c", 1, priority=2.0))
        await dispatch(storage, make_task("d", queued_at=at(9)), make_task("d", 1, not_before=at(1)))
        storage = await reopen()
        assert await offers(storage) == [
            "c_1_1",
            "c_1_0",
            *(f"a_1_{n}" for n in range(12)),
            *(f"b_1_{n}" for n in range(3)),
            "d_1_0",
        ]

    @over_a_restart
    async def test_deadlines_are_rebuilt(
        self, storage: StorageBackend, clock: ManualClock, reopen: Reopen
    ) -> None:
        await create(storage, make_job("a", **timer(5)), make_job("b", **timer(7)))
        await dispatch(storage, make_task("c", attempt_timeout_s=10.0))
        await offers(storage, now=at(20))
        await commit(storage, write(next_of(await job_of(storage, "a"), **timer(50))))
        await commit(storage, write(next_of(await job_of(storage, "b"), **FINISHED)))
        storage = await reopen()
        assert await due(storage) == [("c_1_0", at(30)), ("a", at(50))]
        assert await storage.next_due() == at(30)

    @over_a_restart
    async def test_messages_keep_their_order_and_stay_consumed(
        self, storage: StorageBackend, clock: ManualClock, reopen: Reopen
    ) -> None:
        await create(storage, make_job("a"), messages=(message("m3"), message("m1"), message("m2")))
        await create(storage, make_job("b"), messages=(message("m3"), message("m0")))
        await commit(storage, only("a", consumes_message="m1"))
        storage = await reopen()
        assert await waiting_messages(storage) == ["m3", "m2", "m0"]
        assert await commit(storage, only("a", consumes_message="m1"), only("a", consumes_message="m2")) == [
            STALE,
            APPLIED,
        ]
        assert await waiting_messages(await reopen()) == ["m3", "m0"]

    @over_a_restart
    async def test_open_branches_are_counted_on(
        self, storage: StorageBackend, clock: ManualClock, reopen: Reopen
    ) -> None:
        await fan_out(storage, 3)
        await fan_out(storage, 1, "job-2")
        await commit(storage, close_branch(2), close_branch(0, "job-2"))
        storage = await reopen()
        assert await claim(storage) == ["job-2"]
        assert await storage.commit([close_branch(0)], "me") == [CommitOutcome(APPLIED)]
        storage = await reopen()
        assert await commit(storage, close_branch(0), close_branch(2)) == [STALE, STALE]
        assert await storage.commit([close_branch(1)], "me") == [CommitOutcome(APPLIED, ready=True)]
        results = [task.result.data for task in await storage.tasks_of("job-1") if task.result]
        assert results == [{"of": 0}, {"of": 1}, {"of": 2}]

    @over_a_restart
    async def test_fences_hold(self, storage: StorageBackend, clock: ManualClock, reopen: Reopen) -> None:
        first = make_job()
        second = write(next_of(first), events=(event("second"),))
        await create(storage, first)
        await commit(storage, second)
        await dispatch(storage, make_task("job-2", attempt=3))
        storage = await reopen()
        late = only("job-2", fenced(closed(make_task("job-2")), attempt=2))
        rival = write(next_of(first, state="lost"))
        assert await commit(storage, second, rival, write(make_job()), late) == [
            REPEATED,
            STALE,
            EXISTS,
            STALE,
        ]
        assert await told(storage) == [(1, "second")]

    @over_a_restart
    async def test_ended_jobs_are_found_and_final(
        self, storage: StorageBackend, clock: ManualClock, reopen: Reopen
    ) -> None:
        await create(storage, make_job(body_hash="hash"))
        end = write(next_of(await job_of(storage), result=[1], **FINISHED), events=(event(),))
        await commit(storage, end)
        storage = await reopen()
        assert await shown(storage, "job-1") == end.job
        assert await job_of(storage) == end.job
        again = write(next_of(await job_of(storage), status=JobStatus.RUNNING))
        rival = write(make_job(body_hash="hash"))
        task = only("job-1", fenced(closed(make_task())))
        assert await commit(storage, end, again, rival, task) == [REPEATED, STALE, EXISTS, STALE]
        assert await shown(storage, "job-1") == end.job
        assert await claim(storage) == []

    @over_a_restart
    async def test_events_and_entries_are_numbered_on(
        self, storage: StorageBackend, clock: ManualClock, reopen: Reopen
    ) -> None:
        await create(storage, make_job(), events=(event("1"), event("2")))
        storage = await reopen()
        (first,) = (await storage.outbox(0, ALL)).entries
        await commit(storage, write(next_of(await job_of(storage)), events=(event("3"),)))
        storage = await reopen()
        assert await told(storage) == [(1, "1"), (2, "2"), (3, "3")]
        assert [entry.number for entry in (await storage.outbox(0, ALL)).entries] == [
            first.number,
            first.number + 1,
        ]

    @over_a_restart
    async def test_entries_are_numbered_on_after_all_were_pruned(
        self, storage: StorageBackend, clock: ManualClock, reopen: Reopen
    ) -> None:
        for n in range(3):
            await create(storage, make_job(f"job-{n}"), events=(event(),))
        last = ((await storage.outbox(0, ALL)).entries)[-1].number
        await storage.prune(last)
        await create(storage, make_job("quiet"))  # pruning rides with a later flush
        storage = await reopen()
        assert (await storage.outbox(last, ALL)).entries == []
        await create(storage, make_job("loud"), events=(event(),))
        (entry,) = (await storage.outbox(last, ALL)).entries
        assert (entry.number, entry.job_id) == (last + 1, "loud")

    @over_a_restart
    async def test_a_part_of_a_flush_that_was_pruned_stays_so(
        self, storage: StorageBackend, clock: ManualClock, reopen: Reopen
    ) -> None:
        await commit(storage, *(write(make_job(f"job-{n}"), events=(event(),)) for n in range(4)))
        await storage.prune(((await storage.outbox(0, ALL)).entries)[1].number)
        await create(storage, make_job("quiet"))  # pruning rides with a later flush
        storage = await reopen()
        assert [entry.job_id for entry in (await storage.outbox(0, ALL)).entries] == ["job-2", "job-3"]

    @over_a_restart
    async def test_a_secret_stays(self, storage: StorageBackend, clock: ManualClock, reopen: Reopen) -> None:
        secret = await shared_secret(storage, "approval")
        storage = await reopen()
        assert await shared_secret(storage, "approval") == secret
        assert await shared_secret(storage, "other") != secret
