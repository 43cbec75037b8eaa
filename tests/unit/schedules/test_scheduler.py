"""The Scheduler: each tick once, through crashes, races and people. FENCES 19, promise 8."""

import asyncio
import random
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from regista import Config, OrchestratorEngine
from regista.errors import (
    BlueprintNotFound,
)
from regista.model import RecordWrite
from regista.schedules.registry import SHELF, ScheduleRegistry, StoredSchedule
from regista.schedules.schedule import CatchUp, Overlap, Schedule
from regista.schedules.scheduler import Scheduler
from regista.schedules.state import PendingStart, ScheduleRecord
from regista.testing.invariants import InvariantBroken, check_schedule
from regista.testing.orchestrator import TestOrchestrator
from tests.schedule_kit import at_once, create, entry_of, every, kit_of, told
from tests.support import one_task, script


def test_a_tick_starts_a_job_with_what_the_schedule_says() -> None:
    with kit_of() as kit:
        create(kit, every(blueprint="nap", input_data={"seconds": 5}, priority=3.0, client="acme"))
        kit.skip(60)

        (job,) = kit.jobs()
        assert (job.blueprint, job.input, job.priority, job.client) == ("nap", {"seconds": 5}, 3.0, "acme")
        assert told(kit) == [("started", None)]
        state = entry_of(kit).state
        assert (state.fired, state.last_job_id) == (1, job.id)


def test_ticks_go_on_day_after_day_through_restarts() -> None:
    with kit_of() as kit:
        create(kit, Schedule(blueprint="quick", daily_at="07:30", timezone="Europe/Madrid"))
        for _ in range(10):
            kit.skip(days=1)
            kit.crash()

        assert len(kit.jobs()) == 10
        assert told(kit) == [("started", None)] * 10


def test_what_next_promises_is_what_fires() -> None:
    schedule = Schedule(blueprint="quick", cron="*/20 * * * *", jitter_seconds=300.0)
    with kit_of() as kit:
        entry = create(kit, schedule)
        promised = entry.calendar.between(entry.state.cursor, kit.now + timedelta(hours=3))
        kit.skip(hours=3)

        fired = [record.tick for record in entry_of(kit).state.records]
        assert len(promised) - 1 <= len(fired) <= len(promised)
        assert [int(tick.timestamp()) for tick in fired if tick] == list(promised)[: len(fired)]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("write", range(1, 9))
def test_a_power_cut_at_any_write_repeats_and_loses_nothing(write: int, when: Any) -> None:
    with kit_of() as kit:
        create(kit, every(catch_up=CatchUp.ALL))
        kit.crash_at(write, when)
        kit.skip(200)

        ticks = [record.tick for record in entry_of(kit).state.records if record.kind == "started"]
        assert len(kit.jobs()) == len(ticks) == len(set(ticks)) == 3


class Slow:
    """A store that lets others go first, and at which a scheduler may die."""

    def __init__(self, inner: Any, chance: random.Random, deaths: float) -> None:
        self._inner = inner
        self._chance = chance
        self._deaths = deaths

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._inner, name)

        async def late(*args: Any, **options: Any) -> Any:
            await self._maybe()
            answer = await call(*args, **options)
            await self._maybe()
            return answer

        return late

    async def _maybe(self) -> None:
        if self._chance.random() < 0.5:
            await asyncio.sleep(self._chance.uniform(0, 8))
        if self._chance.random() < self._deaths:
            raise Killed


class Killed(BaseException):
    """kill -9: nobody catches it."""


async def _storm(director: OrchestratorEngine, seed: int, schedule: Schedule) -> StoredSchedule:
    """Two schedulers over one store, who die now and then, while time passes."""
    chance = random.Random(seed)
    clock = director.clock

    def hire() -> Scheduler:
        slow = Slow(director.storage, chance, 0.05)
        book = ScheduleRegistry(slow, clock, "UTC", keep=10_000)

        async def start(*args: Any, **options: Any) -> str:
            await slow._maybe()
            job_id = await director.create_background_job(*args, **options)
            await slow._maybe()
            return job_id

        return Scheduler(book, start, director.engine, lambda name: True)

    async def turn(number: int) -> None:
        try:
            await crew[number].run_once(clock.now())
        except Killed:
            crew[number] = hire()

    crew = [hire(), hire()]
    book = ScheduleRegistry(director.storage, clock, "UTC", keep=10_000)
    await book.create("s", schedule)
    for _ in range(25):
        await asyncio.sleep(chance.uniform(0, 30))
        await asyncio.gather(turn(0), turn(1))
    quiet = Scheduler(book, director.create_background_job, director.engine, lambda name: True)
    await asyncio.sleep(200)
    await quiet.run_once(clock.now())
    return await book.get("s")


