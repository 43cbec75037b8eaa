"""What time makes of a schedule's state. Pure: no store and no clock."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from regista.schedules.calendar import moment, upcoming
from regista.schedules.schedule import CatchUp, Overlap, Schedule, check
from regista.schedules.state import (
    DecisionInput,
    PendingStart,
    ScheduleRecord,
    ScheduleState,
    decide_ticks,
    decode,
    encode,
    fires_at,
    refused,
    started,
    tick_key,
)

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


def every(seconds: int = 60, **more: object) -> Schedule:
    return Schedule(blueprint="b", interval_seconds=seconds, **more)  # type: ignore[arg-type]


def after(
    schedule: Schedule, state: ScheduleState, seconds: float, *, busy: bool = False, obstacle: str = ""
) -> ScheduleState:
    seen = DecisionInput(NOON + timedelta(seconds=seconds), busy, obstacle)
    return decide_ticks("s", schedule, check(schedule, "UTC"), state, seen)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def told(state: ScheduleState) -> list[tuple[str, str | None, int]]:
    return [(record.kind, record.reason, record.count) for record in state.records]


def test_nothing_is_decided_before_its_time() -> None:
    state = ScheduleState(cursor=NOON)

    assert after(every(), state, 59.9) == state


def test_a_tick_that_is_due_shall_be_started_and_is_decided_once() -> None:
    decided = after(every(), ScheduleState(cursor=NOON), 60)

    assert decided.starting == (PendingStart(at(60)),)
    assert after(every(), decided, 61) == decided


def test_of_ticks_that_nobody_was_there_for_only_one_that_is_hardly_late_fires() -> None:
    decided = after(every(), ScheduleState(cursor=NOON), 600.5)

    assert decided.starting == (PendingStart(at(600)),)
    assert told(decided) == [("skipped", "missed", 8), ("skipped", "superseded", 1)]
    assert decided.skipped == 9


def test_a_daily_tick_that_was_missed_by_an_hour_is_skipped_unless_it_is_caught_up_with() -> None:
    daily = Schedule(blueprint="b", daily_at="12:30")
    late = 30 * 60 + 3600

    assert told(after(daily, ScheduleState(cursor=NOON), late)) == [("skipped", "missed", 1)]
    caught = after(replace(daily, catch_up=CatchUp.LAST), ScheduleState(cursor=NOON), late)
    assert caught.starting == (PendingStart(at(30 * 60)),)


def test_catching_up_with_all_starts_each_of_them_in_order() -> None:
    decided = after(every(catch_up=CatchUp.ALL), ScheduleState(cursor=NOON), 600)

    assert [start.tick for start in decided.starting] == [at(60 * n) for n in range(1, 11)]
    assert decided.records == ()


def test_what_lies_before_the_window_is_never_caught_up_with() -> None:
    schedule = every(catch_up=CatchUp.ALL, catch_up_window_seconds=300.0)
    decided = after(schedule, ScheduleState(cursor=NOON), 600)

    assert told(decided) == [("skipped", "outside_window", 4)]
    assert len(decided.starting) == 6


def test_a_year_of_missed_seconds_is_one_record() -> None:
    decided = after(every(1), ScheduleState(cursor=NOON), 365 * 86_400)

    assert sum(record.count for record in decided.records) == 365 * 86_400 - 1
    assert len(decided.records) == 2


def test_many_ticks_are_started_a_hundred_at_a_time() -> None:
    schedule = every(1, catch_up=CatchUp.ALL)
    first = after(schedule, ScheduleState(cursor=NOON), 250)

    assert (len(first.starting), first.cursor) == (100, at(100))


def test_while_paused_ticks_are_skipped_and_share_a_record() -> None:
    state = ScheduleState(cursor=NOON, paused=True)
    for second in (60, 120, 180):
        state = after(every(), state, second)

    assert told(state) == [("skipped", "paused", 3)]
    assert (state.records[0].tick, state.records[0].last) == (at(60), at(180))


def test_the_word_of_a_person_wins_over_the_schedules_own() -> None:
    assert after(every(paused=True), ScheduleState(cursor=NOON, paused=False), 60).starting
    assert not after(every(paused=True), ScheduleState(cursor=NOON), 60).starting


def test_a_blueprint_that_nobody_has_is_a_reason() -> None:
    decided = after(every(), ScheduleState(cursor=NOON), 60, obstacle="no blueprint named 'b'")

    assert told(decided) == [("skipped", "refused", 1)]
    assert decided.records[0].message == "no blueprint named 'b'"


def test_overlap_skip_skips_while_a_job_runs() -> None:
    schedule = every(overlap=Overlap.SKIP)
    decided = after(schedule, ScheduleState(cursor=NOON), 60, busy=True)

    assert told(decided) == [("skipped", "overlap", 1)]
    assert after(schedule, decided, 120).starting == (PendingStart(at(120)),)


def test_overlap_allow_asks_nobody() -> None:
    assert after(every(), ScheduleState(cursor=NOON), 60, busy=True).starting


def test_buffer_one_keeps_the_first_and_skips_the_rest() -> None:
    schedule = every(overlap=Overlap.BUFFER_ONE)
    one = after(schedule, ScheduleState(cursor=NOON), 60, busy=True)
    two = after(schedule, one, 120, busy=True)
    free = after(schedule, two, 121)

    assert (one.buffered, told(one)) == (at(60), [])
    assert (two.buffered, told(two)) == (at(60), [("skipped", "overlap", 1)])
    assert (free.buffered, free.starting) == (None, (PendingStart(at(60)),))


def test_cancel_previous_keeps_the_newest() -> None:
    schedule = every(overlap=Overlap.CANCEL_PREVIOUS)
    one = after(schedule, ScheduleState(cursor=NOON), 60, busy=True)
    two = after(schedule, one, 120, busy=True)
    free = after(schedule, two, 121)

    assert (two.buffered, told(two)) == (at(120), [("skipped", "replaced", 1)])
    assert free.starting == (PendingStart(at(120)),)


def test_a_tick_that_waits_when_the_schedule_is_paused_is_skipped() -> None:
    schedule = every(overlap=Overlap.BUFFER_ONE)
    one = after(schedule, ScheduleState(cursor=NOON), 60, busy=True)

    paused = after(schedule, replace(one, paused=True), 61)
    assert (paused.buffered, told(paused)) == (None, [("skipped", "paused", 1)])


def test_a_record_never_speaks_for_a_tick_of_another_fate() -> None:
    schedule = every(overlap=Overlap.SKIP, catch_up=CatchUp.ALL)
    one = after(schedule, ScheduleState(cursor=NOON), 60, busy=True)
    more = after(schedule, one, 180)  # 120 is started, and 180 overlaps with it

    assert more.starting == (PendingStart(at(120)),)
    assert [(record.tick, record.last) for record in more.records] == [(at(60), at(60)), (at(180), at(180))]


def test_a_start_is_recorded_once_however_often_it_is_told() -> None:
    decided = after(every(), ScheduleState(cursor=NOON), 60)
    seen = DecisionInput(at(61))
    once = started(decided, decided.starting[0], "j1", seen)

    assert (once.starting, once.fired, once.last_job_id, once.running) == ((), 1, "j1", ("j1",))
    assert started(once, decided.starting[0], "j1", seen) == once


def test_a_tick_that_was_taken_for_refused_and_started_after_all_has_fired() -> None:
    decided = after(every(), ScheduleState(cursor=NOON), 60)
    start, seen = decided.starting[0], DecisionInput(at(61))
    no = refused(decided, start, "blueprint_not_found", "none", seen)
    assert told(no) == [("skipped", "blueprint_not_found", 1)]

    after_all = started(no, start, "j1", seen)
    assert told(after_all) == [("started", None, 1)]
    assert (after_all.fired, after_all.skipped) == (1, 0)
    assert refused(after_all, start, "x", "y", seen) == after_all


def test_old_records_make_room() -> None:
    state = ScheduleState(cursor=NOON)
    for number in range(1, 80):
        state = after(every(), state, 60 * number)
        state = started(state, state.starting[0], f"j{number}", DecisionInput(at(60 * number)))

    assert len(state.records) == 50
    assert (state.records[0].job_id, state.fired) == ("j30", 79)


def test_a_state_survives_its_bytes() -> None:
    record = ScheduleRecord(kind="skipped", at=NOON, tick=NOON, last=NOON, reason="overlap")
    state = ScheduleState(cursor=NOON, schedule=every(), starting=(PendingStart(NOON),), records=(record,))

    assert decode(encode(state)) == state


def test_keys_tell_schedules_ticks_and_triggers_apart() -> None:
    keys = {
        tick_key("a", PendingStart(NOON)),
        tick_key("b", PendingStart(NOON)),
        tick_key("a", PendingStart(at(1))),
        tick_key("a", PendingStart(key="x")),
        tick_key("a", PendingStart(key="y")),
    }

    assert len(keys) == 5
    assert tick_key("a", PendingStart(NOON)) < tick_key("b", PendingStart(at(1)))


@given(st.integers(1, 5000), st.floats(0, 86_400), st.integers(0, 10**6))
def test_jitter_keeps_the_order_and_is_the_same_for_everybody(
    seconds: int, jitter: float, second: int
) -> None:
    schedule = every(seconds, jitter_seconds=jitter)
    calendar = check(schedule, "UTC")
    first = calendar.next(at(second))
    assert first is not None
    second_tick = calendar.next(first)
    assert second_tick is not None

    fires = fires_at("s", first, schedule, calendar)
    assert first <= fires <= second_tick
    assert fires <= fires_at("s", second_tick, schedule, calendar)
    assert fires == fires_at("s", first, schedule, calendar)


@given(
    st.sampled_from(CatchUp),
    st.sampled_from(Overlap),
    st.integers(20, 120),
    st.floats(0, 30),
    st.lists(st.tuples(st.floats(0, 300), st.booleans(), st.booleans()), max_size=12),
)
@settings(max_examples=150)
def test_every_tick_has_exactly_one_fate(
    catch_up: CatchUp, overlap: Overlap, seconds: int, jitter: float, turns: list[tuple[float, bool, bool]]
) -> None:
    schedule = every(
        seconds, catch_up=catch_up, overlap=overlap, jitter_seconds=jitter, catch_up_window_seconds=150.0
    )
    state, passed, fired = ScheduleState(cursor=NOON), 0.0, []
    for pause, busy, carried_out in turns:
        passed += pause
        seen = DecisionInput(at(passed), busy, keep=10_000)
        state = decide_ticks("s", schedule, check(schedule, "UTC"), state, seen)
        for start in state.starting if carried_out else ():
            fired.append(start.tick)
            state = started(state, start, f"j{start.tick}", seen)

    skipped = [record for record in state.records if record.kind == "skipped"]
    fates = [start.tick for start in state.starting] + fired + ([state.buffered] if state.buffered else [])
    for record in skipped:
        assert record.tick is not None
        first, last = (
            round((tick - NOON).total_seconds()) for tick in (record.tick, record.last or record.tick)
        )
        fates += [at(second) for second in range(first, last + 1, seconds)]
        assert len(range(first, last + 1, seconds)) == record.count
    ticks = check(schedule, "UTC").between(NOON, state.cursor)
    assert sorted(tick for tick in fates if tick) == [moment(tick) for tick in ticks]


@given(
    st.sampled_from(["*/20 * * * *", "30 2 * * *", "0 */3 * * *", "15 1-3 * * sun", "@hourly"]),
    st.sampled_from(["Europe/Madrid", "America/New_York", "Australia/Lord_Howe", "UTC"]),
    st.sampled_from([1774663200, 1793422800, 1772870400, 1780315200]),
    st.floats(0, 5000),
    st.lists(st.floats(1, 20_000), min_size=1, max_size=15),
)
@settings(max_examples=60)
def test_what_next_tells_is_what_fires(
    cron: str, zone: str, start: int, jitter: float, pauses: list[float]
) -> None:
    schedule = Schedule(
        blueprint="b", cron=cron, timezone=zone, jitter_seconds=jitter, catch_up=CatchUp.ALL,
        catch_up_window_seconds=1e9,
    )  # fmt: skip
    calendar, now = check(schedule, "UTC"), moment(start)
    state, fired = ScheduleState(cursor=now), list[datetime]()
    for pause in pauses:
        now += timedelta(seconds=pause)
        state = decide_ticks("s", schedule, calendar, state, DecisionInput(now))
        fired += [one.tick for one in state.starting if one.tick is not None]
        state = replace(state, starting=())

    promised = upcoming(calendar, moment(start), len(fired) + 1)
    assert fired == promised[:-1]
    assert all(fires_at("s", tick, schedule, calendar) <= now for tick in fired)
    assert fires_at("s", promised[-1], schedule, calendar) > now


@pytest.mark.parametrize("overlap", list(Overlap))
def test_one_tick_at_a_time_fires_whatever_the_overlap_says(overlap: Overlap) -> None:
    assert after(every(overlap=overlap), ScheduleState(cursor=NOON), 60).starting == (PendingStart(at(60)),)
