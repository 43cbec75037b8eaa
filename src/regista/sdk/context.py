"""TaskContext: what a task function may know and say about its attempt."""

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol

import msgspec

from ..errors import NotSerializable, PayloadsDisabled
from ..payloads.task_files import TaskFiles, TaskFilesProvider
from ..serialization import to_storable, to_storable_text

_decode_any = msgspec.msgpack.Decoder().decode
_log = logging.getLogger("regista.task")

#: Takes (attempt id, value, message, checkpoint). Called from any thread.
ProgressCallback = Callable[[str, float | None, str, Any], None]


class TaskCancelled(Exception):
    """Raised by `raise_if_cancelled`: let it out of the function, and the attempt ends as cancelled."""


def _as_float(value: float) -> float:
    """A plain float, as every way to an orchestrator can carry it."""
    try:
        return float(value)
    except OverflowError:
        raise NotSerializable(
            "progress", "expected a number from 0 to 1, got one that no float can hold"
        ) from None


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
    @property
    def trace(self) -> dict[str, str]: ...


class TaskContext:
    """What a task function may know and say about its attempt. Every method may be called from any thread."""

    def __init__(
        self, task: Assignment, report: ProgressCallback, files: TaskFilesProvider | None = None
    ) -> None:
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
        self._files = files
        self._opened: TaskFiles | None = None
        #: Somebody wants this attempt to stop. An async function gets CancelledError; a thread must look.
        self.cancelled = False

    def progress(self, value: float | None = None, message: str = "", *, checkpoint: Any = None) -> None:
        """Say how far it is (0 to 1), and leave a checkpoint for the next attempt. Cheap; any thread."""
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise NotSerializable("progress", f"expected a number from 0 to 1, got {value!r}")
        if value is not None:
            value = _as_float(value)
        message = to_storable_text(message, "message")
        if checkpoint is not None:
            checkpoint = to_storable(checkpoint, _decode_any, "checkpoint")
        self._report(self.attempt_id, value, message, checkpoint)

    @property
    def task_files(self) -> TaskFiles:
        """The files of the job; a function may also ask for them by a parameter annotated `TaskFiles`."""
        if self._files is None:
            raise PayloadsDisabled
        if self._opened is None:
            self._opened = self._files.open(self.job_id, self.attempt_id)
        return self._opened

    @property
    def used_files(self) -> bool:
        """Something of this attempt may lie on this machine's disk."""
        return self._opened is not None

    def put_files_away(self) -> None:
        """The attempt is over: what it left on this machine goes. In the store, its files stay."""
        if self._files is not None:
            self._files.remove_local(self.job_id, self.attempt_id)

    def raise_if_cancelled(self) -> None:
        """Leave the function here if somebody wants it to stop: the way out for a thread."""
        if self.cancelled:
            raise TaskCancelled(f"attempt {self.attempt_id} was cancelled")

    @property
    def log(self) -> "logging.LoggerAdapter[logging.Logger]":
        """A logger whose lines carry the ids of this attempt."""
        ids = {
            "job_id": self.job_id,
            "task_id": self.task_id,
            "attempt_id": self.attempt_id,
            "attempt": self.attempt,
            "task": self.type,
        }
        return logging.LoggerAdapter(_log, ids)
