from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from regista.dispatch import matcher as board_module
from regista.dispatch.connected import Seat
from regista.dispatch.filters import blocker
from regista.dispatch.matcher import HEADS, Board
from regista.model import Profile, QueueKey, Task, Worker


def queue_key(type: str = "render", **requirements: Any) -> QueueKey:
    return Task(id="j_1_0", job_id="j", type=type, requirements=requirements).queue_key


def sit(board: Board, id: str, *, skills: tuple[str, ...] = ("render",), **has: Any) -> Seat:
    worker = Worker(id=id, skills=skills, capacity=2, session=1, profile=Profile(**has))
    seat = Seat(worker, lambda tasks: None, lambda attempts: None)
    board.seats.add(seat)
    return seat


def test_the_filters_run_once_per_lane_and_class(monkeypatch: Any) -> None:
    asked: list[QueueKey] = []

    def counted(there: QueueKey, worker: Worker) -> Any:
        asked.append(there)
        return blocker(there, worker)

    monkeypatch.setattr(board_module, "blocker", counted)
    board = Board()
    for number in range(100):
        sit(board, f"w{number}", ram_gb=float(number % 2))
    for _ in range(50):
        assert board.choose(queue_key(ram_gb=1), fresh=True) is not None
    assert asked == [queue_key(ram_gb=1)] * 2


def test_a_class_that_comes_later_is_found_and_one_that_left_is_not() -> None:
    board = Board()
    assert board.choose(queue_key(), fresh=True) is None
    seat = sit(board, "w1")
    assert board.choose(queue_key(), fresh=True) is seat
    board.seats.remove("w1", 1)
    assert board.choose(queue_key(), fresh=True) is None


def test_a_worker_that_changed_is_judged_anew() -> None:
    board = Board()
    seat = sit(board, "w1")
    assert board.choose(queue_key(zone="eu"), fresh=True) is None
    board.seats.change(seat, replace(seat.worker, profile=Profile(zone="eu")))
    assert board.choose(queue_key(zone="eu"), fresh=True) is seat


def test_a_fresh_task_finds_nobody_while_something_waits_that_they_could_do() -> None:
    board = Board()
    both = sit(board, "both", skills=("render", "probe"))
    alone = sit(board, "alone", skills=("probe",))
    board.waits(queue_key("render"))
    assert board.choose(queue_key("probe"), fresh=True) is alone
    board.seats.drain(alone, True)
    assert board.choose(queue_key("probe"), fresh=True) is None
    assert board.choose(queue_key("probe"), fresh=False) is both
    board.clear([queue_key("render")], board.now)
    assert board.choose(queue_key("probe"), fresh=True) is both


def test_a_class_that_joins_owes_what_waits_already() -> None:
    board = Board()
    board.waits(queue_key())
    seat = sit(board, "w1")
    assert seat.kind is not None
    assert list(seat.kind.owed) == [queue_key()]
    assert board.choose(queue_key(), fresh=True) is None


def test_what_came_to_wait_after_the_question_is_not_cleared_by_its_answer() -> None:
    board = Board()
    board.waits(queue_key())
    asked = board.now
    board.waits(queue_key())
    board.clear([queue_key()], asked)
    assert queue_key() in board.waiting
    board.clear([queue_key()], board.now)
    assert board.waiting == {}


def test_more_classes_than_are_scored_still_give_the_best_standing() -> None:
    board = Board()
    seats = [sit(board, f"w{n}", cost_per_second=float(500 - n)) for n in range(500)]
    assert board.choose(queue_key(), fresh=True) is seats[-1]
    for seat in seats[100:]:
        board.seats.drain(seat, True)
    assert len(board.seats.open) == 100 > HEADS
    assert board.choose(queue_key(), fresh=True) is seats[99]
    for seat in seats[1:]:
        board.seats.drain(seat, True)
    assert board.choose(queue_key(), fresh=True) is seats[0]


def test_lanes_that_nobody_asks_for_any_more_are_forgotten(monkeypatch: Any) -> None:
    monkeypatch.setattr(board_module, "LANES", 10)
    board = Board()
    sit(board, "w1")
    waits = queue_key(labels=None, zone="waits")
    board.waits(waits)
    for number in range(100):
        board.view(queue_key(zone=str(number)))
    assert len(board._views) <= 11
    assert waits in board._views


@given(st.lists(st.tuples(st.sampled_from(["come", "go", "wait", "clear"]), st.integers(0, 5)), max_size=40))
def test_each_class_owes_exactly_what_waits_for_it(moves: list[tuple[str, int]]) -> None:
    board = Board()
    lanes = [queue_key("render"), queue_key("probe"), queue_key("render", zone="eu")]
    for what, number in moves:
        if what == "come":
            skills = (("render",), ("probe",), ("render", "probe"))[number % 3]
            sit(board, f"w{number}", skills=skills, zone=("", "eu")[number % 2])
        elif what == "go":
            board.seats.remove(f"w{number}", 1)
        elif what == "wait":
            board.waits(lanes[number % 3])
        else:
            board.clear([lanes[number % 3]], board.now)
        for kind in board.seats.kinds:
            fits = {one for one in board.waiting if blocker(one, kind.worker) is None}
            assert set(kind.owed) == fits
