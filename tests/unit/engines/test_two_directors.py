"""Two orchestrators on one store: a worker of the one does what the other has decided."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from itertools import count
from typing import Any, cast

import msgspec
import pytest

from regista import (
    ActionFactory,
    EventType,
    JobContext,
    JobStatus,
    MemoryStorage,
    OrchestratorEngine,
    RedisStorage,
)
from regista.clock import SystemClock
from regista.config import Config
from regista.dispatch.connected import CallbackConnection
from regista.dispatch.peer_slots import SLOTS
from regista.history.memory import MemoryHistory
from regista.model import FreeSlots, Profile, RecordWrite, ResultVerdict, Task, TaskResult
from regista.model import Worker as WorkerRecord
from regista.schemas.jobs import Progress
from regista.storage.base import Hint, HintKind, StorageBackend, find_worker
from regista.workers.polling.service import PollingService, UnknownWorker
from regista.workers.protocol.messages import Heartbeat, Registration
from tests.conftest import Require
from tests.redis_server import RedisServer
from tests.support import one_task, script

Test = Callable[["Pair"], Awaitable[None]]


class Shared(MemoryStorage):
    """A store that outlives whoever stops first."""

    shared = True

    async def stop(self) -> None:
        return None


class Ahead(SystemClock):
    """The clock of a badly kept machine."""

    def now(self) -> datetime:
        return super().now() + timedelta(minutes=3)


class Pair:
    """Two directors, and a desk of each. The second one's machine is three minutes ahead."""

    def __init__(self, storages: list[StorageBackend]) -> None:
        self.history = history = MemoryHistory()
        self.directors = [
            OrchestratorEngine(
                storage, Config(instance_id=f"i{n}", lease_s=3.0), history=history, clock=clock
            )
            for n, (storage, clock) in enumerate(zip(storages, (SystemClock(), Ahead()), strict=True))
        ]
        self.storages = storages
        self.naps = 0
        self.napping = script(self._nap, "done", name="napping")
        for director in self.directors:
            director.register_blueprint(one_task())
            director.register_blueprint(self.napping)
        self.desks = [
            PollingService(one.workers, one.dispatcher, one.clock, 3.0, 3.0) for one in self.directors
        ]

    async def _nap(self, context: JobContext, actions: ActionFactory) -> None:
        """A handler that is slow the first time, and never again."""
        self.naps += 1
        if self.naps == 1:
            await asyncio.sleep(60)
        actions.transition_to("done")

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Pair"]:
        for director in self.directors:
            await director.start()
        try:
            yield self
        finally:
            for desk in self.desks:
                await desk.close()
            for director in self.directors:
                await director.stop()

    async def join(
        self, director: OrchestratorEngine, capacity: int = 4, name: str = "w", cost: float = 1.0
    ) -> "Hands":
        """A worker that is connected to this director, and does nothing by itself."""
        hands = Hands(director)
        profile = Profile(cost_per_second=cost)
        record = WorkerRecord(
            id=name, skills=("work",), capacity=capacity, transport="stream", profile=profile
        )
        hands.record, _ = await director.workers.register(record, [], hands.connection)
        return hands


class Hands:
    """What a worker was handed, and what it was told to stop."""

    def __init__(self, director: OrchestratorEngine) -> None:
        self.director = director
        self.record: WorkerRecord
        self.tasks: asyncio.Queue[Task] = asyncio.Queue()
        self.stopped: asyncio.Queue[str] = asyncio.Queue()
        self.connection = CallbackConnection(self.take, self.stop, "stream")

    def take(self, tasks: Any) -> None:
        for task in tasks:
            self.tasks.put_nowait(task)

    def stop(self, attempt_ids: Any) -> None:
        for attempt_id in attempt_ids:
            self.stopped.put_nowait(attempt_id)

    async def next(self) -> Task:
        async with asyncio.timeout(5):
            return await self.tasks.get()


