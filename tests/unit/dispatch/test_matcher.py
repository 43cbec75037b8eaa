from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from regista.dispatch import matcher
from regista.dispatch.connected import CallbackConnection, ConnectedWorker
from regista.dispatch.filters import first_mismatch
from regista.dispatch.matcher import HEADS, MatchIndex
from regista.model import Profile, QueueKey, Task, Worker


def queue_key(type: str = "render", **requirements: Any) -> QueueKey:
    return Task(id="j_1_0", job_id="j", type=type, requirements=requirements).queue_key


def sit(index: MatchIndex, id: str, *, skills: tuple[str, ...] = ("render",), **has: Any) -> ConnectedWorker:
    worker = Worker(id=id, skills=skills, capacity=2, session=1, profile=Profile(**has))
    connected = ConnectedWorker(worker, CallbackConnection(lambda tasks: None, lambda attempts: None))
    index.connected.add(connected)
    return connected


def test_the_filters_run_once_per_lane_and_class(monkeypatch: Any) -> None:
    asked: list[QueueKey] = []

    def counted(there: QueueKey, worker: Worker) -> Any:
        asked.append(there)
        return first_mismatch(there, worker)

    monkeypatch.setattr(matcher, "first_mismatch", counted)
    index = MatchIndex()
    for number in range(100):
        sit(index, f"w{number}", ram_gb=float(number % 2))
    for _ in range(50):
        assert index.choose(queue_key(ram_gb=1), fresh=True) is not None
    assert asked == [queue_key(ram_gb=1)] * 2


def test_a_class_that_comes_later_is_found_and_one_that_left_is_not() -> None:
    index = MatchIndex()
    assert index.choose(queue_key(), fresh=True) is None
    connected = sit(index, "w1")
    assert index.choose(queue_key(), fresh=True) is connected
    index.connected.remove("w1", 1)
    assert index.choose(queue_key(), fresh=True) is None


def test_a_worker_that_changed_is_judged_anew() -> None:
    index = MatchIndex()
    connected = sit(index, "w1")
    assert index.choose(queue_key(zone="eu"), fresh=True) is None
    index.connected.change(connected, replace(connected.worker, profile=Profile(zone="eu")))
    assert index.choose(queue_key(zone="eu"), fresh=True) is connected


def test_a_fresh_task_finds_nobody_while_something_waits_that_they_could_do() -> None:
    index = MatchIndex()
    both = sit(index, "both", skills=("render", "probe"))
    alone = sit(index, "alone", skills=("probe",))
    index.mark_waiting(queue_key("render"))
    assert index.choose(queue_key("probe"), fresh=True) is alone
    index.connected.drain(alone, True)
    assert index.choose(queue_key("probe"), fresh=True) is None
    assert index.choose(queue_key("probe"), fresh=False) is both
    index.clear([queue_key("render")], index.now)
    assert index.choose(queue_key("probe"), fresh=True) is both


def test_a_class_that_joins_owes_what_waits_already() -> None:
    index = MatchIndex()
    index.mark_waiting(queue_key())
    connected = sit(index, "w1")
    assert connected.worker_class is not None
    assert list(connected.worker_class.waiting_queues) == [queue_key()]
    assert index.choose(queue_key(), fresh=True) is None


def test_what_came_to_wait_after_the_question_is_not_cleared_by_its_answer() -> None:
    index = MatchIndex()
    index.mark_waiting(queue_key())
    asked = index.now
    index.mark_waiting(queue_key())
    index.clear([queue_key()], asked)
    assert queue_key() in index.waiting
    index.clear([queue_key()], index.now)
    assert index.waiting == {}


def test_more_classes_than_are_scored_still_give_the_best_standing() -> None:
    index = MatchIndex()
    seats = [sit(index, f"w{n}", cost_per_second=float(500 - n)) for n in range(500)]
    assert index.choose(queue_key(), fresh=True) is seats[-1]
    for connected in seats[100:]:
        index.connected.drain(connected, True)
    assert len(index.connected.open) == 100 > HEADS
    assert index.choose(queue_key(), fresh=True) is seats[99]
    for connected in seats[1:]:
        index.connected.drain(connected, True)
    assert index.choose(queue_key(), fresh=True) is seats[0]


def test_lanes_that_nobody_asks_for_any_more_are_forgotten(monkeypatch: Any) -> None:
    monkeypatch.setattr(matcher, "LANES", 10)
    index = MatchIndex()
    sit(index, "w1")
    waits = queue_key(labels=None, zone="waits")
    index.mark_waiting(waits)
    for number in range(100):
        index.view(queue_key(zone=str(number)))
    assert len(index._views) <= 11
    assert waits in index._views


@given(st.lists(st.tuples(st.sampled_from(["come", "go", "wait", "clear"]), st.integers(0, 5)), max_size=40))
def test_each_class_owes_exactly_what_waits_for_it(moves: list[tuple[str, int]]) -> None:
    index = MatchIndex()
    lanes = [queue_key("render"), queue_key("probe"), queue_key("render", zone="eu")]
    for what, number in moves:
        if what == "come":
            skills = (("render",), ("probe",), ("render", "probe"))[number % 3]
            sit(index, f"w{number}", skills=skills, zone=("", "eu")[number % 2])
        elif what == "go":
            index.connected.remove(f"w{number}", 1)
        elif what == "wait":
            index.mark_waiting(lanes[number % 3])
        else:
            index.clear([lanes[number % 3]], index.now)
        for kind in index.connected.classes:
            fits = {one for one in index.waiting if first_mismatch(one, kind.worker) is None}
            assert set(kind.waiting_queues) == fits
