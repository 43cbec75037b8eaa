"""Promises about instants at which somebody must look."""

from typing import Any

from ....model import AwaitRetry, Cancellation, JobStatus
from ....storage.base import Due, DueKind, StorageBackend
from .kit import (
    ALL,
    CLOSED,
    FINISHED,
    FOREVER,
    OFFERED,
    PARKED,
    START,
    STARTED,
    ManualClock,
    at,
    closed,
    commit,
    create,
    dispatch,
    due,
    fenced,
    job_of,
    make_job,
    make_task,
    next_of,
    offers,
    on_a_clock,
    only,
    timer,
    write,
)


class DeadlinePromises:
    """Part of the suite that `StorageConformance` is."""

    @on_a_clock
    async def test_the_deadline_of_a_job_follows_from_what_it_waits_for(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        cancel = Cancellation(START, at(3))
        await create(storage, make_job("timer", **timer(1)))
        await create(storage, make_job("retry", status=JobStatus.RUNNING, wait=AwaitRetry(at(2), 1)))
        await create(
            storage, make_job("cancel", **{**timer(1), "status": JobStatus.CANCELLING}, cancel=cancel)
        )
        await create(storage, make_job("human", **PARKED), make_job("ready"))
        assert await storage.due(FOREVER, ALL) == [
            Due(at(1), DueKind.JOB, "timer", "timer"),
            Due(at(2), DueKind.JOB, "retry", "retry"),
            Due(at(3), DueKind.JOB, "cancel", "cancel"),
        ]

    @on_a_clock
    async def test_the_deadline_of_a_task_follows_from_its_record(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        held: dict[str, Any] = {"state": OFFERED, "worker_id": "w1", "offered_at": at(10), "seen_at": at(20)}
        records: dict[str, tuple[float | None, dict[str, Any]]] = {
            "none": (None, {}),
            "dispatch": (1, {"dispatch_by": at(1), "result_by": at(9)}),
            "result": (2, {"dispatch_by": at(9), "result_by": at(2)}),
            "retry": (3, {"not_before": at(3), "result_by": at(9)}),
            "timeouts of a queued one rest": (None, {"attempt_timeout_s": 1, "heartbeat_timeout_s": 1}),
            "attempt": (15, {**held, "attempt_timeout_s": 5, "dispatch_by": at(1)}),
            "silence": (22, {**held, "heartbeat_timeout_s": 2, "attempt_timeout_s": 60}),
            "started": (16, {**held, "state": STARTED, "result_by": at(16), "attempt_timeout_s": 60}),
            "closed": (None, {"state": CLOSED, "result_by": at(1), "dispatch_by": at(1)}),
        }
        for job_id, (_, fields) in records.items():
            await dispatch(storage, make_task(job_id, **fields))
        expected = [(f"{id}_1_0", at(bound)) for id, (bound, _) in records.items() if bound is not None]
        assert await due(storage) == sorted(expected, key=lambda row: row[1])
        assert {(row.kind, row.id) for row in await storage.due(FOREVER, ALL)} == {
            (DueKind.TASK, f"{row.job_id}_1_0") for row in await storage.due(FOREVER, ALL)
        }

    @on_a_clock
    async def test_an_offer_starts_the_timeouts_of_the_attempt(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await dispatch(storage, make_task(dispatch_by=at(1), attempt_timeout_s=30.0))
        await dispatch(storage, make_task("job-2", dispatch_by=at(2), heartbeat_timeout_s=10.0))
        await dispatch(storage, make_task("job-3", dispatch_by=at(3)))
        await offers(storage, now=at(100))
        assert await due(storage) == [("job-2_1_0", at(110)), ("job-1_1_0", at(130))]

    @on_a_clock
    async def test_due_shows_what_has_passed_earliest_first_and_never_pops(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        for seconds in (30.5, 0.25, 30.125, 7, 1000):
            await create(storage, make_job(f"after {seconds}", **timer(seconds)))
        assert await due(storage, at(0.2)) == []
        for _ in range(2):
            passed = [id for id, _ in await due(storage, at(30.125))]
            assert passed == ["after 0.25", "after 7", "after 30.125"]
        assert [id for id, _ in await due(storage, limit=2)] == ["after 0.25", "after 7"]
        assert await due(storage, limit=0) == []

    @on_a_clock
    async def test_a_deadline_moves_with_the_commit_that_acts_on_it(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await create(storage, make_job(**timer(5)))
        await commit(storage, write(next_of(await job_of(storage), **timer(50))))
        assert await due(storage, at(49)) == []
        assert await due(storage) == [("job-1", at(50))]
        await commit(storage, write(next_of(await job_of(storage), **PARKED)))
        assert await due(storage) == []
        await dispatch(storage, make_task("job-2", dispatch_by=at(5)))
        await commit(storage, only("job-2", fenced(make_task("job-2", attempt=2, dispatch_by=at(70)))))
        assert await due(storage) == [("job-2_1_0", at(70))]
        await commit(storage, only("job-2", fenced(closed(make_task("job-2")), attempt=2)))
        assert (await due(storage), await storage.next_due()) == ([], None)

    @on_a_clock
    async def test_next_due_is_the_earliest_passed_or_not(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        assert await storage.next_due() is None
        await create(storage, make_job("late", **timer(90)))
        assert await storage.next_due() == at(90)
        await dispatch(storage, make_task("early", dispatch_by=at(-1)))
        assert await storage.next_due() == at(-1)
        await commit(storage, write(next_of(await job_of(storage, "early"), **FINISHED)))
        assert await storage.next_due() == at(90)