def result_of(task: Task) -> TaskResult:
    return TaskResult(task_id=task.attempt_id, job_id=task.job_id, worker_id="w", data={"n": 1})


def play(test: Test, *storages: StorageBackend) -> None:
    """On one store, which both share."""

    async def main() -> None:
        async with asyncio.timeout(9), Pair(list(storages)).running() as pair:
            await test(pair)

    asyncio.run(main())


async def until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not what():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def a_worker_of_one_does_what_the_other_decided(pair: Pair) -> None:
    here, there = pair.directors
    hands = await pair.join(there)
    job = await here.submit("script")
    task = await hands.next()
    assert await there.engine.deliver(result_of(task)) is ResultVerdict.ACCEPTED
    ended = await here.wait(job.id, 5)
    assert (ended.status, ended.data) == (JobStatus.FINISHED, {"n": 1})


async def what_one_was_deciding_when_it_stopped_goes_on_at_the_other(pair: Pair) -> None:
    here, there = pair.directors
    job = await here.submit("napping")
    await here.stop()
    # Its lease would have been three seconds.
    assert (await there.wait(job.id, 2)).status is JobStatus.FINISHED
    assert pair.naps == 2


async def what_one_was_deciding_when_it_was_killed_goes_on_when_it_is_back(pair: Pair) -> None:
    here, there = pair.directors
    await there.stop()
    job = await here.submit("napping")
    # As if it had been killed: somebody of the same name begins, and nobody has put anything in order.
    back = OrchestratorEngine(
        pair.storages[1], Config(instance_id="i0", lease_s=30.0), history=pair.history, clock=SystemClock()
    )
    back.register_blueprint(pair.napping)
    await back.start()
    try:
        assert (await back.wait(job.id, 2)).status is JobStatus.FINISHED
        assert pair.naps == 2
    finally:
        await back.stop()


async def a_cancel_at_one_reaches_the_worker_of_the_other(pair: Pair) -> None:
    here, there = pair.directors
    hands = await pair.join(there)
    job = await here.submit("script")
    task = await hands.next()
    await here.cancel(job.id, "enough")
    async with asyncio.timeout(5):
        assert await hands.stopped.get() == task.attempt_id


async def a_reader_at_one_sees_live_what_happens_at_the_other(pair: Pair) -> None:
    here, there = pair.directors
    hands = await pair.join(there)
    job = await there.submit("script")
    reader = await here.feed.subscribe(job_id=job.id)
    await there.engine.deliver(result_of(await hands.next()))
    seen: list[EventType] = []
    async with asyncio.timeout(5):
        while EventType.JOB_FINISHED not in seen:
            seen += [told.event.type for told in await reader.take(1.0) if hasattr(told, "event")]
    here.feed.unsubscribe(reader)


async def a_worker_registers_with_one_and_connects_to_the_other(pair: Pair) -> None:
    here, there = pair.directors
    hands = await pair.join(here)
    task = await _busy(here, hands)
    # when: its stream is opened at the other one, and it says what it still runs
    elsewhere = Hands(there)
    stop = await there.workers.attach(
        elsewhere.connection, "w", hands.record.session, running=[task.attempt_id], lease_s=3.0
    )
    # then: it keeps its session and its task, and gets further ones there alone
    assert stop == ()
    await until(lambda: here.dispatcher.find("w") is None)
    again = await here.submit("script")
    assert (await elsewhere.next()).job_id == again.id
    assert await there.engine.deliver(result_of(task)) is ResultVerdict.ACCEPTED
    (worker,) = await here.storage.workers()
    assert (worker.session, worker.instance) == (hands.record.session, "i1")


async def a_session_that_is_over_is_over_everywhere(pair: Pair) -> None:
    here, there = pair.directors
    old = await pair.join(here)
    await pair.join(here)
    assert (
        await there.workers.attach(old.connection, "w", old.record.session, running=[], lease_s=3.0) is None
    )


