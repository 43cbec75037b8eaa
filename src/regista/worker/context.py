"""TaskContext: what a task function may know and say about its attempt."""

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol

import msgspec

from ..errors import NotPlain
from ..plain import plain, plain_text

_decode_any = msgspec.msgpack.Decoder().decode
_log = logging.getLogger("regista.task")

#: Takes (attempt id, value, message, checkpoint). Called from any thread.
Report = Callable[[str, float | None, str, Any], None]


class TaskCancelled(Exception):
    """Raised by `raise_if_cancelled`: let it out of the function, and the attempt ends as cancelled."""


class Assignment(Protocol):
    """What a performer is given: a `Task` in this process, a frame of the stream, or an answer to a poll."""

    @property
    def id(self) -> str: ...
    @property
    def attempt_id(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def job_id(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def params(self) -> dict[str, Any]: ...
    @property
    def checkpoint(self) -> Any: ...
    @property
    def deadline(self) -> datetime | None: ...


class TaskContext:
    """What a task function may know and say about its attempt. Every method may be called from any thread."""

    def __init__(self, task: Assignment, report: Report) -> None:
        #: Stable over retries: use it to make side effects idempotent.
        self.task_id = task.id
        #: Names this one attempt; a retry gets another.
        self.attempt_id = task.attempt_id
        #: 1 for the first try.
        self.attempt = task.attempt
        self.job_id = task.job_id
        self.type = task.type
        #: What an earlier attempt left with `progress(checkpoint=…)`.
        self.checkpoint = task.checkpoint
        #: A result after this instant is too late.
        self.deadline: datetime | None = task.deadline
        self._report = report
        #: Somebody wants this attempt to stop. An async function gets CancelledError; a thread must look.
        self.cancelled = False

    def progress(self, value: float | None = None, message: str = "", *, checkpoint: Any = None) -> None:
        """Say how far it is (0 to 1), and leave a checkpoint for the next attempt. Cheap; any thread."""
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise NotPlain("progress", f"expected a number from 0 to 1, got {value!r}")
        message = plain_text(message, "message")
        if checkpoint is not None:
            checkpoint = plain(checkpoint, _decode_any, "checkpoint")
        self._report(self.attempt_id, value, message, checkpoint)

    def raise_if_cancelled(self) -> None:
        """Leave the function here if somebody wants it to stop: the way out for a thread."""
        if self.cancelled:
            raise TaskCancelled(f"attempt {self.attempt_id} was cancelled")

    @property
    def log(self) -> "logging.LoggerAdapter[logging.Logger]":
        """A logger whose lines carry the ids of this attempt."""
        ids = {"job_id": self.job_id, "task_id": self.task_id, "attempt": self.attempt, "task": self.type}
        return logging.LoggerAdapter(_log, ids)