@pytest.mark.parametrize("seed", range(12))
def test_two_schedulers_that_die_now_and_then_fire_each_tick_once(seed: int) -> None:
    policies = [(a, b) for a in CatchUp for b in Overlap]
    catch_up, overlap = policies[seed % len(policies)]
    schedule = every(20, "nap", catch_up=catch_up, overlap=overlap, input_data={"seconds": 31})
    with kit_of(seed=seed) as kit:
        chores = kit.director.maintenance.chores
        kit.director.maintenance.chores = [chore for chore in chores if chore.name != "scheduler"]
        entry = kit.call(lambda: _storm(kit.director, seed, schedule))

        jobs = {job.id for job in kit.jobs()}
        check_schedule(entry, jobs.__contains__)
        assert jobs == {record.job_id for record in entry.state.records if record.kind == "started"}
        assert entry.state.starting == ()
        assert len(jobs) >= 5


def test_a_schedule_that_was_edited_after_its_tick_was_started_has_one_job_all_the_same() -> None:
    with kit_of() as kit:
        entry = create(kit, every())
        kit.skip(60)
        # As if the confirmation had been lost, and the input changed in between.
        decided = entry_of(kit).state
        changed = StoredSchedule("s", every(input_data={"x": 1}), entry.calendar, entry.state)
        job_id = kit.call(lambda: kit.director.scheduler._submit(changed, PendingStart(decided.last_tick)))

        assert job_id == decided.last_job_id
        assert len(kit.jobs()) == 1


def test_overlap_skip_waits_for_nobody_and_says_so() -> None:
    with kit_of() as kit:
        create(kit, every(60, "nap", overlap=Overlap.SKIP, input_data={"seconds": 150}))
        kit.skip(60 * 6 + 1)

        kinds = [kind for kind, _ in told(kit)]
        assert kinds == ["started", "skipped", "started", "skipped"]
        assert entry_of(kit).state.records[1].reason == "overlap"


def test_buffer_one_starts_the_next_when_the_last_has_ended() -> None:
    with kit_of() as kit:
        create(kit, every(60, "nap", overlap=Overlap.BUFFER_ONE, input_data={"seconds": 90}))
        kit.skip(155)

        first, second = kit.jobs()
        assert (second.created_at - first.created_at).total_seconds() == pytest.approx(90, abs=2)
        assert told(kit) == [("started", None), ("started", None)]


def test_cancel_previous_stops_the_last_and_then_starts_the_next() -> None:
    with kit_of() as kit:
        create(kit, every(60, "nap", overlap=Overlap.CANCEL_PREVIOUS, input_data={"seconds": 1000}))
        kit.skip(123)

        first, second = kit.jobs()
        assert first.status == "cancelled"
        assert not second.status.settled


def test_a_job_that_nobody_works_on_is_cancelled_too() -> None:
    with TestOrchestrator(one_task(name="work")) as kit:
        create(kit, every(60, "work", overlap=Overlap.CANCEL_PREVIOUS))
        kit.skip(123)

        assert [job.status.value for job in kit.jobs()] == ["cancelled", "waiting_for_worker"]


def test_a_trigger_starts_a_job_at_once_and_the_same_key_is_the_same_job() -> None:
    with kit_of() as kit:
        create(kit, every(3600, paused=True))
        scheduler = kit.director.scheduler
        ids = [kit.call(lambda: scheduler.trigger("s", "k1")) for _ in range(2)]
        other = kit.call(lambda: scheduler.trigger("s", "k2"))

        assert ids[0] == ids[1] != other
        assert len(kit.jobs()) == 2
        assert told(kit) == [("triggered", None)] * 2


def test_a_trigger_without_its_blueprint_is_refused_and_a_tick_is_skipped() -> None:
    blueprint = script(at_once, "done", name="gone")
    with kit_of() as kit:
        kit.register(blueprint)
        create(kit, every(60, "gone"))
        kit.forget(blueprint)
        kit.crash()
        with pytest.raises(BlueprintNotFound):
            kit.call(lambda: kit.director.scheduler.trigger("s", "k"))
        kit.skip(60)

        assert told(kit) == [("skipped", "refused")]
        assert "gone" in (entry_of(kit).state.records[0].message or "")


def test_what_the_engine_refuses_is_recorded_with_its_code() -> None:
    with kit_of() as kit:
        create(kit, every(input_data={"n": 2**70}))
        kit.skip(60)

        assert told(kit) == [("skipped", "not_serializable")]


