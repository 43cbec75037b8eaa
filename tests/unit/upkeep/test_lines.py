"""Lines: a receiver that is slow keeps only its own waiting."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from regista.upkeep.lines import AT_ONCE, Lines
from tests.webhook_kit import THEN


def test_so_many_go_at_once_and_whoever_comes_later_gets_a_time_of_its_own() -> None:
    lines = Lines()
    lines.turn("a", THEN)
    lines.left("a", 0.01)
    assert [lines.turn("a", THEN) for _ in range(AT_ONCE)] == [None] * AT_ONCE
    later = [lines.turn("a", THEN) for _ in range(5)]
    assert all(when is not None and when > THEN for when in later)
    assert len(set(later)) == 5
    assert lines.turn("b", THEN) is None
    lines.left("a", 0.01)
    assert lines.turn("a", THEN) is None


def test_a_slow_receiver_is_told_one_at_a_time_and_a_quick_one_again_more() -> None:
    lines = Lines()
    for took_s in (10.0, 10.0):
        assert lines.turn("a", THEN) is None
        lines.left("a", took_s)
    assert lines.turn("a", THEN) is None
    waits = lines.turn("a", THEN)
    assert waits is not None
    assert waits > THEN + timedelta(seconds=2)
    lines.left("a", 0.01)
    for _ in range(20):
        assert lines.turn("a", THEN) is None
        lines.left("a", 0.01)
    assert [lines.turn("a", THEN) for _ in range(AT_ONCE)] == [None] * AT_ONCE


def test_a_turn_of_which_nothing_is_known_says_nothing_about_the_pace() -> None:
    lines = Lines()
    for _ in range(10):
        assert lines.turn("a", THEN) is None
        lines.left("a", None)
    assert lines.turn("a", THEN) is None
    assert lines.turn("a", THEN) is not None


def test_a_receiver_whose_pace_nobody_knows_is_told_one_at_a_time() -> None:
    lines = Lines()
    assert lines.turn("a", THEN) is None
    assert lines.turn("a", THEN) is not None
    lines.left("a", 0.01)
    assert [lines.turn("a", THEN) for _ in range(AT_ONCE)] == [None] * AT_ONCE


def test_many_receivers_of_one_client_leave_room_for_those_of_others() -> None:
    lines = Lines(32)
    bobs = [lines.turn(f"bob-{number}", THEN, "bob") for number in range(100)]
    put_off = [when for when in bobs if when is not None]
    assert len(bobs) - len(put_off) == 16
    assert len(set(put_off)) == len(put_off)
    assert [lines.turn(f"ada-{number}", THEN, "ada") for number in range(8)] == [None] * 8
    assert lines.turn("ada-9", THEN, "ada") is not None
    for number in range(9):
        lines.left(f"bob-{number}", 10.0, "bob")
    assert lines.turn("bob-100", THEN, "bob") is None


@given(st.integers(1, 3000), st.floats(0.001, 60))
def test_nobody_is_sent_away_for_more_than_a_quarter_of_an_hour(crowd: int, pace_s: float) -> None:
    lines = Lines()
    lines.turn("a", THEN)
    lines.left("a", pace_s)
    times = [lines.turn("a", THEN) for _ in range(crowd + AT_ONCE)]
    assert all(when is None or THEN < when <= THEN + timedelta(minutes=15) for when in times)


def test_receivers_that_nobody_told_for_long_are_forgotten() -> None:
    lines = Lines()
    for number in range(3000):
        receiver = f"https://h{number}"
        assert lines.turn(receiver, THEN + timedelta(seconds=number)) is None
        lines.left(receiver, 0.01)
    assert len(lines._lines) <= 1000
