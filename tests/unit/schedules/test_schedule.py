"""What a schedule may say, and how it is told what it may not."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regista.errors import ScheduleInvalid
from regista.schedules.calendar import upcoming
from regista.schedules.schedule import Schedule, check

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)


def first(count: int = 3, tz: str = "UTC", **members: Any) -> list[str]:
    calendar = check(msgspec.convert({"blueprint": "b", **members}, Schedule), tz)
    return [tick.strftime("%m-%d %H:%M:%S") for tick in upcoming(calendar, NEW_YEAR, count)]


def test_intervals_are_counted_from_1970_and_may_be_moved() -> None:
    assert first(interval_seconds=3600) == ["01-01 01:00:00", "01-01 02:00:00", "01-01 03:00:00"]
    assert first(2, interval_seconds=3600, offset_seconds=90) == ["01-01 00:01:30", "01-01 01:01:30"]


def test_days_may_be_named_in_all_ways() -> None:
    assert first(daily_at="07:30") == ["01-01 07:30:00", "01-02 07:30:00", "01-03 07:30:00"]
    assert first(daily_at=["7:30", "19:00"]) == ["01-01 07:30:00", "01-01 19:00:00", "01-02 07:30:00"]
    assert first(weekly_days=["mon", "Fri"], time="07:30") == [
        "01-02 07:30:00",
        "01-05 07:30:00",
        "01-09 07:30:00",
    ]
    assert first(monthly_dates=[1, 15], time="00:00") == [
        "01-15 00:00:00",
        "02-01 00:00:00",
        "02-15 00:00:00",
    ]
    assert first(monthly_dates=[-1, 31], time="12:00") == [
        "01-31 12:00:00",
        "02-28 12:00:00",
        "03-31 12:00:00",
    ]
    assert first(cron="0 9 * * mon-fri") == ["01-01 09:00:00", "01-02 09:00:00", "01-05 09:00:00"]


def test_a_zone_of_its_own_wins_over_that_of_the_orchestrator() -> None:
    assert first(1, "Asia/Tokyo", daily_at="07:30") == ["01-01 22:30:00"]
    assert first(1, "Asia/Tokyo", daily_at="07:30", timezone="UTC") == ["01-01 07:30:00"]


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({}, "expected exactly one of interval_seconds.*got 'none of them'"),
        ({"daily_at": "7:00", "cron": "@daily"}, "got 'daily_at and cron'"),
        ({"daily_at": "24:00"}, 'daily_at: expected a time like "07:30"'),
        ({"daily_at": []}, "daily_at"),
        ({"daily_at": "7:00", "time": "8:00"}, "time: expected weekly_days or monthly_dates"),
        ({"weekly_days": ["mon"]}, "weekly_days: expected a time"),
        ({"weekly_days": ["monday"], "time": "7:00"}, "weekly_days: expected days out of sun"),
        ({"monthly_dates": [0], "time": "7:00"}, "monthly_dates: expected days from 1 to 31"),
        ({"cron": "* * *"}, "cron: .*five fields"),
        ({"cron": "0 0 31 4 *"}, "cron: expected a cron line"),
        ({"cron": "0 0 * * * *"}, "cron: .*five fields"),
        ({"daily_at": "7:00", "timezone": "Mars/Base"}, "timezone: expected the name of a time zone"),
        ({"daily_at": "7:00", "offset_seconds": 5}, "offset_seconds: expected interval_seconds"),
    ],
)
def test_what_cannot_be_followed_is_refused_with_its_member(members: dict[str, Any], words: str) -> None:
    with pytest.raises(ScheduleInvalid, match=words):
        first(**members)


def test_the_fingerprint_is_that_of_the_ticks_alone() -> None:
    one = Schedule(blueprint="a", daily_at="7:00")

    assert one.fingerprint("UTC") == Schedule(blueprint="b", daily_at="7:00", paused=True).fingerprint("UTC")
    assert one.fingerprint("UTC") == Schedule(blueprint="a", daily_at="7:00", timezone="UTC").fingerprint(
        "Asia/Tokyo"
    )
    assert one.fingerprint("UTC") != one.fingerprint("Asia/Tokyo")
    assert one.fingerprint("UTC") != Schedule(blueprint="a", daily_at="7:01").fingerprint("UTC")


def test_words_say_when() -> None:
    assert Schedule(blueprint="b", interval_seconds=5).words() == "every 5 s"
    assert Schedule(blueprint="b", daily_at=["7:00", "8:00"]).words() == "daily at 7:00, 8:00"
    assert Schedule(blueprint="b", weekly_days=["mon"], time="7:00").words() == "weekly on mon at 7:00"
    assert Schedule(blueprint="b", cron="@daily").words() == "cron @daily"


@given(
    st.dictionaries(
        st.sampled_from(Schedule.__struct_fields__), st.integers() | st.text() | st.lists(st.text())
    )
)
def test_whatever_is_written_there_is_understood_or_refused(members: dict[str, Any]) -> None:
    try:
        check(msgspec.convert({"blueprint": "b", **members}, Schedule), "UTC")
    except (ScheduleInvalid, msgspec.ValidationError):
        pass
