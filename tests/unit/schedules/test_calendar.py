"""Ticks: in order, once a day where a time is named, and the same however one asks. Over zones and years."""

from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regista.schedules.calendar import (
    NICKNAMES,
    Calendar,
    CronCalendar,
    CronError,
    IntervalCalendar,
    moment,
    upcoming,
)

#: With changes of an hour, of half an hour, at midnight, on the southern half, of a whole day, and none at all.
ZONES = [
    "UTC",
    "Europe/Madrid",
    "America/New_York",
    "America/Sao_Paulo",
    "America/Havana",
    "Australia/Lord_Howe",
    "Australia/Sydney",
    "Africa/Casablanca",
    "Asia/Tehran",
    "Asia/Kolkata",
    "Pacific/Apia",
    "Pacific/Kiritimati",
]
CHANGING = ["Europe/Madrid", "America/New_York", "America/Havana", "Australia/Lord_Howe", "Australia/Sydney"]
zones = st.sampled_from(ZONES).map(ZoneInfo)
moments = st.integers(1_100_000_000, 2_300_000_000).map(moment)
crons = st.sampled_from(
    [
        "*/7 * * * *",
        "0 */6 * * *",
        "30 2 * * *",
        "0 0 L * *",
        "15,45 1-3 * * sun",
        "0 12 13 * fri",
        "59 23 * * *",
    ]
)


@st.composite
def calendars(draw: st.DrawFn) -> Calendar:
    if draw(st.booleans()):
        return IntervalCalendar(draw(st.integers(1, 10**6)), draw(st.integers(0, 10**6)))
    return CronCalendar(draw(st.lists(crons, min_size=1, max_size=3)), draw(zones))


def daily(at: time, zone: ZoneInfo) -> CronCalendar:
    return CronCalendar([f"{at.minute} {at.hour} * * *"], zone)


def changes(zone: ZoneInfo, year: int) -> list[date]:
    """The local days on which clocks are changed."""
    found = []
    day = date(year, 1, 1)
    while day.year == year:
        noon, next_noon = (datetime.combine(d, time(12), zone) for d in (day, day + timedelta(days=1)))
        if noon.utcoffset() != next_noon.utcoffset():
            found += [day, day + timedelta(days=1)]
        day += timedelta(days=1)
    return found