def test_one_schedule_that_fails_does_not_keep_the_others_from_their_ticks() -> None:
    with kit_of() as kit:
        create(kit, every(), "a")
        create(kit, every(), "b")
        scheduler = kit.director.scheduler
        right = scheduler._turn

        async def wrong(entry: StoredSchedule, now: Any) -> int:
            if entry.name == "a":
                raise RuntimeError("a bug")
            return await right(entry, now)

        scheduler._turn = wrong  # type: ignore[method-assign]
        kit.skip(60)

        assert (told(kit, "a"), told(kit, "b")) == ([], [("started", None)])
        del scheduler._turn
        kit.skip(10)
        assert told(kit, "a") == [("started", None)]


def test_a_stored_schedule_that_cannot_be_read_does_not_stop_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with kit_of() as kit:
        create(kit, every(), "a")
        create(kit, every(), "b")
        newer = b'{"cursor":"2026-01-01T00:00:00Z","schedule":{"blueprint":"quick","of_tomorrow":1}}'
        due = kit.now
        kit.call(lambda: kit.director.storage.put_records([RecordWrite(SHELF, "a", newer, due=due)]))
        kit.skip(180)

        assert told(kit, "b") == [("started", None)] * 3
        assert [entry.name for entry in kit.call(kit.director.scheduler.registry.all)] == ["b"]
        (named,) = [each for each in caplog.records if getattr(each, "action", "") == "schedule_unreadable"]
        assert getattr(named, "schedule", "") == "a"


def test_a_last_tick_in_the_future_is_logged_and_reset(caplog: pytest.LogCaptureFixture) -> None:
    with kit_of() as kit:
        entry = create(kit, every())
        ahead = replace(entry.state, cursor=kit.now + timedelta(days=400))
        kit.call(lambda: kit.director.scheduler.registry.save(entry, ahead))
        kit.skip(240)

        assert told(kit).count(("started", None)) >= 2
        assert told(kit)[0] == ("changed", None)
        assert entry_of(kit).state.cursor <= kit.now
        (named,) = [each for each in caplog.records if getattr(each, "action", "") == "schedule_reset"]
        assert getattr(named, "schedule", "") == "s"


def _broken(
    entry: StoredSchedule, *records: ScheduleRecord, jobs: Callable[[str], bool] = lambda _: True
) -> None:
    state = replace(entry.state, records=records, fired=0, skipped=sum(one.count for one in records))
    with pytest.raises(InvariantBroken, match="promise 8"):
        check_schedule(replace(entry, state=state), jobs)


def test_the_eighth_promise_is_really_checked() -> None:
    with kit_of() as kit:
        create(kit, every())
        kit.skip(180)
        entry = entry_of(kit)
        one, two, three = entry.state.records

        check_schedule(entry, lambda _: True)
        _broken(entry, one, three)  # neither fired nor skipped
        _broken(entry, one, two, two, three)  # fired twice
        _broken(entry, one, two, three, jobs=lambda _: False)  # fired without a job
        skipped = ScheduleRecord(kind="skipped", at=kit.now, tick=two.tick, last=two.tick, reason="overlap")
        _broken(entry, one, skipped, three)  # skipped, but there is a job


def test_a_file_that_cannot_be_followed_stops_the_start(tmp_path: Path) -> None:
    path = tmp_path / "schedules.toml"
    path.write_text('[a]\nblueprint = "quick"\ncron = "* * *"\n')
    director = OrchestratorEngine(config=Config(schedules_config_path=str(path)))
    director.register_blueprint(script(at_once, "done", name="quick"))

    with pytest.raises(Exception, match=r"line 3: a\.cron"):
        asyncio.run(director.start())
    path.write_text('[a]\nblueprint = "nobody"\ncron = "@daily"\n')
    with pytest.raises(Exception, match=r"line 2: a\.blueprint: expected a registered blueprint \(quick\)"):
        asyncio.run(director.start())


async def test_a_file_is_read_again_and_a_bad_one_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "schedules.toml"
    path.write_text('[a]\nblueprint = "quick"\ncron = "@daily"\n')

    config = Config(schedules_config_path=str(path))
    director = OrchestratorEngine(config=config)
    director.register_blueprint(script(at_once, "done", name="quick"))
    async with director:
        path.write_text('[b]\nblueprint = "quick"\ncron = "@hourly"\n')
        assert director.reload()
        assert [entry.name for entry in await director.scheduler.registry.all()] == ["b"]
        path.write_text("[c]\n")
        assert not director.reload()
        assert [entry.name for entry in await director.scheduler.registry.all()] == ["b"]


def test_a_schedule_that_somebody_else_made_is_known_of_in_time() -> None:
    with kit_of() as kit:
        director = kit.director
        kit.call(lambda: director.scheduler.run_once(kit.now))
        elsewhere = ScheduleRegistry(director.storage, director.clock, "UTC")
        kit.call(lambda: elsewhere.create("s", every(5)))

        report = kit.call(lambda: director.scheduler.run_once(kit.now))
        assert report.run_again_in_s is not None
        assert 0 < report.run_again_in_s <= 5
