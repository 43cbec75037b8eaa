"""The frames of the stream."""

from datetime import UTC, datetime

import msgspec
import pytest

from regista.model import Task, TaskFailure, TaskResult
from regista.wire import stream

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

UP: list[stream.Up] = [
    stream.Hello(3, ["a-1"], 5),
    stream.Result(
        TaskResult(task_id="a-1", job_id="j", data={"n": [1]}, error=TaskFailure("E", "m"), started_at=NOW)
    ),
    stream.Started(["a-1"]),
    stream.Progress("a-1", 0.5, "half", {"frame": 7}),
    stream.Beat(["a-1"], ["llama"]),
    stream.Credit(-3),
    stream.Drain(),
    stream.Bye(),
]
DOWN: list[stream.Down] = [
    stream.Welcome(["a-1"], 30.0, 1024),
    stream.offer_of(Task(id="j_1_0", job_id="j", type="cut", params={"n": 1}, checkpoint=[1], result_by=NOW)),
    stream.Acks(["a-1"], {"b-1": "stale_task"}),
    stream.Heard([]),
    stream.Stop(["a-1"]),
    stream.Credit(2),
    stream.Drain(False),
    stream.Again(displaced=True, by="10.0.0.1:5"),
]


def test_every_frame_arrives_as_it_left() -> None:
    assert stream.decode_up(stream.encode(UP)) == UP
    assert stream.decode_down(stream.encode(DOWN)) == DOWN


def test_an_offer_answers_to_the_names_of_a_task() -> None:
    task = Task(id="j_1_0", job_id="j", type="cut", attempt=2, result_by=NOW)

    offer = stream.offer_of(task)

    for name in ("id", "attempt_id", "attempt", "job_id", "type", "params", "checkpoint", "deadline"):
        assert getattr(offer, name) == getattr(task, name)


def test_a_frame_that_was_encoded_before_travels_among_the_others() -> None:
    raw = msgspec.Raw(stream.encode(UP[1]))

    assert stream.decode_up(stream.encode([UP[0], raw, UP[2]])) == UP[:3]


@pytest.mark.parametrize("junk", [b"", b"\xc1", stream.encode({}), stream.encode([["nonsense", 1]])])
def test_what_is_no_list_of_frames_is_refused(junk: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        stream.decode_up(junk)