@given(st.sampled_from(CHANGING).map(ZoneInfo), st.integers(2000, 2037), st.sampled_from(range(0, 240, 15)))
def test_a_daily_time_fires_once_on_the_days_that_change_the_clocks(
    zone: ZoneInfo, year: int, minute: int
) -> None:
    calendar = daily(time(minute // 60, minute % 60), zone)
    for day in changes(zone, year):
        begin, end = (datetime.combine(d, time(), zone) for d in (day, day + timedelta(days=1)))
        assert len(calendar.between(begin - timedelta(seconds=1), end - timedelta(seconds=1))) == 1, day


def test_the_zones_really_change_their_clocks() -> None:
    assert all(changes(ZoneInfo(name), 2026) for name in CHANGING)


def test_half_past_two_in_madrid_is_moved_in_spring_and_is_the_first_of_two_in_autumn() -> None:
    calendar = daily(time(2, 30), ZoneInfo("Europe/Madrid"))

    assert calendar.next(datetime(2026, 3, 28, 12, tzinfo=UTC)) == datetime(2026, 3, 29, 1, 0, tzinfo=UTC)
    assert calendar.next(datetime(2026, 10, 24, 12, tzinfo=UTC)) == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    assert calendar.next(datetime(2026, 10, 25, 0, 30, tzinfo=UTC)) == datetime(
        2026, 10, 26, 1, 30, tzinfo=UTC
    )


def test_every_half_hour_goes_on_through_both_changes() -> None:
    calendar = CronCalendar(["*/30 * * * *"], ZoneInfo("Europe/Madrid"))
    for day in (datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 10, 25, tzinfo=UTC)):
        ticks = upcoming(calendar, day - timedelta(hours=4), 24)
        assert {b - a for a, b in pairwise(ticks)} == {timedelta(minutes=30)}


def test_a_day_that_a_country_left_out_fires_when_the_next_one_begins() -> None:
    # Samoa went from the 29th to the 31st of December 2011.
    zone = ZoneInfo("Pacific/Apia")
    ticks = upcoming(daily(time(8), zone), datetime(2011, 12, 28, tzinfo=UTC), 5)

    shown = [tick.astimezone(zone) for tick in ticks]
    assert [(at.day, at.hour) for at in shown] == [(28, 8), (29, 8), (31, 0), (31, 8), (1, 8)]


def test_ticks_end_before_the_dates_do() -> None:
    ticks = upcoming(IntervalCalendar(316_224_000, 316_223_999), datetime(2026, 1, 1, tzinfo=UTC), 1000)

    assert 600 < len(ticks) < 1000
    assert ticks[-1].year < 9000
    assert IntervalCalendar(316_224_000).next(ticks[-1] + timedelta(days=366 * 20)) is None


def test_a_midnight_that_does_not_exist_is_moved() -> None:
    # Havana goes from 00:00 to 01:00.
    (tick,) = upcoming(daily(time(0), ZoneInfo("America/Havana")), datetime(2026, 3, 7, 12, tzinfo=UTC), 1)

    assert tick.astimezone(ZoneInfo("America/Havana")).time() == time(1)


def test_the_last_day_of_a_month_is_found_in_leap_years_too() -> None:
    calendar = CronCalendar(["0 0 L feb *"], ZoneInfo("UTC"))

    assert [tick.day for tick in upcoming(calendar, datetime(2026, 1, 1, tzinfo=UTC), 3)] == [28, 28, 29]


def test_either_kind_of_day_is_enough_where_both_are_named() -> None:
    calendar = CronCalendar(["0 0 13 * fri"], ZoneInfo("UTC"))

    days = [(tick.day, tick.weekday()) for tick in upcoming(calendar, datetime(2026, 3, 1, tzinfo=UTC), 60)]
    assert all(day == 13 or weekday == 4 for day, weekday in days)
    assert {weekday for day, weekday in days if day == 13} - {4}


def test_a_day_that_never_comes_is_not_waited_for() -> None:
    with pytest.raises(CronError):
        CronCalendar(["0 0 30 2 *"], ZoneInfo("UTC"))
    assert (
        CronCalendar(["0 0 31 2,4 0#1"], ZoneInfo("UTC")).next(datetime(2026, 1, 1, tzinfo=UTC)) is not None
    )


#: Samoa has left out a day since.
steady_zones = st.sampled_from([name for name in ZONES if name != "Pacific/Apia"]).map(ZoneInfo)


@given(steady_zones, moments, st.times(), st.integers(1, 400))
def test_a_named_time_fires_once_on_every_day(zone: ZoneInfo, start: datetime, at: time, days: int) -> None:
    calendar = daily(at.replace(second=0, microsecond=0), zone)
    ticks = upcoming(calendar, start, days)

    assert all(later - sooner >= timedelta(hours=20) for sooner, later in pairwise(ticks))
    named = [tick.astimezone(zone).date() for tick in ticks]
    assert len(set(named)) == days
    assert (named[-1] - named[0]).days == days - 1


TEN_ZONES = [name for name in ZONES if name not in ("UTC", "Pacific/Apia")]


@given(
    st.sampled_from(TEN_ZONES),
    st.integers(2005, 2037),
    st.lists(crons, min_size=1, max_size=3),
    st.integers(0, 3600),
)
@settings(max_examples=60)
def test_between_equals_repeated_next_over_both_clock_changes(
    zone: str, year: int, lines: list[str], begin_s: int
) -> None:
    calendar = CronCalendar(lines, ZoneInfo(zone))
    for month in (3, 9):
        changed_at = _clock_change(zone, year, month)
        first = changed_at - timedelta(hours=5, seconds=begin_s)
        last = changed_at + timedelta(hours=30)
        one_by_one = []
        tick = calendar.next(first)
        while tick is not None and tick <= last:
            one_by_one.append(tick)
            tick = calendar.next(tick)
        assert [moment(each) for each in calendar.between(first, last)] == one_by_one


@cache
def _clock_change(zone: str, year: int, month: int) -> datetime:
    """The first change of the clocks within two months; without one, the begin of the month."""
    start, local = datetime(year, month, 1, tzinfo=UTC), ZoneInfo(zone)
    for hours in range(0, 24 * 60):
        at = start + timedelta(hours=hours)
        if at.astimezone(local).utcoffset() != (at + timedelta(hours=1)).astimezone(local).utcoffset():
            return at
    return start


@pytest.mark.parametrize("nickname", NICKNAMES)
def test_nicknames_stand_for_lines(nickname: str) -> None:
    start = datetime(2026, 1, 1, 0, 30, tzinfo=UTC)
    named = CronCalendar([nickname.title()], ZoneInfo("UTC"))
    assert named.next(start) == CronCalendar([NICKNAMES[nickname]], ZoneInfo("UTC")).next(start)


@pytest.mark.parametrize(
    "line",
    [
        *("", "* * * *", "0 * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * foo *"),
        *("* * * * 8", "10-5 * * * *", "*/0 * * * *", "@often", "* * * * fri-sun", "0 0 31 4 *"),
        *(
            "*/" + "9" * 5000 + " * * * *",
            "*/" + "9" * 500 + "x * * * *",
            "\N{ARABIC-INDIC DIGIT ONE} * * * *",
        ),
    ],
)
def test_what_is_no_line_of_five_fields_is_refused(line: str) -> None:
    with pytest.raises(CronError):
        CronCalendar([line], ZoneInfo("UTC"))


@given(st.text(alphabet="0123456789*/-,LW# adefinorstu@", max_size=40))
def test_whatever_is_written_is_understood_or_refused(line: str) -> None:
    try:
        calendar = CronCalendar([line], ZoneInfo("UTC"))
    except CronError:
        return
    tick = calendar.next(datetime(2026, 1, 1, tzinfo=UTC))
    assert tick is None or tick > datetime(2026, 1, 1, tzinfo=UTC)


@given(calendars(), moments, st.integers(1, 50))
@settings(max_examples=150)
def test_asking_for_the_next_and_for_all_between_is_the_same(
    calendar: Calendar, start: datetime, count: int
) -> None:
    ticks = upcoming(calendar, start, count)

    assert ticks == sorted(set(ticks))
    assert all(tick > start for tick in ticks)
    assert [moment(tick) for tick in calendar.between(start, ticks[-1])] == ticks
    middle = ticks[len(ticks) // 2]
    assert upcoming(calendar, middle, count)[: count - len(ticks) // 2 - 1] == ticks[len(ticks) // 2 + 1 :]


@given(moments, st.integers(1, 10**7), st.integers(0, 10**7), st.integers(0, 5000))
def test_intervals_know_nothing_of_zones(start: datetime, seconds: int, offset: int, count: int) -> None:
    calendar = IntervalCalendar(seconds, offset)
    ticks = calendar.between(start, start + timedelta(seconds=seconds * count))

    assert len(ticks) == count
    assert all((tick - offset) % seconds == 0 for tick in ticks[:20])


@given(calendars(), moments, st.integers(0, 3 * 86_400), st.integers(0, 3 * 86_400))
@settings(max_examples=100)
def test_a_stretch_is_the_sum_of_its_parts(
    calendar: Calendar, start: datetime, first: int, second: int
) -> None:
    middle = start + timedelta(seconds=first)
    end = middle + timedelta(seconds=second)
    whole = calendar.between(start, end, 10**6)

    parts = [*calendar.between(start, middle, 10**6), *calendar.between(middle, end, 10**6)]
    assert (
        list(whole) == parts if first + second < 20_000 or len(whole) < 10_000 else len(whole) == len(parts)
    )


def test_a_limit_cuts_the_end_off() -> None:
    calendar = CronCalendar(["* * * * *"], ZoneInfo("UTC"))
    start = datetime(2026, 1, 1, tzinfo=UTC)

    assert len(calendar.between(start, start + timedelta(days=1), limit=10)) == 10