async def a_worker_that_registers_with_one_has_no_seat_left_at_the_other(pair: Pair) -> None:
    here, there = pair.directors
    await pair.join(here)
    here.workers.drain("w")  # as a worker does that goes elsewhere
    new = await pair.join(there)
    await until(lambda: here.dispatcher.find("w") is None)
    for director in pair.directors:
        (facts,) = await director.workers.describe()
        assert (facts.worker.session, facts.state) == (new.record.session, "ready")


async def a_goodbye_of_an_old_session_takes_nothing_from_the_new_one(pair: Pair) -> None:
    here, there = pair.directors
    old = await pair.join(here)
    task = await _busy(here, old)
    # given: it has registered with the other one, and brought along what it runs
    record = WorkerRecord(id="w", skills=("work",), capacity=4, transport="stream")
    await there.workers.register(record, [task.attempt_id], old.connection)
    # when: its last word to the first one arrives
    await here.workers.leave("w", old.record.session)
    # then: it still has its task
    assert [held.attempt_id for held in await there.workers.held("w")] == [task.attempt_id]
    assert await there.engine.deliver(result_of(task)) is ResultVerdict.ACCEPTED


async def a_start_noted_by_one_and_a_result_at_the_other_tell_of_one_start(pair: Pair) -> None:
    here, there = pair.directors
    hands = await pair.join(there)
    for _ in range(10):
        task = await _busy(here, hands)
        here.workers.started(task.attempt_id)
        verdict, _ = await asyncio.gather(there.engine.deliver(result_of(task)), here.workers.write_signs())
        assert verdict is ResultVerdict.ACCEPTED
        told = [event.type for event in await here.events(task.job_id)]
        assert told.count(EventType.TASK_STARTED) == 1


async def a_drain_asked_of_one_is_heeded_by_the_other(pair: Pair) -> None:
    here, there = pair.directors
    await pair.join(there)
    assert await here.workers.ask_to_drain("w") is True
    connected = there.dispatcher.find("w")
    assert connected is not None
    await until(lambda: connected.draining)
    assert [facts.state for facts in await here.workers.describe()] == ["draining"]
    await here.workers.ask_to_drain("w", on=False)
    await until(lambda: not connected.draining)
    assert await here.workers.ask_to_drain("nobody") is False


async def a_worker_that_polls_may_ask_anybody(pair: Pair) -> None:
    here, there = pair.desks
    said = msgspec.convert(
        {"worker_id": "w", "supported_skills": ["work"], "resources": {"max_concurrent_tasks": 1}},
        Registration,
    )
    session = (await here.register(said)).worker.session
    for turn in range(6):
        desk, other = (here, there) if turn % 2 else (there, here)
        job = await pair.directors[0].submit("script")
        async with desk.poll("w", 5.0) as tasks:
            (task,) = tasks
        beat = msgspec.convert({"status": "busy", "current_tasks": [task.attempt_id]}, Heartbeat)
        assert (await other.beat("w", beat, pair.directors[0].clock.elapsed())).stop == ()
        verdict, _ = await other.result(result_of(task))
        assert verdict is ResultVerdict.ACCEPTED
        assert (await pair.directors[1].wait(job.id, 5)).status is JobStatus.FINISHED
    (worker,) = await pair.directors[0].storage.workers()
    assert worker.session == session
    with pytest.raises(UnknownWorker):
        async with there.poll("w", 0.0, number=session + 1):
            pass


