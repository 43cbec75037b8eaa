"""Cron lines: what they stand for, and how mistakes are told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regista.schedules.cron import LAST_DAY, CronError, parse


def test_stars_stand_for_everything() -> None:
    cron = parse("* * * * *")

    assert cron.minutes == frozenset(range(60))
    assert cron.hours == frozenset(range(24))
    assert cron.days == frozenset(range(1, 32))
    assert cron.months == frozenset(range(1, 13))
    assert cron.weekdays == frozenset(range(7))
    assert not cron.either_day


def test_lists_ranges_steps_and_names_are_numbers() -> None:
    cron = parse("*/20,5 8-18/5 1,L jan-mar,DEC Mon-Fri")

    assert cron.minutes == {0, 5, 20, 40}
    assert cron.hours == {8, 13, 18}
    assert cron.days == {1, LAST_DAY}
    assert cron.months == {1, 2, 3, 12}
    assert cron.weekdays == {0, 1, 2, 3, 4}
    assert cron.either_day


@pytest.mark.parametrize("sunday", ["0", "7", "sun", "SUN"])
def test_sunday_has_four_names(sunday: str) -> None:
    assert parse(f"0 0 * * {sunday}").weekdays == {6}


def test_a_range_of_days_may_end_on_sunday() -> None:
    assert parse("0 0 * * fri-sun").weekdays == {4, 5, 6}


def test_nicknames_stand_for_lines() -> None:
    assert parse("@daily") == parse("0 0 * * *")
    assert parse("@Hourly") == parse("0 * * * *")
    assert parse("@weekly").weekdays == {6}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "five fields"),
        ("* * * *", "got 4"),
        ("60 * * * *", "minute: expected 0 to 59"),
        ("* 24 * * *", "hour: expected 0 to 23"),
        ("* * 0 * *", "day of month: expected 1 to 31"),
        ("* * * 13 *", "month"),
        ("* * * foo *", "month"),
        ("* * * * 8", "day of week"),
        ("10-5 * * * *", "goes upwards"),
        ("*/0 * * * *", "a step of 1 or more"),
        ("*/" + "9" * 5000 + " * * * *", "a step of at most 9 digits, got 5000"),
        ("9" * 5000 + " * * * *", "minute: expected 0 to 59"),
        ("5/10 * * * *", "like 5-59/10"),
        ("*-5 * * * *", "minute"),
        ("1,,2 * * * *", "minute"),
        ("-1 * * * *", "minute"),
        ("@reboot", "expected one of @yearly"),
    ],
)
def test_a_mistake_is_told_with_its_field(line: str, words: str) -> None:
    with pytest.raises(CronError, match=words):
        parse(line)


@given(st.text(max_size=40))
def test_no_text_does_worse_than_being_refused(text: str) -> None:
    try:
        parse(text)
    except CronError:
        pass


@given(st.lists(st.integers(0, 59), min_size=1), st.lists(st.integers(0, 23), min_size=1))
def test_numbers_come_back_as_they_were_written(minutes: list[int], hours: list[int]) -> None:
    cron = parse(f"{','.join(map(str, minutes))} {','.join(map(str, hours))} * * *")

    assert (cron.minutes, cron.hours) == (frozenset(minutes), frozenset(hours))
