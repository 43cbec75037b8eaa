from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from regista.dispatch.classes import FreeSlotIndex, class_key
from regista.dispatch.connected import CallbackConnection, ConnectedWorker
from regista.model import Profile, Worker


def make_seat(id: str = "w") -> ConnectedWorker:
    return ConnectedWorker(
        Worker(id=id, skills=("a",)), CallbackConnection(lambda tasks: None, lambda attempts: None)
    )


@given(st.lists(st.tuples(st.integers(0, 4), st.none() | st.integers(0, 5)), max_size=60))
def test_the_head_of_a_room_holds_the_least_and_has_not_changed_for_longest(
    moves: Sequence[tuple[int, int | None]],
) -> None:
    seats, room = [make_seat(str(n)) for n in range(5)], FreeSlotIndex()
    naive: dict[int, tuple[int, int]] = {}  # seat → (level, when it was put there last)
    for now, (number, level) in enumerate(moves):
        if level is None:
            room.take_out(seats[number])
            naive.pop(number, None)
        else:
            room.put(seats[number], level)
            naive[number] = (level, now)
        best = min(naive, key=lambda one: naive[one], default=None)
        assert room.next_free() is (None if best is None else seats[best])
        assert len(room) == len(naive)


def test_workers_that_are_the_same_to_any_task_have_one_key() -> None:
    profile = Profile(labels={"a": 1, "b": 2})
    one = Worker(id="w1", skills=("x", "y"), profile=profile, session=1, hostname="here")
    other = Worker(
        id="w2", skills=("y", "x"), profile=Profile(labels={"b": 2, "a": 1}), session=2, transport="poll"
    )
    assert class_key(one) == class_key(other)


def test_whatever_a_task_may_ask_for_makes_another_class() -> None:
    base = {"id": "w", "skills": ("x",)}
    workers = [
        Worker(**base),  # type: ignore[arg-type]
        Worker(id="w", skills=("x", "y")),
        Worker(id="w", skills=("x",), queues=("x",)),
        Worker(id="w", skills=("x",), capacity=3),
        Worker(id="w", skills=("x",), limits={"x": 1}),
        Worker(id="w", skills=("x",), profile=Profile(hot=("x",))),
        Worker(id="w", skills=("x",), profile=Profile(cost_per_second=1.0)),
        Worker(id="w", skills=("x",), profile=Profile(labels={"odd": object})),
    ]
    assert len({class_key(worker) for worker in workers}) == len(workers)