async def a_process_that_registers_with_both_keeps_its_session_and_its_stream(pair: Pair) -> None:
    here, there = pair.directors
    hands = await pair.join(here)
    said = {
        "worker_id": "w", "supported_skills": ["work"], "resources": {"max_concurrent_tasks": 4},
        "current_tasks": [], "incarnation": "p1", "cluster_id": await here.workers.cluster_id(),
    }  # fmt: skip
    session = (await pair.desks[0].register(msgspec.convert(said, Registration))).worker.session
    await here.workers.attach(hands.connection, "w", session, running=[], lease_s=3.0)
    task = await _busy(here, hands)
    # when: it registers with the other one too, which has not told it of the task, and sends heartbeats there
    known = (await pair.desks[1].register(msgspec.convert(said, Registration))).worker
    beat = msgspec.convert({"status": "idle", "current_tasks": [], "session": session}, Heartbeat)
    for _ in range(3):
        await pair.desks[1].beat("w", beat, pair.directors[1].clock.elapsed())
    # then: it has one session, gets its tasks where its stream is, and has lost nothing
    assert known.session == session
    assert there.dispatcher.find("w") is None
    (worker,) = await there.storage.workers()
    assert (worker.session, worker.instance, worker.transport) == (session, "i0", "stream")
    assert [held.attempt_id for held in await there.workers.held("w")] == [task.attempt_id]
    await _busy(there, hands)


async def another_process_with_the_same_id_gets_a_session_of_its_own(pair: Pair) -> None:
    said = {"worker_id": "w", "supported_skills": ["work"], "resources": {"max_concurrent_tasks": 4}}
    sessions = []
    for desk, incarnation in ((0, "p1"), (1, "p1"), (1, "p2"), (0, None), (0, None)):
        registration = msgspec.convert(said | {"incarnation": incarnation}, Registration)
        sessions.append((await pair.desks[desk].register(registration)).worker.session)
    assert sessions[0] == sessions[1]
    assert len(set(sessions)) == 4


async def the_choice_of_a_strategy_is_global(pair: Pair) -> None:
    here, there = pair.directors
    dear = await pair.join(here, name="dear", cost=5.0)
    cheap = await pair.join(there, capacity=2, name="cheap", cost=0.1)
    await until(lambda: bool(here.dispatcher.peers.classes))
    # when: whoever decides has a free worker itself, and the other one a cheaper one, with two slots
    jobs = [await here.submit("script") for _ in range(3)]
    # then
    assert [(await cheap.next()).job_id for _ in range(2)] == [jobs[0].id, jobs[1].id]
    assert (await dear.next()).job_id == jobs[2].id
    assert cheap.tasks.empty()


async def a_task_that_was_left_to_a_frozen_instance_is_done_here_a_moment_later(pair: Pair) -> None:
    here, _ = pair.directors
    hands = await pair.join(here, cost=5.0)
    cheap = WorkerRecord(id="", skills=("work",), profile=Profile(cost_per_second=0.1))
    slots = msgspec.msgpack.encode([FreeSlots(worker=cheap, free=9, workers=1)])
    await here.storage.put_records([RecordWrite(SLOTS, "frozen", slots, ttl_s=60.0)])
    await here.storage.publish([Hint(HintKind.SLOTS, "frozen")])
    await until(lambda: bool(here.dispatcher.peers.classes))
    # when: the one that should have it never looks
    loop = asyncio.get_running_loop()
    began, job = loop.time(), await here.submit("script")
    # then
    assert (await hands.next()).job_id == job.id
    assert loop.time() - began < 1.5


async def progress_at_one_is_seen_live_at_the_other(pair: Pair) -> None:
    here, there = pair.directors
    hands = await pair.join(there)
    job = await here.submit("script")
    task = await hands.next()
    readers = [await director.feed.subscribe(job_id=job.id) for director in pair.directors]
    for value in (0.1, 0.2, 0.7):
        there.workers.progress(task.attempt_id, value, "on it", worker_id="w")
    for reader, director in zip(readers, pair.directors, strict=True):
        seen: list[float | None] = []
        async with asyncio.timeout(5):
            while 0.7 not in seen:
                seen += [told.progress for told in await reader.take(1.0) if isinstance(told, Progress)]
        assert len(seen) == (3 if director is there else 1)  # there every word, here the newest
        director.feed.unsubscribe(reader)


