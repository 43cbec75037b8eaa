"""Promises about who is there."""

from msgspec.structs import replace

from ....storage.base import Heartbeat, Hint, HintKind, StorageBackend, find_worker
from .kit import ManualClock, dispatch, make_task, make_worker, offers, on_a_clock


class WorkerPromises:
    """Part of the suite that `StorageConformance` is."""

    @on_a_clock
    async def test_each_registration_is_a_new_session(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        first = await storage.register(make_worker(capacity=3, queues=("night",), instance="i1"), 30)
        assert first == make_worker(
            capacity=3, queues=("night",), instance="i1", session=first.session, registered_at=clock.now()
        )
        clock.move(1)
        second = await storage.register(make_worker(), 30)
        other = await storage.register(make_worker("w0"), 30)
        assert first.session < second.session
        assert second.registered_at == clock.now()
        assert await storage.workers() == [other, second]

    @on_a_clock
    async def test_a_registration_is_hinted_at(self, storage: StorageBackend, clock: ManualClock) -> None:
        heard: list[Hint] = []
        storage.subscribe(heard.append)
        await storage.register(make_worker(), 30)
        assert heard == [Hint(HintKind.WORKER, "w1")]

    @on_a_clock
    async def test_a_heartbeat_renews_the_lease(self, storage: StorageBackend, clock: ManualClock) -> None:
        worker = await storage.register(make_worker(), 30)
        for _ in range(3):
            clock.move(20)
            assert (await storage.heartbeat([Heartbeat("w1", worker.session, 30)]))[0] is True
            assert await storage.workers(lapsed_only=True) == []
        clock.move(31)
        assert await storage.workers(lapsed_only=True) == [worker]

    @on_a_clock
    async def test_a_heartbeat_of_an_old_session_or_a_stranger_is_false(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        old = await storage.register(make_worker(), 30)
        new = await storage.register(make_worker(), 30)
        clock.move(20)
        assert (await storage.heartbeat([Heartbeat("w1", old.session, 300)]))[0] is False
        assert (await storage.heartbeat([Heartbeat("w2", new.session, 300)]))[0] is False
        clock.move(11)
        assert await storage.workers(lapsed_only=True) == [new]

    @on_a_clock
    async def test_a_record_is_written_again_under_its_session_alone(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        assert await find_worker(storage, "w1") is None
        old = await storage.register(make_worker(), 30)
        new = await storage.register(make_worker(), 30)
        heard: list[Hint] = []
        storage.subscribe(heard.append)
        assert await storage.update_worker(replace(old, draining=True)) is None
        assert await storage.update_worker(replace(new, id="w2")) is None
        assert heard == []
        moved = await storage.update_worker(replace(new, instance="i2", draining=True))
        assert moved == replace(new, instance="i2", draining=True, record_version=1)
        assert heard == [Hint(HintKind.WORKER, "w1")]
        assert await find_worker(storage, "w1") == moved
        assert await storage.workers() == [moved]
        clock.move(31)  # the lease is as old as it was
        assert await storage.workers(lapsed_only=True) == [moved]
        assert await find_worker(storage, "w1") == moved

    @on_a_clock
    async def test_of_two_who_write_a_record_at_once_the_second_must_look_again(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        # given: two who have read the same record
        known = await storage.register(make_worker(), 30)
        assert known.record_version == 0
        first = await storage.update_worker(replace(known, draining=True))
        heard: list[Hint] = []
        storage.subscribe(heard.append)
        # then: the second one changes nothing, until it has read what the first one wrote
        assert await storage.update_worker(replace(known, instance="i2")) is None
        assert heard == []
        assert first is not None
        assert await find_worker(storage, "w1") == first
        assert await storage.update_worker(replace(first, instance="i2")) == replace(
            first, instance="i2", record_version=2
        )
        # and: the same words again are the same note
        last = await find_worker(storage, "w1")
        assert await storage.update_worker(replace(first, instance="i2")) == last
        assert await find_worker(storage, "w1") == last
        # and: a new session counts from the beginning
        again = await storage.register(replace(first, draining=False), 30)
        assert (again.record_version, await storage.workers()) == (0, [again])
        assert await storage.update_worker(replace(first, session=again.session)) is None

    @on_a_clock
    async def test_a_worker_that_is_struck_off_is_hinted_at(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        known = await storage.register(make_worker(), 30)
        heard: list[Hint] = []
        storage.subscribe(heard.append)
        assert await storage.forget_worker("w1", known.session)
        assert await storage.forget_worker("w1", known.session) is False
        assert heard == [Hint(HintKind.WORKER, "w1")]

    @on_a_clock
    async def test_many_heartbeats_are_answered_one_by_one(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        one, old = (
            await storage.register(make_worker("w1"), 10),
            await storage.register(make_worker("w2"), 10),
        )
        two = await storage.register(make_worker("w2"), 10)
        beats = [
            Heartbeat("w1", one.session, 30),
            Heartbeat("w2", old.session, 30),
            Heartbeat("unknown", 1, 30),
        ]
        assert await storage.heartbeat(beats) == [True, False, False]
        assert await storage.heartbeat([]) == []
        clock.move(11)
        assert await storage.workers(lapsed_only=True) == [two]

    @on_a_clock
    async def test_workers_are_found_by_their_ids(self, storage: StorageBackend, clock: ManualClock) -> None:
        known = [await storage.register(make_worker(f"w{n}"), 10 + n) for n in range(3)]
        assert await storage.workers() == known
        assert await storage.workers(["w2", "unknown", "w0"]) == [known[0], known[2]]
        assert await storage.workers([]) == []
        clock.move(11)
        assert await storage.workers(lapsed_only=True) == known[:2]
        assert await storage.workers(["w1", "w2"], lapsed_only=True) == [known[1]]

    @on_a_clock
    async def test_a_lapsed_worker_stays_lapsed_until_it_is_forgotten(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        worker = await storage.register(make_worker(), 30)
        clock.move(31)
        assert await storage.workers(lapsed_only=True) == [worker]
        assert await storage.workers(lapsed_only=True) == [worker]
        assert await storage.forget_worker("w1", worker.session) is True
        assert (await storage.workers(lapsed_only=True), await storage.workers()) == ([], [])
        assert await storage.forget_worker("w1", worker.session) is False
        assert (await storage.heartbeat([Heartbeat("w1", worker.session, 30)]))[0] is False

    @on_a_clock
    async def test_a_lapsed_worker_that_beats_again_is_back(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        worker = await storage.register(make_worker(), 30)
        clock.move(31)
        assert (await storage.heartbeat([Heartbeat("w1", worker.session, 30)]))[0] is True
        assert await storage.workers(lapsed_only=True) == []

    @on_a_clock
    async def test_a_worker_with_a_newer_session_is_not_forgotten(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        old = await storage.register(make_worker(), 30)
        new = await storage.register(make_worker(), 30)
        assert await storage.forget_worker("w1", old.session) is False
        assert await storage.workers() == [new]

    @on_a_clock
    async def test_a_worker_that_was_heard_again_is_not_struck_off_as_lapsed(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        # given: a lease that is over, and a beat that came after somebody had seen that
        worker = await storage.register(make_worker("w1"), 10)
        clock.move(11)
        assert [one.id for one in await storage.workers(lapsed_only=True)] == ["w1"]
        assert (await storage.heartbeat([Heartbeat("w1", worker.session, 10)]))[0]
        # then
        assert await storage.forget_worker("w1", worker.session, only_if_lapsed=True) is False
        assert await find_worker(storage, "w1") == worker
        clock.move(11)
        assert await storage.forget_worker("w1", worker.session, only_if_lapsed=True) is True
        assert await find_worker(storage, "w1") is None

    @on_a_clock
    async def test_forgetting_a_worker_leaves_its_tasks_in_its_hands(
        self, storage: StorageBackend, clock: ManualClock
    ) -> None:
        worker = await storage.register(make_worker(), 30)
        await dispatch(storage, make_task())
        await offers(storage, worker)
        assert await storage.forget_worker("w1", worker.session) is True
        assert await storage.holders() == ["w1"]
        assert [task.id for task in await storage.held_by("w1")] == ["job-1_1_0"]
