"""The loop of chores: intervals, leadership, failures, and that twice at once does no harm."""

import asyncio
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, cast

import pytest
from msgspec.structs import replace

from regista import Event, Job, JobStatus, MemoryStorage, OrchestratorEngine, StateMachineBlueprint
from regista.blueprint import ActionFactory, JobContext
from regista.clock import IdGenerator
from regista.config import Config
from regista.errors import HistoryUnavailable, StorageFailed, StorageUnavailable
from regista.history.memory import MemoryHistory
from regista.maintenance.chore import Chore, ChoreResult
from regista.maintenance.loop import ExpiryGrace, MaintenanceLoop
from regista.storage.base import StorageBackend
from regista.testing.clock import LoopClock
from regista.testing.disk import SimulatedDisk
from regista.testing.invariants import audit, check_history
from regista.testing.loop import VirtualLoop
from regista.testing.storage_view import StorageView
from regista.worker import Worker
from tests.support import Shared, script


class Counting:
    """A chore that counts its runs."""

    name = "counting"
    needs_leader = False
    interval_s = 10.0

    def __init__(self, run: Callable[[int], float | None] = lambda n: None, leader: bool = False) -> None:
        self.runs: list[float] = []
        self._run = run
        self.needs_leader = leader

    async def run_once(self, now: datetime) -> ChoreResult:
        self.runs.append(asyncio.get_running_loop().time())
        return ChoreResult(run_again_in_s=self._run(len(self.runs)))


def upkeep(
    loop: VirtualLoop, chore: Chore, instance: str = "a", storage: MemoryStorage | None = None
) -> MaintenanceLoop:
    clock = LoopClock(loop)
    grace = ExpiryGrace(clock, 30)
    return MaintenanceLoop([chore], clock, storage or MemoryStorage(clock), grace, instance, random.Random(1))


def run_for(loop: VirtualLoop, seconds: float, *loops: MaintenanceLoop) -> None:
    async def main() -> None:
        for each in loops:
            await each.start()
        await asyncio.sleep(seconds)
        for each in loops:
            await each.stop()

    loop.run_until_complete(main())


@pytest.fixture
def loop() -> Any:
    loop = VirtualLoop()
    yield loop
    loop.close()


def test_a_chore_runs_at_once_and_then_at_its_interval_with_jitter(loop: VirtualLoop) -> None:
    chore = Counting()
    run_for(loop, 100, upkeep(loop, chore))
    pauses = [after - before for before, after in pairwise(chore.runs)]
    assert chore.runs[0] == 0
    assert all(9 <= pause <= 11 for pause in pauses)
    assert len({round(pause, 6) for pause in pauses}) > 1


def test_a_chore_may_ask_to_run_again_sooner(loop: VirtualLoop) -> None:
    chore = Counting(lambda n: 1.0 if n < 5 else None)
    run_for(loop, 8, upkeep(loop, chore))
    assert chore.runs == [0, 1, 2, 3, 4]


def test_a_nudge_runs_a_chore_now(loop: VirtualLoop) -> None:
    chore = Counting()
    keeper = upkeep(loop, chore)

    async def main() -> None:
        keeper.run_soon("counting")  # before the start it is nobody's
        await keeper.start()
        await asyncio.sleep(3)
        keeper.run_soon("counting")
        keeper.run_soon("unknown")
        await asyncio.sleep(1)
        await keeper.stop()

    loop.run_until_complete(main())
    assert chore.runs == [0, 3]


