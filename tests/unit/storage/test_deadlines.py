from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from regista.storage.base import Due, DueKind
from regista.storage.deadlines import DeadlineIndex
from tests.stopwatch import Stopwatch

START = datetime(2026, 3, 1, 12, tzinfo=UTC)

_moments = st.one_of(
    st.integers(-3_000_000, 3_000_000).map(lambda micros: START + timedelta(microseconds=micros)),
    st.sampled_from([START, START + timedelta(seconds=1), START + timedelta(days=400)]),
    st.sampled_from([datetime(1969, 12, 31, 23, 59, 59, 5, UTC), datetime.max.replace(tzinfo=UTC)]),
)
_keys = st.tuples(st.sampled_from(DueKind), st.sampled_from("abcdef"))
_steps = st.lists(st.tuples(_keys, st.none() | _moments), max_size=60)


def naive_due(model: dict[tuple[DueKind, str], datetime], now: datetime) -> list[Due]:
    return sorted(Due(at, kind, id, f"job of {id}") for (kind, id), at in model.items() if at <= now)


@given(steps=_steps, now=_moments, limit=st.integers(0, 9))
def test_it_answers_as_a_sorted_list_would(
    steps: list[tuple[tuple[DueKind, str], datetime | None]], now: datetime, limit: int
) -> None:
    index, model = DeadlineIndex(), dict[tuple[DueKind, str], datetime]()
    for (kind, id), at in steps:
        index.set(kind, id, f"job of {id}", at)
        if at is None:
            model.pop((kind, id), None)
        else:
            model[kind, id] = at
        assert index.earliest() == min(model.values(), default=None)
        assert len(index) == len(model)
    assert index.due(now, 1000) == naive_due(model, now)
    assert index.due(now, limit) == naive_due(model, now)[:limit]
    assert index.due(datetime.max.replace(tzinfo=UTC), 1000) == naive_due(
        model, datetime.max.replace(tzinfo=UTC)
    )


@given(steps=_steps)
def test_whoever_comes_before_all_others_is_told(
    steps: list[tuple[tuple[DueKind, str], datetime | None]],
) -> None:
    index = DeadlineIndex()
    for (kind, id), at in steps:
        before = index.earliest()
        told = index.set(kind, id, id, at)
        if at is not None and (before is None or at < before):
            assert told


def test_nothing_lingers_of_deadlines_that_never_passed() -> None:
    index = DeadlineIndex()
    for n in range(100_000):
        index.set(DueKind.TASK, str(n), "job", START + timedelta(seconds=n / 7))
        if n >= 10:
            index.set(DueKind.TASK, str(n - 10), "job", None)
    for n in range(99_990, 100_000):
        index.set(DueKind.TASK, str(n), "job", None)
    assert (len(index), index._at, index._buckets) == (0, {}, {})
    assert len(index._seconds) <= 64
    assert index.earliest() is None
    assert index._seconds == []


def test_moving_one_deadline_on_and_on_leaves_nothing_behind() -> None:
    index = DeadlineIndex()
    for n in range(100_000):
        index.set(DueKind.JOB, "job", "job", START + timedelta(seconds=n))
    assert (len(index), len(index._buckets)) == (1, 1)
    assert len(index._seconds) <= 66
    assert index.earliest() == START + timedelta(seconds=99_999)


def test_a_job_and_a_task_of_the_same_name_have_a_deadline_each() -> None:
    index = DeadlineIndex()
    index.set(DueKind.JOB, "x", "x", START)
    index.set(DueKind.TASK, "x", "y", START)
    index.set(DueKind.JOB, "x", "x", None)
    assert index.due(START, 10) == [Due(START, DueKind.TASK, "x", "y")]


def test_what_is_near_is_never_taken_for_far() -> None:
    index = DeadlineIndex()
    assert not index.is_near(START, 2.0)
    index.set(DueKind.JOB, "x", "x", START + timedelta(seconds=300))
    assert not index.is_near(START, 2.0)
    assert index.is_near(START + timedelta(seconds=298), 2.0)
    index.set(DueKind.JOB, "y", "y", START + timedelta(seconds=2))
    assert index.is_near(START, 2.0)
    assert index.is_near(START + timedelta(seconds=90), 2.0)  # it has passed, and is still there


def test_looking_for_the_first_passed_deadline_costs_the_same_however_many_there_are() -> None:
    def cost_s(deadlines: int) -> float:
        index = DeadlineIndex()
        for n in range(deadlines):
            index.set(DueKind.JOB, f"{n}", f"{n}", START + timedelta(seconds=n))
        watch = Stopwatch()
        for _ in range(100):
            assert [due.id for due in index.due(START + timedelta(days=365), 1)] == ["0"]
        return watch.elapsed_s()

    assert cost_s(50_000) < 20 * max(cost_s(50), 0.001)
