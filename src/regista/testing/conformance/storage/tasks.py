"""Promises about tasks that wait for a worker, and those in its hands."""

import asyncio
from typing import Any

from msgspec.structs import replace

from ....model import QueueStatus, TaskWrite
from ....storage.base import AGEING_STEP_S, StorageBackend
from .kit import (
    ALL,
    APPLIED,
    OFFERED,
    QUEUED,
    START,
    STARTED,
    ManualClock,
    at,
    claim_tasks,
    close_branch,
    closed,
    commit,
    dispatch,
    event,
    fan_out,
    fenced,
    job_of,
    make_job,
    make_task,
    make_worker,
    offers,
    on_a_clock,
    only,
    task_of,
    write,
)


class TaskPromises:
    """Part of the suite that `StorageConformance` is."""

    @on_a_clock
    async def test_a_claimed_task_is_offered_in_the_same_write(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        job = await dispatch(storage, make_task(params={"n": 1}))
        worker = make_worker(session=7)
        (task,) = await claim_tasks(storage, worker, 5, at(3))
        assert (task.state, task.worker_id, task.session, task.offered_at) == (OFFERED, "w1", 7, at(3))
        assert (task.attempt, task.params) == (1, {"n": 1})
        assert await task_of(storage) == task
        assert await storage.held_by("w1") == [task]
        assert await job_of(storage) == job
        assert await offers(storage, make_worker("w2")) == []

    @on_a_clock
    async def test_two_workers_never_get_the_same_task(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await fan_out(storage, 20)
        shares = await asyncio.gather(*(offers(storage, make_worker(f"w{n}"), 3) for n in range(9)))
        taken = [task_id for share in shares for task_id in share]
        assert sorted(taken) == sorted(f"job-1_1_{n}" for n in range(20))
        assert [len(share) for share in shares] == [3] * 6 + [2, 0, 0]

    @on_a_clock
    async def test_a_worker_gets_no_more_than_it_asked_for(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await fan_out(storage, 3)
        assert await offers(storage, limit=0) == []
        assert len(await offers(storage, limit=2)) == 2
        assert len(await offers(storage, limit=2)) == 1

    @on_a_clock
    async def test_equal_tasks_are_offered_in_the_order_of_arrival(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        for job_id in ("c", "a", "b"):
            await dispatch(storage, make_task(job_id), make_task(job_id, 1))
        assert await offers(storage) == ["c_1_0", "c_1_1", "a_1_0", "a_1_1", "b_1_0", "b_1_1"]

    @on_a_clock
    async def test_priority_is_worth_a_fixed_stretch_of_waiting(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        step = AGEING_STEP_S
        waits = {
            "plain": (0, 0.0),
            "urgent": (step, 2.0),
            "older": (-step / 2, 0.0),
            "unloved": (-step / 4, -1.0),
            "fresh": (step * 1.5, 1.0),
        }
        for job_id, (queued, priority) in waits.items():
            await dispatch(storage, make_task(job_id, queued_at=at(queued), priority=priority))
        best = ["urgent", "older", "plain", "fresh", "unloved"]
        assert await offers(storage) == [f"{job_id}_1_0" for job_id in best]

    @on_a_clock
    async def test_the_best_task_comes_first_whatever_its_lane(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        kinds = [("encode", ""), ("probe", ""), ("encode", "night"), ("probe", "night")]
        for n in range(8):
            kind, queue = kinds[n % 4]
            task = make_task(f"job-{n}", type=kind, queue=queue, queued_at=at((n * 3) % 8))
            await dispatch(storage, task)
        order = sorted(range(8), key=lambda n: (n * 3) % 8)
        both = make_worker(skills=["encode", "probe"])
        assert await offers(storage, both, 3) == [f"job-{n}_1_0" for n in order[:3]]
        assert await offers(storage, both) == [f"job-{n}_1_0" for n in order[3:]]

    @on_a_clock
    async def test_a_task_needs_its_queue_and_its_skill(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await dispatch(storage, make_task("a"))
        await dispatch(storage, make_task("b", type="probe"))
        await dispatch(storage, make_task("c", queue="night"))
        assert await offers(storage, make_worker(skills=[])) == []
        assert await offers(storage, make_worker(queues=())) == []
        assert await offers(storage, make_worker(skills=["probe"], queues=("encode", "night"))) == []
        assert await offers(storage, make_worker(queues=("night",))) == ["c_1_0"]
        assert await offers(storage, make_worker(queues=("encode",))) == ["a_1_0"]
        assert await offers(storage, make_worker(skills=["probe"], queues=("probe",))) == ["b_1_0"]

    @on_a_clock
    async def test_a_retry_waits_until_somebody_queues_it(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await dispatch(storage, make_task())
        await dispatch(storage, make_task("job-2"))
        assert await offers(storage, limit=1) == ["job-1_1_0"]
        retry = make_task(attempt=2, queued_at=at(5), not_before=at(60))
        assert await commit(storage, only("job-1", fenced(retry))) == [APPLIED]
        clock.move(1000)
        assert await offers(storage, now=at(1000)) == ["job-2_1_0"]
        queued = replace(retry, not_before=None)
        assert await commit(storage, only("job-1", fenced(queued, 2, (QUEUED,)))) == [APPLIED]
        assert await offers(storage, now=at(1000)) == ["job-1_1_0"]

    @on_a_clock
    async def test_a_task_that_was_closed_while_it_waited_is_not_offered(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await fan_out(storage, 3)
        await commit(storage, close_branch(0), close_branch(1))
        assert await offers(storage) == ["job-1_1_2"]

    @on_a_clock
    async def test_a_worker_holds_what_is_offered_or_started(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await fan_out(storage, 4)
        first, second = await claim_tasks(storage, make_worker("w1"), 2)
        await offers(storage, make_worker("w2"), 1)
        await commit(storage, only("job-1", fenced(replace(first, state=STARTED), states=(OFFERED,))))
        assert {task.id for task in await storage.held_by("w1")} == {first.id, second.id}
        assert sorted(await storage.holders()) == ["w1", "w2"]
        await commit(storage, only("job-1", fenced(closed(first)), fenced(make_task(index=1, attempt=2))))
        assert await storage.held_by("w1") == []
        assert await storage.held_by("nobody") == []
        assert await storage.holders() == ["w2"]

    @on_a_clock
    async def test_only_the_lanes_that_were_asked_for_give_tasks(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        plain, big = make_task("a"), make_task("b", requirements={"ram_gb": 64})
        night, costly = make_task("c", queue="night"), make_task("d", max_cost=1.5)
        for task in (plain, big, night, costly):
            await dispatch(storage, task)
        assert await storage.claim_tasks(make_worker(), [], ALL, START) == ([], True)
        assert await storage.claim_tasks(make_worker(), [make_task(type="probe").queue_key], ALL, START) == (
            [],
            True,
        )
        for task in (big, costly, plain, night):
            ((given,), _) = await storage.claim_tasks(make_worker(), [task.queue_key], ALL, START)
            assert given.id == task.id

    @on_a_clock
    async def test_tasks_with_the_same_needs_wait_in_one_lane(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        first = make_task("a", requirements={"ram_gb": 4, "zone": "x"}, max_cost=1.0)
        second = make_task("b", requirements={"zone": "x", "ram_gb": 4}, max_cost=1.0)
        other = make_task("c", requirements={"ram_gb": 4, "zone": "y"}, max_cost=1.0)
        for task in (first, second, other):
            await dispatch(storage, task)
        taken, _ = await storage.claim_tasks(make_worker(), [first.queue_key], ALL, START)
        assert [task.id for task in taken] == ["a_1_0", "b_1_0"]

    @on_a_clock
    async def test_clients_take_turns(self, storage: StorageBackend, clock: ManualClock) -> None:
        for n in range(4):
            await dispatch(storage, make_task(f"ann-{n}", client="ann"))
        for n in range(2):
            await dispatch(storage, make_task(f"bob-{n}", client="bob", queued_at=at(100), priority=-5.0))
        await dispatch(storage, make_task("cyd-0", client="cyd", queued_at=at(200)))
        assert await offers(storage, limit=2) == ["ann-0_1_0", "bob-0_1_0"]
        assert await offers(storage, limit=1) == ["cyd-0_1_0"]
        assert await offers(storage) == ["ann-1_1_0", "bob-1_1_0", "ann-2_1_0", "ann-3_1_0"]

    @on_a_clock
    async def test_a_client_gives_its_best_task_whatever_the_lane(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await dispatch(storage, make_task("a", client="ann", queued_at=at(2)))
        await dispatch(storage, make_task("b", client="ann", queued_at=at(1), type="probe"))
        await dispatch(storage, make_task("c", client="bob", queued_at=at(9), type="probe"))
        await dispatch(storage, make_task("d", client="bob", queued_at=at(8)))
        both = make_worker(skills=["encode", "probe"])
        assert await offers(storage, both) == ["b_1_0", "d_1_0", "a_1_0", "c_1_0"]

    @on_a_clock
    async def test_a_client_that_comes_anew_stands_behind_those_who_wait(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        for job_id in ("a1", "a2", "b1"):
            await dispatch(storage, make_task(job_id, client=job_id[0]))
        assert await offers(storage, limit=2) == ["a1_1_0", "b1_1_0"]
        await dispatch(storage, make_task("b2", client="b"))
        assert await offers(storage, limit=2) == ["a2_1_0", "b2_1_0"]

    @on_a_clock
    async def test_lanes_tell_how_many_wait_and_since_when(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        assert await storage.queue_status() == []
        await dispatch(storage, make_task("a", client="ann", queued_at=at(3), priority=2.0))
        await dispatch(storage, make_task("b", client="ann", queued_at=at(1), priority=-2.0))
        await dispatch(storage, make_task("c", client="bob", queued_at=at(2)))
        await dispatch(storage, make_task("d", queue="night", requirements={"gpu": 1}, queued_at=at(4)))
        await dispatch(storage, make_task("e", not_before=at(60)))
        queue_key, night = make_task().queue_key, make_task(queue="night", requirements={"gpu": 1}).queue_key
        assert await storage.queue_status() == [
            QueueStatus(queue_key, "ann", 2, at(1)),
            QueueStatus(queue_key, "bob", 1, at(2)),
            QueueStatus(night, "", 1, at(4)),
        ]
        await storage.claim_tasks(make_worker(), [queue_key, night], ALL, START)
        assert await storage.queue_status() == []

    @on_a_clock
    async def test_a_claim_says_whether_more_waits(self, storage: StorageBackend, clock: ManualClock) -> None:
        tasks = [make_task(f"job-{n}") for n in range(3)]
        for task in tasks:
            await dispatch(storage, task)
        claims = [
            await storage.claim_tasks(make_worker(), [tasks[0].queue_key], limit, START)
            for limit in (0, 2, 2, 2)
        ]
        assert [(len(claim.tasks), claim.exhausted) for claim in claims] == [
            (0, False),
            (2, False),
            (1, True),
            (0, True),
        ]

    @on_a_clock
    async def test_nothing_is_offered_to_a_session_that_was_replaced(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        task = make_task()
        await dispatch(storage, task)
        old = await storage.register(make_worker(), 30)
        new = await storage.register(make_worker(), 30)
        # Not exhausted: another worker may have what waits.
        assert await storage.claim_tasks(old, [task.queue_key], ALL, START) == ([], False)
        assert await offers(storage, new) == [task.id]

    @on_a_clock
    async def test_a_commit_names_the_offers_that_wait_instead(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        old = await storage.register(make_worker(), 30)
        new = await storage.register(make_worker("w2"), 30)
        await storage.register(make_worker(), 30)
        given: dict[str, Any] = {"state": OFFERED, "offered_at": START, "seen_at": START}
        task = make_task(dispatch_by=at(600), attempt_timeout_s=10.0)
        late = replace(task, **given, worker_id="w1", session=old.session)
        sound = make_task(index=1, **given, worker_id="w2", session=new.session)
        (outcome,) = await storage.commit(
            [write(make_job(), tasks=(TaskWrite(late), TaskWrite(sound)), events=(event(),))], "me"
        )
        assert (outcome.kind, outcome.not_offered) == (APPLIED, (task.id,))
        assert await task_of(storage, task.id) == task
        assert await storage.held_by("w1") == []
        assert await storage.held_by("w2") == [sound]
        assert [(due.id, due.at) for due in await storage.due(at(1000), ALL)] == [(task.id, at(600))]
        (claimed,) = await claim_tasks(storage, new, now=at(1))
        assert (claimed.session, claimed.offered_at) == (new.session, at(1))

    @on_a_clock
    async def test_what_is_written_about_an_offer_of_an_earlier_session_is_no_new_offer(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        old = await storage.register(make_worker(), 30)
        await dispatch(storage, make_task())
        (task,) = await claim_tasks(storage, old)
        await storage.register(make_worker(), 30)
        cancelled = replace(task, cancel_requested=True)
        (outcome,) = await storage.commit([only("job-1", fenced(cancelled))], "me")
        assert (outcome.kind, outcome.not_offered) == (APPLIED, ())
        assert await storage.held_by("w1") == [cancelled]