def test_a_chore_that_fails_is_logged_and_runs_again(
    loop: VirtualLoop, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(run: int) -> None:
        raise RuntimeError("out of ink")

    chore = Counting(fail)
    run_for(loop, 50, upkeep(loop, chore))
    assert len(chore.runs) >= 4
    assert "counting failed" in caplog.text
    assert "out of ink" in caplog.text


def test_a_failed_store_ends_the_chore(loop: VirtualLoop) -> None:
    def fail(run: int) -> None:
        raise StorageFailed("gone")

    chore = Counting(fail)
    run_for(loop, 50, upkeep(loop, chore))
    assert len(chore.runs) == 1


def test_leadership_saves_work_and_passes_on_when_the_leader_is_gone(loop: VirtualLoop) -> None:
    storage = MemoryStorage(LoopClock(loop))
    first, second = Counting(leader=True), Counting(leader=True)
    leader, follower = upkeep(loop, first, "a", storage), upkeep(loop, second, "b", storage)

    async def main() -> None:
        await leader.start()
        await asyncio.sleep(1)
        await follower.start()
        await asyncio.sleep(60)
        assert (len(first.runs) >= 6, len(second.runs)) == (True, 0)
        await leader.stop()
        await asyncio.sleep(60)
        await follower.stop()

    loop.run_until_complete(main())
    assert len(second.runs) >= 2


def test_a_stop_ends_a_chore_that_is_nudged_in_the_same_moment(loop: VirtualLoop) -> None:
    chore = Counting()
    keeper = upkeep(loop, chore)

    async def main() -> None:
        await keeper.start()
        await asyncio.sleep(3)
        keeper.run_soon("counting")
        await asyncio.sleep(0)  # the wait is over, and its owner has not heard of it
        async with asyncio.timeout(5):
            await keeper.stop()

    loop.run_until_complete(main())
    assert len(chore.runs) <= 2


def test_a_store_that_is_away_restarts_the_grace_and_ends_no_chore(loop: VirtualLoop) -> None:
    def fail(run: int) -> None:
        raise StorageUnavailable("for now")

    chore = Counting(fail)
    run_for(loop, 50, upkeep(loop, chore))
    assert len(chore.runs) >= 4


def test_stop_twice_and_before_start_are_fine(loop: VirtualLoop) -> None:
    keeper = upkeep(loop, Counting())

    async def main() -> None:
        await keeper.stop()
        await keeper.start()
        await keeper.start()
        await keeper.stop()
        await keeper.stop()

    loop.run_until_complete(main())


def test_a_loop_that_stalled_restarts_the_grace(loop: VirtualLoop, caplog: pytest.LogCaptureFixture) -> None:
    """A SIGSTOP, seen from inside: a second of sleep took a minute."""
    clock = Jumpy(loop)
    grace = ExpiryGrace(clock, 30)
    keeper = MaintenanceLoop([], clock, MemoryStorage(clock), grace, "a", random.Random(1), stall_s=5)

    seen = []

    async def main() -> None:
        await keeper.start()
        for seconds in (40, 1.5, 31):
            await asyncio.sleep(seconds)
            seen.append(grace.over)
            clock.jumped_s = 60
        await keeper.stop()

    loop.run_until_complete(main())
    assert seen == [True, False, True]
    (stall,) = [record for record in caplog.records if getattr(record, "action", "") == "stall"]
    assert "event loop stalled for 60.0 s" in stall.getMessage()


def test_a_chore_that_runs_first_after_a_stall_finds_the_grace_restarted(loop: VirtualLoop) -> None:
    """After a SIGCONT the chores and the check for stalls are due at the same moment, in any order."""
    clock = Jumpy(loop)
    grace = ExpiryGrace(clock, 30)
    seen = []
    chore = Counting(lambda n: seen.append(grace.over))
    keeper = MaintenanceLoop([chore], clock, MemoryStorage(clock), grace, "a", random.Random(1), stall_s=5)

    async def main() -> None:
        await keeper.start()
        await asyncio.sleep(31)
        seen.clear()
        clock.jumped_s = 60
        await keeper.turn(chore)
        await keeper.stop()

    loop.run_until_complete(main())
    assert seen == [False]


def test_a_clock_that_is_set_forward_restarts_the_grace_and_is_not_called_a_stall(
    loop: VirtualLoop, caplog: pytest.LogCaptureFixture
) -> None:
    clock = LoopClock(loop)
    grace = ExpiryGrace(clock, 30)
    chore = Counting()
    keeper = MaintenanceLoop([chore], clock, MemoryStorage(clock), grace, "a", random.Random(1), stall_s=5)
    seen: list[bool] = []

    async def main() -> None:
        await keeper.start()
        await asyncio.sleep(40)
        began = clock.now()
        seen.append(grace.covers(began))
        clock.jump(timedelta(hours=3))
        await keeper.turn(chore)
        seen.append(grace.covers(began))
        await asyncio.sleep(31)
        seen.append(grace.covers(began))
        await keeper.stop()

    loop.run_until_complete(main())
    assert seen == [False, True, False]
    (told,) = [record for record in caplog.records if getattr(record, "action", "") == "stall"]
    assert "clock moved forward by 10800.0 s" in told.getMessage()
    assert "stalled" not in told.getMessage()


def test_a_history_that_is_away_does_not_restart_the_grace(loop: VirtualLoop) -> None:
    """Else a failing retention run every 60 s would keep half of all timeouts from firing."""

    def fail(run: int) -> None:
        raise HistoryUnavailable("PostgreSQL is away")

    clock, chore = LoopClock(loop), Counting(fail)
    grace = ExpiryGrace(clock, 30)
    keeper = MaintenanceLoop([chore], clock, MemoryStorage(clock), grace, "a", random.Random(1))
    run_for(loop, 35, keeper)
    assert len(chore.runs) >= 3
    assert grace.over
    assert keeper.statuses()[0].failures == len(chore.runs)


class Jumpy(LoopClock):
    jumped_s = 0.0

    def elapsed(self) -> float:
        return super().elapsed() + self.jumped_s


# -- every chore, twice at once --------------------------------------------------------------------


def blueprints() -> list[StateMachineBlueprint]:
    """Everything that a chore could have to see to: timers, retries, timeouts, branches, children, cancels."""

    def start(context: JobContext, actions: ActionFactory) -> None:
        for n in range(3):
            actions.dispatch_task("work", {"n": n}, transitions={"success": "join"}, result_timeout=40)

    def join(context: JobContext, actions: ActionFactory) -> None:
        if context.attempt == 1:
            raise RuntimeError("once more")
        actions.run_blueprint("child", transitions={"over": "nap"})

    parent = script(
        start,
        "done",
        aggregators=["join"],
        join=join,
        nap=lambda context, actions: actions.sleep(7, then="lonely"),
        lonely=lambda context, actions: actions.dispatch_task(
            "nobody", transitions={"success": "start", "timeout": "done"}, dispatch_timeout=9
        ),
    )
    child = script(lambda context, actions: actions.sleep(5, then="over"), "over", name="child")
    return [parent, child]


async def work(params: dict[str, Any], context: Any) -> int:
    await asyncio.sleep(3)
    if context.attempt == 1 and params["n"] == 1:
        raise RuntimeError("once more")
    if params["n"] == 2:
        await asyncio.sleep(1000)  # times out
    return int(params["n"])


class TwoEngines:
    """Two orchestrators over one store. Whoever runs a chore runs it on both, at the same instant."""

    def __init__(self) -> None:
        self.loop = VirtualLoop()
        clock = LoopClock(self.loop)
        self.disk = SimulatedDisk()
        self.storage = MemoryStorage(clock, self.disk)
        ids = IdGenerator(clock, random.Random(3))
        self.history = MemoryHistory()
        self.directors = []
        for name in ("a", "b"):
            director = OrchestratorEngine(
                cast(StorageBackend, Shared(self.storage)),
                Config(instance_id=name),
                history=self.history,
                clock=clock,
                ids=ids,
            )
            for blueprint in blueprints():
                director.register_blueprint(blueprint)
            worker = Worker(f"worker-{name}", concurrency=2)
            worker.task("work")(work)
            director.add_worker(worker)
            self.directors.append(director)
        self.clock = clock

    async def start(self) -> None:
        await self.storage.start()
        for director in self.directors:
            await director.start()
            await director.maintenance.stop()

    async def twice_at_once(self) -> None:
        now = self.clock.now()
        pairs = zip(*(director.maintenance.chores for director in self.directors), strict=True)
        for first, second in pairs:
            await asyncio.gather(
                first.run_once(now), second.run_once(now), first.run_once(now), second.run_once(now)
            )


def test_every_chore_run_twice_at_once_on_two_engines_does_no_harm() -> None:
    world = TwoEngines()

    async def main() -> tuple[list[Job], dict[str, list[Event]]]:
        await world.start()
        first, second = world.directors
        asks = [(first if n % 2 else second).submit("script") for n in range(6)]
        jobs = [await ask for ask in asks]
        for step in range(240):
            await asyncio.sleep(0.5)
            await world.twice_at_once()
            if step == 20:
                await first.cancel(jobs[0].id)
        audit(StorageView(world.storage))
        every = {job_id: await second.get(job_id) for job_id in list(world.disk.jobs)}
        for director in world.directors:
            await director.stop(0.0)
        await world.storage.stop()
        events = {job_id: await world.history.events(job_id) for job_id in every}
        check_history({(each.name, each.version): each.graph for each in blueprints()}, events, every)
        return [every[job.id] for job in jobs], events

    settled, events = world.loop.run_until_complete(main())
    world.loop.close()
    assert [job.status for job in settled] == [JobStatus.CANCELLED, *[JobStatus.FINISHED] * 5]
    assert {job.state for job in settled[1:]} == {"done"}
    assert events


def test_once_or_twice_at_once_gives_the_same_end() -> None:
    def ends(times: int) -> list[Job]:
        world = TwoEngines()

        async def main() -> list[Job]:
            await world.start()
            director = world.directors[0]
            jobs = [await director.submit("script", {"n": n}) for n in range(3)]
            for _ in range(240):
                await asyncio.sleep(0.5)
                for _ in range(times):
                    await world.twice_at_once()
            done = [await director.wait(job.id, 1) for job in jobs]
            for each in world.directors:
                await each.stop(0.0)
            await world.storage.stop()
            return done

        done = world.loop.run_until_complete(main())
        world.loop.close()
        return [
            replace(job, token="", revision=0, updated_at=job.created_at, finished_at=None) for job in done
        ]

    once, twice = ends(1), ends(2)
    assert [(job.status, job.state, job.visit) for job in once] == [
        (job.status, job.state, job.visit) for job in twice
    ]


def test_every_run_leaves_a_trace_that_people_can_see() -> None:
    def run(number: int) -> None:
        if number == 2:
            raise RuntimeError("a bug")

    chore = Counting(run)
    loop = VirtualLoop()
    one = upkeep(loop, chore)
    (before,) = one.statuses()
    run_for(loop, 25, one)
    (status,) = one.statuses()
    loop.close()

    assert (before.name, before.runs, before.last_run_at) == ("counting", 0, None)
    assert (status.runs, status.failures, status.leading) == (3, 1, None)
    assert status.last_error == "RuntimeError: a bug"
    assert status.last_run_at is not None
    assert status.last_error_at is not None
    assert status.last_run_at > status.last_error_at
    assert status.last_duration_s == 0


def test_a_trace_says_who_leads() -> None:
    loop = VirtualLoop()
    storage = MemoryStorage(LoopClock(loop))
    loop.run_until_complete(storage.start())
    leader = upkeep(loop, Counting(leader=True), "a", storage)
    other = upkeep(loop, Counting(leader=True), "b", storage)
    run_for(loop, 15, leader, other)
    told = [one.statuses()[0] for one in (leader, other)]
    loop.run_until_complete(storage.stop())
    loop.close()

    assert sorted((bool(one.leading), one.runs > 0) for one in told) == [(False, False), (True, True)]