async def a_list_of_workers_tells_the_same_at_both(pair: Pair) -> None:
    here, there = pair.directors
    hands = await pair.join(here)
    task = await _busy(here, hands)
    # when: it opens its stream here, goes over to the other one, and comes back, each time with another lease
    for lease_s, director in ((4.0, here), (5.0, there), (6.0, here)):
        elsewhere = Hands(director)
        stop = await director.workers.attach(
            elsewhere.connection,
            "w",
            hands.record.session,
            running=[task.attempt_id],
            lease_s=lease_s,
        )
        assert stop == ()
        # then
        await until(lambda: sum(one.dispatcher.find("w") is not None for one in pair.directors) == 1)
        told = [(await one.workers.describe())[0] for one in pair.directors]
        assert [facts.worker for facts in told] == [told[0].worker] * 2
        assert {(facts.state, facts.holding, facts.free) for facts in told} == {
            ("ready", (task.attempt_id,), 3)
        }
        assert (told[0].worker.instance, told[0].worker.lease_s) == (director.config.instance_id, lease_s)


async def two_leaders_at_once_do_no_harm(pair: Pair) -> None:
    here, there = pair.directors
    hands = await pair.join(here)
    task = await _busy(here, hands)
    await pair.desks[0].close()
    # when: the worker is gone, and both believe that the chores are theirs
    for _ in range(3):
        session = hands.record.session
        await asyncio.gather(*(one.workers.remove("w", session, lapsed=False) for one in pair.directors))
    heirs = await pair.join(there)
    again = await heirs.next()
    # then: its attempt was lost once, and is tried once more
    assert (again.id, again.attempt) == (task.id, task.attempt + 1)
    await there.engine.deliver(result_of(again))
    await here.wait(task.job_id, 5)
    told = [event.type for event in await here.events(task.job_id)]
    assert (told.count(EventType.TASK_LOST), told.count(EventType.JOB_FINISHED)) == (1, 1)
    assert heirs.tasks.empty()


async def a_result_of_a_stranger_wipes_no_checkpoint(pair: Pair) -> None:
    here, _ = pair.directors
    hands = await pair.join(here)
    task = await _busy(here, hands)
    here.workers.progress(task.attempt_id, 0.5, "half", {"at": 5}, "w")
    # when: somebody else speaks of this attempt before its progress is written down
    verdict = await here.workers.deliver(msgspec.structs.replace(result_of(task), worker_id="stranger"))
    assert verdict is ResultVerdict.WORKER_MISMATCH
    await here.workers.write_signs()
    # then
    ((found,),) = [await here.storage.tasks_of(task.job_id)]
    assert (found.progress, found.checkpoint) == (0.5, {"at": 5})


async def _busy(director: OrchestratorEngine, hands: Hands) -> Task:
    await director.submit("script")
    return await hands.next()


async def a_clock_that_is_ahead_calls_nobodys_task_overdue(pair: Pair) -> None:
    here, there = pair.directors
    job = await here.submit("script", {}, result_timeout_s=60)
    later = await there.submit("script", {}, result_timeout_s=60)
    for director in pair.directors:
        await director.maintenance.turn(
            next(chore for chore in director.maintenance.chores if chore.name == "watcher")
        )
    assert await here.storage.due(here.clock.now(), 10) == await here.storage.due(there.clock.now(), 10) == []
    for asked in (job, later):
        assert (await there.get(asked.id)).status is JobStatus.WAITING_FOR_WORKER
    assert abs(here.clock.now() - there.clock.now()) < timedelta(seconds=1)


