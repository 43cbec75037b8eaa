"""The stream: frames between an orchestrator and our own workers, over one WebSocket.

A message is a msgpack list of frames; a frame is a list that begins with its name. Both ends put all frames
of one turn of their loop into one message. docs/reference/stream.md tells the story of each frame.
"""

from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct, field

from ...model import Task, TaskResult

#: The WebSocket subprotocol; a change that an old end could not read gets another number.
PROTOCOL = "regista.1"
#: The header that proves who the worker is.
TOKEN_HEADER = "X-Worker-Token"


class Frame(Struct, frozen=True, array_like=True, gc=False, tag_field="frame"):
    """One word of the conversation."""


# -- worker to orchestrator --------------------------------------------------------------------------


class HelloFrame(Frame, frozen=True, tag="hello"):
    """The first word: which registration this is, and what is in the worker's hands."""

    session: int
    running: list[str]


class ResultFrame(Frame, frozen=True, tag="result"):
    """How an attempt went. Said again until it is acknowledged."""

    result: TaskResult


class StartedFrame(Frame, frozen=True, tag="started"):
    """These have begun and take a while."""

    attempts: list[str]


class ProgressFrame(Frame, frozen=True, tag="progress"):
    """How far an attempt is."""

    attempt_id: str
    value: float | None = None
    message: str = ""
    checkpoint: Any = None


class HeartbeatFrame(Frame, frozen=True, tag="heartbeat"):
    """A sign of life, with everything that is in the worker's hands."""

    running: list[str]
    #: What is loaded; None when that has not changed.
    hot: list[str] | None = None


class LeaveFrame(Frame, frozen=True, tag="leave"):
    """The worker leaves: what it still holds is handed back. Answered by closing the socket."""


# -- both ways ---------------------------------------------------------------------------------------


class DrainFrame(Frame, frozen=True, tag="drain"):
    """Up: no more tasks for me, please. Down: you will get no more (or, with False, again)."""

    on: bool = True


# -- orchestrator to worker --------------------------------------------------------------------------


class WelcomeFrame(Frame, frozen=True, tag="welcome"):
    """The answer to hello."""

    #: Attempts that are no longer the worker's.
    stop: list[str]
    #: Beat three times as often; whoever is silent for so long is gone.
    lease_s: float
    #: No message up may be larger.
    max_bytes: int


class TaskFrame(Frame, frozen=True, tag="task"):
    """A task to do. Its names are those of `model.Task`, so that a performer need not know the difference."""

    attempt_id: str
    id: str
    job_id: str
    type: str
    params: dict[str, Any] = field(default_factory=dict)
    attempt: int = 1
    checkpoint: Any = None
    deadline: datetime | None = None
    priority: float = 0.0
    tracing_context: dict[str, str] = field(default_factory=dict)

    @property
    def trace(self) -> dict[str, str]:
        """As `Task.trace`."""
        return self.tracing_context


class AcksFrame(Frame, frozen=True, tag="acks"):
    """These results are in the store; or it does not want them, and says why. The worker may forget both."""

    accepted: list[str]
    refused: dict[str, str]


class HeartbeatAckFrame(Frame, frozen=True, tag="heartbeat_ack"):
    """The answer to a beat: what to stop."""

    stop: list[str]


class CancelFrame(Frame, frozen=True, tag="cancel"):
    """Stop these attempts."""

    attempts: list[str]


class RegisterAgainFrame(Frame, frozen=True, tag="register_again"):
    """The session is over. Register again, unless `displaced`: then another worker, `by` words, has this id."""

    displaced: bool = False
    by: str = ""


FromWorker = (
    HelloFrame | ResultFrame | StartedFrame | ProgressFrame | HeartbeatFrame | DrainFrame | LeaveFrame
)
ToWorker = (
    WelcomeFrame | TaskFrame | AcksFrame | HeartbeatAckFrame | CancelFrame | DrainFrame | RegisterAgainFrame
)

encode = msgspec.msgpack.Encoder().encode
decode_from_worker = msgspec.msgpack.Decoder(list[FromWorker]).decode
decode_to_worker = msgspec.msgpack.Decoder(list[ToWorker]).decode


def task_frame(task: Task) -> TaskFrame:
    """A task on its way to a worker."""
    return TaskFrame(
        attempt_id=task.attempt_id,
        id=task.id,
        job_id=task.job_id,
        type=task.type,
        params=task.params,
        attempt=task.attempt,
        checkpoint=task.checkpoint,
        deadline=task.deadline,
        priority=task.priority,
        tracing_context=task.trace,
    )
