"""The frames of the stream."""

from datetime import UTC, datetime

import msgspec
import pytest

from regista.model import Task, TaskFailure, TaskResult
from regista.workers.protocol import frames

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

UP: list[frames.FromWorker] = [
    frames.HelloFrame(3, ["a-1"]),
    frames.ResultFrame(
        TaskResult(task_id="a-1", job_id="j", data={"n": [1]}, error=TaskFailure("E", "m"), started_at=NOW)
    ),
    frames.StartedFrame(["a-1"]),
    frames.ProgressFrame("a-1", 0.5, "half", {"frame": 7}),
    frames.HeartbeatFrame(["a-1"], ["llama"]),
    frames.DrainFrame(),
    frames.LeaveFrame(),
]
DOWN: list[frames.ToWorker] = [
    frames.WelcomeFrame(["a-1"], 30.0, 1024),
    frames.task_frame(
        Task(id="j_1_0", job_id="j", type="cut", params={"n": 1}, checkpoint=[1], result_by=NOW)
    ),
    frames.AcksFrame(["a-1"], {"b-1": "stale_task"}),
    frames.HeartbeatAckFrame([]),
    frames.CancelFrame(["a-1"]),
    frames.DrainFrame(False),
    frames.RegisterAgainFrame(displaced=True, by="10.0.0.1:5"),
]


def test_every_frame_arrives_as_it_left() -> None:
    assert frames.decode_from_worker(frames.encode(UP)) == UP
    assert frames.decode_to_worker(frames.encode(DOWN)) == DOWN


def test_an_offer_answers_to_the_names_of_a_task() -> None:
    task = Task(id="j_1_0", job_id="j", type="cut", attempt=2, result_by=NOW)

    offer = frames.task_frame(task)

    for name in ("id", "attempt_id", "attempt", "job_id", "type", "params", "checkpoint", "deadline"):
        assert getattr(offer, name) == getattr(task, name)


def test_a_frame_that_was_encoded_before_travels_among_the_others() -> None:
    raw = msgspec.Raw(frames.encode(UP[1]))

    assert frames.decode_from_worker(frames.encode([UP[0], raw, UP[2]])) == UP[:3]


@pytest.mark.parametrize("junk", [b"", b"\xc1", frames.encode({}), frames.encode([["nonsense", 1]])])
def test_what_is_no_list_of_frames_is_refused(junk: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        frames.decode_from_worker(junk)
