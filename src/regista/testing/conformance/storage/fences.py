"""Promises about tasks behind their fences, and the branches of a fan-out."""

import asyncio
from typing import Any

from msgspec.structs import replace

from ....model import Cancellation, ChildJob, CommitOutcome, JobStatus, TaskWrite
from ....storage.base import StorageBackend
from .kit import (
    APPLIED,
    OFFERED,
    STALE,
    START,
    STARTED,
    ManualClock,
    at,
    claim,
    claim_tasks,
    close_branch,
    closed,
    commit,
    dispatch,
    due,
    event,
    fan_out,
    fenced,
    job_of,
    make_job,
    make_task,
    message,
    next_of,
    offers,
    on_a_clock,
    only,
    picture,
    task_of,
    told,
    write,
)


class FencePromises:
    """Part of the suite that `StorageConformance` is."""

    # tasks behind their fences

    @on_a_clock
    async def test_tasks_that_were_judged_by_an_older_revision_are_refused(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        job = await dispatch(storage, make_task())
        (task,) = await claim_tasks(storage, limit=1)
        seen = await job_of(storage, job.id)
        cancelled = replace(task, cancel_requested=True)
        asked = write(next_of(seen, status=JobStatus.CANCELLING), tasks=(fenced(cancelled),))
        assert await commit(storage, asked) == [APPLIED]
        # What was decided before the cancel, by somebody who did not see it.
        late = replace(only(job.id, fenced(replace(task, progress=0.5))), expected=seen.revision)
        assert await commit(storage, late) == [STALE]
        assert await task_of(storage, task.id) == cancelled
        again = replace(
            only(job.id, fenced(replace(cancelled, progress=0.5))), expected=seen.revision + 1, token="again"
        )
        assert await commit(storage, again) == [APPLIED]

    @on_a_clock
    async def test_a_task_of_another_attempt_is_refused(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await dispatch(storage, make_task(attempt=2))
        late = make_task(attempt=1)
        assert await commit(storage, only("job-1", fenced(closed(late), attempt=1))) == [STALE]
        assert await commit(storage, only("job-1", fenced(closed(late), attempt=3))) == [STALE]
        assert await task_of(storage) == make_task(attempt=2)
        assert await commit(storage, only("job-1", fenced(make_task(attempt=3), attempt=2))) == [APPLIED]
        assert (await task_of(storage)).attempt == 3

    @on_a_clock
    async def test_a_task_in_another_state_is_refused(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await dispatch(storage, make_task())
        started = make_task(state=STARTED, worker_id="w1")
        assert await commit(storage, only("job-1", fenced(started, states=(OFFERED,)))) == [STALE]
        assert await task_of(storage) == make_task()
        assert await offers(storage) == ["job-1_1_0"]
        assert await commit(storage, only("job-1", fenced(started, states=(OFFERED,)))) == [APPLIED]
        assert await commit(storage, only("job-1", fenced(started, states=(OFFERED,)))) == [STALE]

    @on_a_clock
    async def test_a_task_of_another_job_is_refused(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await dispatch(storage, make_task())
        await dispatch(storage, make_task("job-2"))
        assert await commit(storage, only("job-2", fenced(closed(make_task("job-1"))))) == [STALE]
        assert await task_of(storage) == make_task()

    @on_a_clock
    async def test_a_task_that_is_not_there_is_refused(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await dispatch(storage, make_task())
        assert await commit(storage, only("job-1", fenced(closed(make_task(index=1))))) == [STALE]
        assert [task.id for task in await storage.tasks_of("job-1")] == ["job-1_1_0"]

    @on_a_clock
    async def test_one_bad_fence_refuses_the_whole_change(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        job = await dispatch(storage, *(make_task(index=n) for n in range(3)), messages=(message("m1"),))
        before = await picture(storage, ["job-1", "child"])
        tasks = (
            fenced(closed(make_task())),
            fenced(closed(make_task(index=1)), attempt=2),
            fenced(closed(make_task(index=2))),
        )
        parts: dict[str, Any] = {
            "tasks": tasks,
            "children": (ChildJob(make_job("child"), ()),),
            "messages": (message("m2"),),
            "consumes_message": "m1",
            "events": (event(),),
            "closes_branches": 3,
        }
        assert await commit(storage, write(next_of(job), **parts), only("job-1", *tasks)) == [STALE, STALE]
        assert await commit(storage, write(next_of(job), **parts, drop_tasks=True)) == [STALE]
        assert await picture(storage, ["job-1", "child"]) == before

    @on_a_clock
    async def test_dropped_tasks_are_only_checked_and_new_ones_kept(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        job = await dispatch(storage, make_task(dispatch_by=at(1)), make_task(index=1))
        await offers(storage, limit=1)
        following = make_task(id="job-1_2_0")
        await commit(
            storage,
            write(next_of(job), drop_tasks=True, tasks=(fenced(closed(make_task())), TaskWrite(following))),
        )
        assert await storage.tasks_of("job-1") == [following]
        assert await storage.load([], ["job-1_1_0", "job-1_1_1"]) == ([], [None, None])
        assert (await due(storage), await storage.holders()) == ([], [])
        assert await offers(storage) == ["job-1_2_0"]

    @on_a_clock
    async def test_tasks_are_listed_in_dispatch_order(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await fan_out(storage, 12)
        await offers(storage, limit=5)
        await commit(storage, close_branch(7), close_branch(0))
        assert [task.index for task in await storage.tasks_of("job-1")] == list(range(12))

    # branches

    @on_a_clock
    async def test_the_last_branch_makes_the_job_ready_exactly_once(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await fan_out(storage, 3)
        for index in (1, 0):
            assert await storage.commit([close_branch(index)], "me") == [CommitOutcome(APPLIED)]
            assert await claim(storage) == []
        assert await storage.commit([close_branch(2)], "me") == [CommitOutcome(APPLIED, ready=True)]
        assert await claim(storage, "me") == ["job-1"]
        assert await claim(storage, "you") == []

    @on_a_clock
    async def test_branches_close_without_the_revision_and_none_is_lost(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        job = await fan_out(storage, 100)
        answers = await asyncio.gather(*(storage.commit([close_branch(n)], "me") for n in range(100)))
        assert sorted(outcome.ready for (outcome,) in answers) == [False] * 99 + [True]
        assert await job_of(storage) == job
        results = [task.result.data for task in await storage.tasks_of("job-1") if task.result]
        assert results == [{"of": index} for index in range(100)]
        assert await claim(storage) == ["job-1"]

    @on_a_clock
    async def test_a_branch_closed_twice_counts_once(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await fan_out(storage, 2)
        change = close_branch(0)
        assert await commit(storage, change, change, close_branch(0)) == [APPLIED, STALE, STALE]
        assert await claim(storage) == []
        assert await storage.commit([close_branch(1)], "me") == [CommitOutcome(APPLIED, ready=True)]

    @on_a_clock
    async def test_branches_that_end_together_are_one_change(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await fan_out(storage, 3)
        ends = tuple(fenced(closed(make_task(index=n, branch=True))) for n in range(3))
        together = only("job-1", *ends, closes_branches=3, events=(event("a"), event("b")))
        assert await storage.commit([together], "me") == [CommitOutcome(APPLIED, ready=True)]
        assert await told(storage) == [(1, "a"), (2, "b")]
        assert await claim(storage) == ["job-1"]

    @on_a_clock
    async def test_the_last_branch_wakes_a_job_that_is_being_cancelled(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        job = await fan_out(storage, 2)
        cancel = next_of(job, status=JobStatus.CANCELLING, cancel=Cancellation(START, at(60)))
        ended = fenced(closed(make_task(index=0, branch=True)))
        assert await commit(storage, write(cancel, tasks=(ended,), closes_branches=1)) == [APPLIED]
        assert await claim(storage) == []
        assert await storage.commit([close_branch(1)], "me") == [CommitOutcome(APPLIED, ready=True)]
        assert await claim(storage) == ["job-1"]

    @on_a_clock
    async def test_the_last_branch_does_not_wake_a_settled_job(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        job = await fan_out(storage, 1)
        await commit(storage, write(next_of(job, status=JobStatus.QUARANTINED)))
        assert await storage.commit([close_branch(0)], "me") == [CommitOutcome(APPLIED)]
        assert await claim(storage) == []

    @on_a_clock
    async def test_a_new_fan_out_counts_from_the_start(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        job = await fan_out(storage, 2)
        await commit(storage, close_branch(0))
        tasks = tuple(TaskWrite(make_task(index=n, branch=True)) for n in range(3))
        await commit(storage, write(next_of(job, visit=2), drop_tasks=True, tasks=tasks, opens_branches=3))
        answers = [(await storage.commit([close_branch(n)], "me"))[0].ready for n in range(3)]
        assert answers == [False, False, True]
