import random
import uuid
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from regista.clock import IdGenerator, SystemClock, add_seconds, derived_id, elapsed_ms

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class StepClock:
    """Shows the times that it was given, one for each look; the last one stays."""

    def __init__(self, *times: datetime) -> None:
        self._times = list(times)

    def now(self) -> datetime:
        return self._times.pop(0) if len(self._times) > 1 else self._times[0]

    def elapsed(self) -> float:
        return 0.0


def test_the_system_clock_is_aware_and_never_runs_back() -> None:
    clock = SystemClock()

    assert clock.now().tzinfo is UTC
    assert clock.elapsed() <= clock.elapsed()


def test_ids_have_the_shape_of_uuid_version_7() -> None:
    made = uuid.UUID(IdGenerator(StepClock(NOON)).new_id())

    assert made.version == 7
    assert made.variant == uuid.RFC_4122
    assert made.int >> 80 == int(NOON.timestamp() * 1000)


def test_ids_made_within_one_millisecond_are_sorted_and_unique() -> None:
    ids = IdGenerator(StepClock(NOON))
    made = [ids.new_id() for _ in range(10_000)]

    assert made == sorted(set(made))
    assert all(uuid.UUID(each).version == 7 for each in made)


@given(st.lists(st.integers(-(10**6), 10**6), min_size=2, max_size=50))
def test_ids_are_sorted_even_when_the_clock_goes_back(elapsed_ms: list[int]) -> None:
    times = [NOON + timedelta(milliseconds=each) for each in elapsed_ms]
    ids = IdGenerator(StepClock(*times))
    made = [ids.new_id() for _ in times]

    assert made == sorted(set(made))


def test_two_makers_at_the_same_moment_make_different_ids() -> None:
    first, second = IdGenerator(StepClock(NOON)), IdGenerator(StepClock(NOON))

    assert first.new_id() != second.new_id()
    assert first.new_token() != second.new_token()


def test_the_same_seed_makes_the_same_ids_and_tokens() -> None:
    def made(seed: int) -> list[str]:
        ids = IdGenerator(StepClock(NOON), random.Random(seed))
        return [ids.new_id(), ids.new_token(), ids.new_id(), ids.new_token()]

    assert made(1) == made(1)
    assert set(made(1)).isdisjoint(made(2))


def test_tokens_of_one_maker_never_repeat() -> None:
    ids = IdGenerator(StepClock(NOON))
    made = [ids.new_token() for _ in range(1000)]

    assert len(set(made)) == len(made)


def test_a_derived_id_is_the_same_in_every_process_and_for_ever() -> None:
    # Written down once: stored ids depend on it, so a change would be a change of format.
    assert derived_id("client", "key") == "072d1b5c-bad0-8d99-845e-a7b0b416dd59"


def test_a_derived_id_has_the_shape_of_a_uuid_of_our_own_making() -> None:
    made = uuid.UUID(derived_id("parent", "0"))

    assert made.version == 8
    assert made.variant == uuid.RFC_4122


@given(
    st.lists(st.text(alphabet="ab-", max_size=3), max_size=3),
    st.lists(st.text(alphabet="ab-", max_size=3), max_size=3),
)
def test_derived_ids_differ_when_any_part_or_their_cut_differs(one: list[str], other: list[str]) -> None:
    # No part at all and one empty part are the same bytes; nobody derives an id from nothing.
    one, other = one or [""], other or [""]

    assert (derived_id(*one) == derived_id(*other)) == (one == other)


def test_later_adds_seconds() -> None:
    assert add_seconds(NOON, 90.5) == NOON + timedelta(seconds=90.5)


def test_later_stops_at_the_end_of_the_calendar() -> None:
    end = datetime.max.replace(tzinfo=UTC)

    assert add_seconds(NOON, 1e15) == end
    assert add_seconds(NOON, 1e12) == end
    assert add_seconds(end, 1) == end


def test_derived_ids_of_different_parts_differ_however_they_are_cut() -> None:
    assert derived_id("a", "b\x00c") != derived_id("a\x00b", "c")
    assert derived_id("ab", "c") != derived_id("a", "bc")


def test_a_duration_is_told_in_milliseconds_to_the_microsecond() -> None:
    assert elapsed_ms(NOON, NOON + timedelta(seconds=1, microseconds=234_568)) == 1234.568
    assert elapsed_ms(NOON, NOON) == 0


def test_an_id_may_be_made_for_a_moment_that_is_known_already() -> None:
    ids = IdGenerator(StepClock(NOON))
    made = uuid.UUID(ids.new_id(NOON + timedelta(seconds=1)))

    assert made.int >> 80 == int(NOON.timestamp() * 1000) + 1000
