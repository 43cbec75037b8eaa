"""Lines: a receiver that is slow keeps only its own waiting, and one that is quick has nobody waiting for long."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from regista.upkeep.lines import AT_ONCE, GO, QUICK_AT_ONCE, WAIT, WAITING, Lines, Turn
from tests.webhook_kit import THEN


def known(pace_s: float, room: int = 32) -> Lines[str]:
    """Lines before `a`, of which nothing is known but this pace."""
    lines: Lines[str] = Lines(room)
    for _ in range(30):
        assert lines.turn("a", THEN) is GO
        assert lines.left("a", pace_s) == []
    return lines


def turns(lines: Lines[str], number: int, receiver: str = "a", client: str = "") -> list[Turn]:
    """So many that come at once; those who are not sent away."""
    asked = [lines.turn(receiver, THEN, client) for _ in range(number)]
    return [turn for turn in asked if isinstance(turn, Turn)]


def test_so_many_go_at_once_some_wait_and_whoever_comes_later_gets_a_time_of_its_own() -> None:
    lines = known(0.01)
    assert turns(lines, QUICK_AT_ONCE) == [GO] * QUICK_AT_ONCE
    assert turns(lines, WAITING) == [WAIT] * WAITING
    later = [lines.turn("a", THEN) for _ in range(5)]
    assert all(not isinstance(when, Turn) and when > THEN for when in later)
    assert len(set(later)) == 5
    assert lines.turn("b", THEN) is GO
    lines.left("a", 0.01)
    assert lines.turn("a", THEN) is GO


def test_one_that_needs_its_time_is_told_a_few_at_a_time_and_few_wait_for_it() -> None:
    assert turns(known(1.1), 100) == [GO] * AT_ONCE + [WAIT] * AT_ONCE


def test_the_end_of_one_turn_is_the_beginning_of_the_next_in_the_order_of_their_coming() -> None:
    lines = known(0.01)
    turns(lines, QUICK_AT_ONCE + 3)
    assert [lines.enter("a", "", who) for who in ("x", "y", "z")] == [False] * 3
    assert [lines.left("a", 0.01) for _ in range(4)] == [["x"], ["y"], ["z"], []]


def test_whoever_finds_the_line_empty_when_it_comes_to_stand_there_goes_at_once() -> None:
    lines = known(0.01)
    turns(lines, QUICK_AT_ONCE + 2)
    assert lines.left("a", 0.01) == []
    assert lines.enter("a", "", "x")
    assert not lines.enter("a", "", "y")


def test_a_place_that_was_given_up_is_anybodys() -> None:
    lines = known(0.01)
    turns(lines, QUICK_AT_ONCE + WAITING)
    assert turns(lines, 1) == []
    lines.give_up("a", "")
    assert turns(lines, 2) == [WAIT]


def test_when_the_first_answer_comes_quickly_more_than_one_go_on() -> None:
    lines: Lines[str] = Lines()
    assert turns(lines, 20) == [GO] + [WAIT] * 19
    for number in range(19):
        assert not lines.enter("a", "", str(number))
    assert lines.left("a", 0.01) == [str(number) for number in range(QUICK_AT_ONCE)]


def test_a_slow_receiver_is_told_one_at_a_time_and_a_quick_one_again_more() -> None:
    lines = known(10.0)
    assert turns(lines, 1) == [GO]
    waits = lines.turn("a", THEN)
    assert not isinstance(waits, Turn)
    assert waits > THEN + timedelta(seconds=2)
    lines.left("a", 0.01)
    for _ in range(30):
        assert lines.turn("a", THEN) is GO
        lines.left("a", 0.01)
    assert turns(lines, QUICK_AT_ONCE) == [GO] * QUICK_AT_ONCE


def test_those_who_wait_for_a_receiver_that_turns_out_slow_are_sent_away_but_for_one() -> None:
    lines: Lines[str] = Lines()
    turns(lines, 4)
    for who in ("x", "y", "z"):
        lines.enter("a", "", who)
    assert lines.sent_away("a", THEN) == []
    assert lines.left("a", 10.0) == ["x"]
    away = lines.sent_away("a", THEN)
    assert [who for who, _ in away] == ["y", "z"]
    assert THEN + timedelta(seconds=2) < away[0][1] < away[1][1]
    assert lines.left("a", 10.0) == []


def test_a_turn_of_which_nothing_is_known_says_nothing_about_the_pace() -> None:
    lines: Lines[str] = Lines()
    for _ in range(10):
        assert lines.turn("a", THEN) is GO
        lines.left("a", None)
    assert turns(lines, 3) == [GO, WAIT, WAIT]


def test_many_receivers_of_one_client_leave_room_for_those_of_others() -> None:
    lines: Lines[str] = Lines(32)
    bobs = [lines.turn(f"bob-{number}", THEN, "bob") for number in range(100)]
    put_off = [when for when in bobs if when is not GO]
    assert len(bobs) - len(put_off) == 12
    assert len(set(put_off)) == len(put_off)
    assert [lines.turn(f"ada-{number}", THEN, "ada") for number in range(8)] == [GO] * 8
    assert lines.turn("ada-9", THEN, "ada") is not GO
    for number in range(9):
        lines.left(f"bob-{number}", 10.0, "bob")
    assert lines.turn("bob-100", THEN, "bob") is GO


def test_receivers_that_hang_leave_room_for_one_of_the_same_client_that_answers() -> None:
    # given one that answers, and many that may not
    lines: Lines[str] = Lines(32)
    for _ in range(10):
        assert lines.turn("good", THEN, "bob") is GO
        lines.left("good", 0.01, "bob")
    hanging = [name for name in map(str, range(100)) if lines.turn(name, THEN, "bob") is GO]
    assert len(hanging) == 12
    # then it is told as often as somebody asks for it, one after the other
    for _ in range(100):
        assert lines.turn("good", THEN, "bob") is GO
        lines.left("good", 0.01, "bob")
    # and when one of the others is given up, the next has its turn
    assert lines.turn("next", THEN, "bob") is not GO
    lines.left(hanging[0], 10.0, "bob")
    assert lines.turn("next", THEN, "bob") is GO
    assert lines.turn("another", THEN, "bob") is not GO


def test_a_client_whose_receivers_are_quick_comes_back_soon_when_its_room_was_full() -> None:
    lines: Lines[str] = Lines(32)
    for receiver in ("a", "b", "c"):
        for _ in range(10):
            assert lines.turn(receiver, THEN) is GO
            lines.left(receiver, 0.005)
    assert turns(lines, QUICK_AT_ONCE) == turns(lines, QUICK_AT_ONCE, "b") == [GO] * QUICK_AT_ONCE
    times = [lines.turn("c", THEN) for _ in range(200)]
    assert all(not isinstance(when, Turn) and when < THEN + timedelta(seconds=2) for when in times)
    assert len(set(times)) == 200


def test_those_of_one_client_who_wait_leave_places_for_those_of_others() -> None:
    lines: Lines[str] = Lines(32)
    for number in range(10):
        turns(lines, 100, f"bob-{number}", "bob")
    assert turns(lines, 100, "ada", "ada") == [GO] + [WAIT] * 32
    assert turns(lines, 100, "eve", "eve") == [GO] + [WAIT] * 32
    assert turns(lines, 100, "zoe", "zoe") == [GO]  # as many wait as may in all


def test_where_room_is_scarce_a_line_leaves_its_own_to_others_but_for_one() -> None:
    lines = known(0.01)
    turns(lines, QUICK_AT_ONCE + 3)
    for who in ("x", "y", "z"):
        lines.enter("a", "", who)
    others = [f"b-{number}" for number in range(16)]
    assert [lines.turn(other, THEN, other) for other in others] == [GO] * 16
    assert [lines.left("a", 0.01) for _ in range(QUICK_AT_ONCE)] == [[]] * (QUICK_AT_ONCE - 1) + [["x"]]
    for other in others[:8]:
        lines.left(other, 0.01, other)
    assert lines.left("a", 0.01) == ["y", "z"]


@given(st.integers(1, 3000), st.floats(0.001, 60))
def test_nobody_is_sent_away_for_more_than_a_quarter_of_an_hour(crowd: int, pace_s: float) -> None:
    lines: Lines[str] = Lines()
    lines.turn("a", THEN)
    lines.left("a", pace_s)
    times = [lines.turn("a", THEN) for _ in range(crowd)]
    assert all(isinstance(when, Turn) or THEN < when <= THEN + timedelta(minutes=15) for when in times)


def test_receivers_that_nobody_told_for_long_are_forgotten() -> None:
    lines: Lines[str] = Lines()
    for number in range(3000):
        receiver = f"https://h{number}"
        assert lines.turn(receiver, THEN + timedelta(seconds=number)) is GO
        lines.left(receiver, 0.01)
    assert len(lines._lines) <= 1000


def test_a_receiver_that_becomes_slower_is_not_left_idle_until_all_that_it_owes_would_be_told() -> None:
    # given some that were sent away while a turn took no time, and come back soon
    lines = known(0.01)
    turns(lines, QUICK_AT_ONCE + WAITING)
    early = [lines.turn("a", THEN) for _ in range(100)]
    assert all(not isinstance(when, Turn) and when < THEN + timedelta(seconds=1) for when in early)
    # when it turns out that each takes its time, and they come back too early
    now = THEN + timedelta(seconds=1)
    lines.left("a", 5.0)
    again = lines.turn("a", now)
    # then they are sent away for a few turns, and not for a hundred
    assert not isinstance(again, Turn)
    assert again < now + timedelta(seconds=3)


def test_a_receiver_that_is_quick_again_finds_nobody_who_waits_for_the_hours_that_it_was_slow() -> None:
    # given a crowd that was sent away, again and again, from a receiver that did not answer
    lines = known(10.0)
    assert lines.turn("a", THEN) is GO
    for _ in range(10_000):
        lines.turn("a", THEN)
    # when it answers at once, and more come than can be told
    now = THEN + timedelta(minutes=1)
    lines.left("a", 0.01)
    for _ in range(30):
        assert lines.turn("a", now) is GO
        lines.left("a", 0.01)
    turns(lines, QUICK_AT_ONCE + WAITING)
    # then they come back soon, each at a time of its own
    times = [lines.turn("a", now) for _ in range(100)]
    assert all(not isinstance(when, Turn) and now < when < now + timedelta(seconds=2) for when in times)
    assert len(set(times)) == len(times)
