"""Promises about starting, stopping, leading, keeping secrets, and nudging."""

import asyncio

from msgspec.structs import replace

from ....model import ChildJob, Job, JobStatus, QueueKey, TaskWrite, queue_key_text
from ....storage.base import Hint, HintKind, StorageBackend, shared_secret
from .kit import (
    PARKED,
    ManualClock,
    StorageFactory,
    at,
    claim,
    claim_tasks,
    close_branch,
    commit,
    create,
    dispatch,
    event,
    fan_out,
    fenced,
    hears,
    job_of,
    make_job,
    make_task,
    message,
    next_of,
    on_a_clock,
    only,
    picture,
    shown,
    timer,
    write,
)


class LifePromises:
    """Part of the suite that `StorageConformance` is."""

    # start, stop

    def test_stop_twice_and_stop_before_start_are_fine(self, open_storage: StorageFactory) -> None:
        async def body() -> None:
            storage = open_storage(ManualClock())
            await storage.stop()
            await storage.start()
            await storage.stop()
            await storage.stop()

        asyncio.run(body())

    @on_a_clock
    async def test_start_twice_loses_nothing(self, storage: StorageBackend, clock: ManualClock) -> None:
        await create(storage, make_job())
        await storage.start()
        assert await claim(storage) == ["job-1"]

    @on_a_clock
    async def test_a_new_store_is_empty(self, storage: StorageBackend, clock: ManualClock) -> None:
        seen = await picture(storage, [])
        assert not any(seen.values())

    # leadership, secrets

    @on_a_clock
    async def test_a_chore_has_one_leader_while_it_stays(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        assert await storage.lead("rescue", "me", 30) is True
        assert await storage.lead("rescue", "you", 30) is False
        assert await storage.lead("sweep", "you", 30) is True
        clock.move(20)
        assert await storage.lead("rescue", "me", 30) is True
        clock.move(20)
        assert await storage.lead("rescue", "you", 30) is False
        clock.move(11)
        assert await storage.lead("rescue", "you", 30) is True
        assert await storage.lead("rescue", "me", 30) is False

    @on_a_clock
    async def test_a_secret_is_made_once(self, storage: StorageBackend, clock: ManualClock) -> None:
        made = await asyncio.gather(*(shared_secret(storage, "approval") for _ in range(5)))
        assert len(set(made)) == 1
        assert len(made[0]) == 32
        assert await shared_secret(storage, "approval") == made[0]
        assert await shared_secret(storage, "other") != made[0]

    # hints

    @on_a_clock
    async def test_a_runnable_job_and_its_events_are_hinted_at(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        hints: list[Hint] = []
        storage.subscribe(hints.append)
        await create(storage, make_job(), events=(event(),))
        assert await hears(hints, Hint(HintKind.READY), Hint(HintKind.OUTBOX))

    @on_a_clock
    async def test_the_last_branch_and_a_birth_hint_at_a_runnable_job(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await fan_out(storage, 1)
        hints: list[Hint] = []
        storage.subscribe(hints.append)
        await commit(storage, close_branch(0))
        assert await hears(hints, Hint(HintKind.READY))
        hints.clear()
        await create(storage, make_job("job-2", **PARKED), children=(ChildJob(make_job("child"), ()),))
        assert await hears(hints, Hint(HintKind.READY))

    @on_a_clock
    async def test_a_waiting_task_is_hinted_at_by_its_lane(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        hints: list[Hint] = []
        storage.subscribe(hints.append)
        await dispatch(storage, make_task("a"), make_task("a", 1, type="probe", queue="night"))
        lanes = [queue_key_text(QueueKey("encode", "encode")), queue_key_text(QueueKey("night", "probe"))]
        assert await hears(hints, *(Hint(HintKind.TASK, queue_key) for queue_key in lanes))

    @on_a_clock
    async def test_a_task_that_is_left_to_an_instance_is_hinted_at_to_that_one(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        hints: list[Hint] = []
        storage.subscribe(hints.append)
        await create(
            storage,
            make_job("a", **PARKED),
            tasks=(TaskWrite(make_task("a"), notify_instance="i7"), TaskWrite(make_task("a", 1))),
        )
        queue_key = queue_key_text(QueueKey("encode", "encode"))
        assert await hears(hints, Hint(HintKind.TASK, queue_key, "i7"), Hint(HintKind.TASK, queue_key))

    @on_a_clock
    async def test_a_settled_job_is_hinted_at(self, storage: StorageBackend, clock: ManualClock) -> None:
        hints: list[Hint] = []
        storage.subscribe(hints.append)
        for status in JobStatus:
            if status.settled:
                await create(storage, make_job(status.value))
                await commit(storage, write(next_of(await job_of(storage, status.value), status=status)))
                assert await hears(hints, Hint(HintKind.CHANGED, status.value))

    @on_a_clock
    async def test_a_message_and_a_cancel_request_are_hinted_at(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await dispatch(storage, make_task())
        (task,) = await claim_tasks(storage, limit=1)
        hints: list[Hint] = []
        storage.subscribe(hints.append)
        asked = replace(task, cancel_requested=True)
        await commit(storage, only("job-1", fenced(asked), messages=(message("m", "job-7"),)))
        assert await hears(hints, Hint(HintKind.MESSAGE, "job-7"), Hint(HintKind.CANCEL, "w1"))

    @on_a_clock
    async def test_a_near_deadline_before_all_others_is_hinted_at(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        await create(storage, make_job("late", **timer(90)))
        hints: list[Hint] = []
        storage.subscribe(hints.append)
        await create(storage, make_job("early", **timer(2)))
        assert await hears(hints, Hint(HintKind.DEADLINE))
        hints.clear()
        await dispatch(storage, make_task(dispatch_by=at(1)))
        assert await hears(hints, Hint(HintKind.DEADLINE))

    @on_a_clock
    async def test_a_nudge_reaches_whoever_listens(self, storage: StorageBackend, clock: ManualClock) -> None:
        hints: list[Hint] = []
        storage.subscribe(hints.append)
        words = [Hint(HintKind.PROGRESS, '["i", "a", 0.5, "half ✓"]'), Hint(HintKind.READY, "", "i7")]
        await storage.publish(words)
        assert hints == words

    @on_a_clock
    async def test_a_listener_that_fails_harms_nobody(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        def fail(hint: Hint) -> None:
            raise RuntimeError("a planted failure")

        hints: list[Hint] = []
        storage.subscribe(fail)
        storage.subscribe(hints.append)
        await create(storage, make_job("a"))
        await create(storage, make_job("b"))
        assert await hears(hints, Hint(HintKind.READY))
        assert await claim(storage) == ["a", "b"]

    @on_a_clock
    async def test_a_hint_comes_when_there_is_something_to_see(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        looks: list[asyncio.Task[Job | None]] = []
        hints: list[Hint] = []

        def hear(hint: Hint) -> None:
            hints.append(hint)
            looks.append(asyncio.ensure_future(shown(storage, "job-1")))

        storage.subscribe(hear)
        await create(storage, make_job(), events=(event(),))
        assert await hears(hints, Hint(HintKind.READY))
        assert all(await asyncio.gather(*looks))

    @on_a_clock
    async def test_who_stopped_listening_hears_nothing(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        first: list[Hint] = []
        second: list[Hint] = []
        deaf = storage.subscribe(first.append)
        storage.subscribe(second.append)
        deaf()
        deaf()
        await create(storage, make_job())
        assert await hears(second, Hint(HintKind.READY))
        assert first == []