class Between:
    """A store in which something happens between the reading of a worker's record and the next writing of it."""

    def __init__(self, director: OrchestratorEngine, what: Callable[[], Awaitable[Any]]) -> None:
        self._storage = director.workers.records._storage
        self._what: Callable[[], Awaitable[Any]] | None = what
        director.workers.records._storage = cast(StorageBackend, self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    async def update_worker(self, worker: WorkerRecord) -> WorkerRecord | None:
        what, self._what = self._what, None
        if what is not None:
            await what()
        return await self._storage.update_worker(worker)


async def a_move_in_the_middle_of_a_drain_leaves_the_worker_seated_and_drained(pair: Pair) -> None:
    here, there = pair.directors
    hands, elsewhere = await pair.join(here), Hands(there)

    async def move() -> None:
        session = hands.record.session
        took = await there.workers.attach(elsewhere.connection, "w", session, running=[], lease_s=3.0)
        assert took == ()

    # when: it goes over after the record was read for the drain, and before that is written
    Between(here, move)
    assert await here.workers.ask_to_drain("w")
    # then
    await until(lambda: here.dispatcher.find("w") is None and _is_drained(there))
    known = await find_worker(there.storage, "w")
    assert known is not None
    assert (known.instance, known.draining, known.record_version) == ("i1", True, 2)


async def a_drain_in_the_middle_of_a_move_is_heeded_where_the_worker_goes(pair: Pair) -> None:
    here, there = pair.directors
    hands, elsewhere = await pair.join(here), Hands(there)
    Between(there, lambda: here.workers.ask_to_drain("w"))
    # when
    session = hands.record.session
    took = await there.workers.attach(elsewhere.connection, "w", session, running=[], lease_s=3.0)
    # then
    assert took == ()
    assert _is_drained(there)
    await until(lambda: here.dispatcher.find("w") is None)
    assert [facts.state for facts in await here.workers.describe()] == ["draining"]


async def a_session_that_ends_in_the_middle_of_a_move_gets_no_seat(pair: Pair) -> None:
    here, there = pair.directors
    hands, elsewhere = await pair.join(here), Hands(there)
    Between(there, lambda: pair.join(here))
    session = hands.record.session
    took = await there.workers.attach(elsewhere.connection, "w", session, running=[], lease_s=3.0)
    assert took is None
    assert there.dispatcher.find("w") is None
    assert here.dispatcher.find("w") is not None


def _is_drained(director: OrchestratorEngine) -> bool:
    connected = director.dispatcher.find("w")
    return connected is not None and connected.draining


async def a_worker_that_died_at_one_is_told_of_alike_by_both(pair: Pair) -> None:
    here, there = pair.directors
    hands = await pair.join(there)
    task = await _busy(here, hands)
    # when: its stream is closed
    there.workers.disconnected("w", hands.record.session)
    waiting = await here.submit("script")

    async def all_know() -> bool:
        told = [(await one.workers.describe())[0] for one in pair.directors]
        assert [facts.holding for facts in told] == [(task.attempt_id,)] * 2
        return {facts.state for facts in told} == {"disconnected"} and told[0].since == told[1].since

    # then: both say so, and why nothing goes on
    async with asyncio.timeout(2):
        while not await all_know():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    for job_id, code in ((waiting.id, "disconnected"), (task.job_id, "worker_disconnected")):
        reasons = [
            (await one.dispatcher.explain_job(await one.get(job_id))).reasons for one in pair.directors
        ]
        assert [[reason.code for reason in some] for some in reasons] == [[code]] * 2
        assert reasons[0] == reasons[1]
    # and: when it is back, wherever, it is ready again at both
    again = Hands(here)
    running = [task.attempt_id]
    assert (
        await here.workers.attach(again.connection, "w", hands.record.session, running=running, lease_s=3.0)
        == ()
    )
    assert (await again.next()).job_id == waiting.id
    assert {(await one.workers.describe())[0].state for one in pair.directors} == {"ready"}


async def a_seat_is_let_go_of_though_the_word_of_it_was_lost(pair: Pair) -> None:
    here, there = pair.directors
    here.hints.handlers[HintKind.WORKER] = ()
    gone, renewed, moved = [await pair.join(here, name=name) for name in ("gone", "renewed", "moved")]
    # when: one is buried, one registers and one connects at the other instance, and the first one hears nothing of it
    await there.workers.remove("gone", gone.record.session, lapsed=False)
    await pair.join(there, name="renewed")
    session = moved.record.session
    assert await there.workers.attach(moved.connection, "moved", session, running=[], lease_s=3.0) == ()
    # then
    (chore,) = (chore for chore in here.maintenance.chores if chore.name == "index_cleaner")
    assert chore.interval_s <= 2.0
    await until(lambda: here.dispatcher.connected_workers() == [])
    assert {connected.worker.id for connected in there.dispatcher.connected_workers()} == {"renewed", "moved"}
    assert renewed.tasks.empty()


TESTS = [
    a_move_in_the_middle_of_a_drain_leaves_the_worker_seated_and_drained,
    a_drain_in_the_middle_of_a_move_is_heeded_where_the_worker_goes,
    a_session_that_ends_in_the_middle_of_a_move_gets_no_seat,
    a_worker_that_died_at_one_is_told_of_alike_by_both,
    a_seat_is_let_go_of_though_the_word_of_it_was_lost,
    a_clock_that_is_ahead_calls_nobodys_task_overdue,
    a_worker_of_one_does_what_the_other_decided,
    a_cancel_at_one_reaches_the_worker_of_the_other,
    a_reader_at_one_sees_live_what_happens_at_the_other,
    a_worker_registers_with_one_and_connects_to_the_other,
    a_session_that_is_over_is_over_everywhere,
    a_worker_that_registers_with_one_has_no_seat_left_at_the_other,
    a_goodbye_of_an_old_session_takes_nothing_from_the_new_one,
    a_start_noted_by_one_and_a_result_at_the_other_tell_of_one_start,
    what_one_was_deciding_when_it_stopped_goes_on_at_the_other,
    what_one_was_deciding_when_it_was_killed_goes_on_when_it_is_back,
    a_drain_asked_of_one_is_heeded_by_the_other,
    a_worker_that_polls_may_ask_anybody,
    a_process_that_registers_with_both_keeps_its_session_and_its_stream,
    another_process_with_the_same_id_gets_a_session_of_its_own,
    the_choice_of_a_strategy_is_global,
    a_task_that_was_left_to_a_frozen_instance_is_done_here_a_moment_later,
    progress_at_one_is_seen_live_at_the_other,
    a_list_of_workers_tells_the_same_at_both,
    two_leaders_at_once_do_no_harm,
    a_result_of_a_stranger_wipes_no_checkpoint,
]
_names = map("pair-{}".format, count(1))


@pytest.mark.parametrize("test", TESTS, ids=lambda test: test.__name__)
def test_in_memory(test: Test) -> None:
    storage = Shared()
    play(test, storage, storage)


@pytest.fixture(scope="module")
def server(require: Require) -> Iterator[RedisServer]:
    with RedisServer(require("redis-server")) as server:
        yield server


@pytest.mark.parametrize("test", TESTS, ids=lambda test: test.__name__)
def test_on_redis(test: Test, server: RedisServer) -> None:
    namespace = next(_names)
    play(test, *(RedisStorage(server.url, namespace=namespace) for _ in range(2)))


def test_what_is_offered_to_a_session_that_was_replaced_goes_to_the_new_one_at_once(
    server: RedisServer,
) -> None:
    async def test(pair: Pair) -> None:
        here, there = pair.directors
        here.hints.handlers[HintKind.WORKER] = ()
        await pair.join(here)
        # when: it registers at the other instance, and the first one hears nothing of it and decides a task
        new = await pair.join(there)
        job = await here.submit("script")
        # then
        task = await new.next()
        assert (task.job_id, task.session) == (job.id, new.record.session)
        assert await there.engine.deliver(result_of(task)) is ResultVerdict.ACCEPTED
        assert (await here.wait(job.id, 5)).status is JobStatus.FINISHED
        events = [event.type for event in await here.history.events(job.id)]
        assert EventType.TASK_LOST not in events

    namespace = next(_names)
    play(test, *(RedisStorage(server.url, namespace=namespace) for _ in range(2)))
