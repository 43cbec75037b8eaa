"""RunningTask: one attempt that the worker holds, the log and trace fields of its run, and failures as data."""

import asyncio
import traceback
from collections.abc import Sequence
from contextvars import Token
from datetime import datetime
from typing import Any, Protocol

from ..errors import PayloadError, TaskError
from ..model import TaskFailure, TaskResult
from ..serialization import safe_text
from ..trace_context import CURRENT_SUBJECT, ActiveSpan, TraceSubject, start_span
from .context import Assignment, TaskContext
from .tasks import Skill


class RunningTask:
    """One attempt in our hands, until its result is acknowledged."""

    __slots__ = (
        "attempt_id",
        "began",
        "cancelled",
        "cancelled_at",
        "context",
        "destination",
        "future",
        "job_id",
        "last_progress",
        "result",
        "skill",
        "span",
        "task",
    )

    def __init__(self, task: Assignment, attempt_id: str, destination: str, began: datetime) -> None:
        #: What is to be done; None once it has begun.
        self.task: Assignment | None = task
        self.attempt_id = attempt_id
        self.job_id = task.job_id
        #: Who gave it: its result is for nobody else (FENCES 11).
        self.destination = destination
        self.began = began
        self.skill: Skill | None = None
        #: Somebody wants it to stop; and when it was told so last, by the loop's time.
        self.cancelled = False
        self.cancelled_at = 0.0
        self.context: TaskContext | None = None
        #: What can be cancelled. None for a thread: it is asked, and counts as running until it returns.
        self.future: asyncio.Task[Any] | None = None
        #: How far it is, by its last word: value, message and checkpoint. Whoever listens next hears it again.
        self.last_progress: tuple[float | None, str, Any] | None = None
        #: How it went; kept until acknowledged.
        self.result: TaskResult | None = None
        #: Its part of a trace, from its start to its result.
        self.span: ActiveSpan | None = None


class TaskListener(Protocol):
    """Where a performer's words go. All are said on the loop, in the order in which they happened."""

    def started(self, running_task: RunningTask) -> None:
        """It has begun, and will take a while."""
        ...

    def progress(
        self, running_task: RunningTask, value: float | None, message: str, checkpoint: Any
    ) -> None: ...

    def finished(self, running_task: RunningTask) -> None:
        """`performance.result` is there. Whoever gets it acknowledged calls `TaskRunner.forget`."""
        ...


class AttemptScope:
    """Within it, log lines carry the ids of the attempt, and spans are below its own. A task or a thread that is
    begun within it keeps that.
    """

    __slots__ = ("_attempt_id", "_task_id", "_token", "_worker_id", "job_id", "span", "trace")

    def __init__(self, task: Assignment, worker_id: str) -> None:
        self.job_id = task.job_id
        self._task_id = task.id
        self._attempt_id = task.attempt_id
        self._worker_id = worker_id
        #: The trace that the attempt belongs to.
        self.trace = task.trace
        #: Open until the attempt has its result; None when nobody traces it.
        self.span = _span(task, self.trace, worker_id) if self.trace else None

    @property
    def ids(self) -> dict[str, str]:
        """What log lines carry."""
        return {
            "job_id": self.job_id,
            "task_id": self._task_id,
            "attempt_id": self._attempt_id,
            "worker_id": self._worker_id,
        }

    def __enter__(self) -> None:
        self._token: Token[TraceSubject | None] = CURRENT_SUBJECT.set(self)
        if self.span is not None:
            self.span.enter()

    def __exit__(self, *error: object) -> None:
        if self.span is not None:
            self.span.leave()
        CURRENT_SUBJECT.reset(self._token)


def _span(task: Assignment, trace: dict[str, str], worker_id: str) -> ActiveSpan | None:
    return start_span(
        f"perform {task.type}",
        "consumer",
        trace,
        job_id=task.job_id,
        task_id=task.id,
        attempt_id=task.attempt_id,
        task=task.type,
        worker_id=worker_id,
        attempt=task.attempt,
    )


#: The innermost calls of an unexpected exception that are told, and how much of their text.
_FRAMES = 5
_TRACE_CHARS = 2000


def failure_from_exception(error: BaseException) -> TaskFailure:
    """An exception as data. One that says no kind is transient, and tells where it came from."""
    if isinstance(error, TaskError):
        return TaskFailure(safe_text(error.code), safe_text(error), error.details or None)
    if isinstance(error, PayloadError) and error.permanent:
        return TaskFailure("PERMANENT_ERROR", f"{error.code}: {safe_text(error)}")
    details = {"type": type(error).__qualname__, "traceback": _trace(error)}
    return TaskFailure("TRANSIENT_ERROR", f"{type(error).__name__}: {safe_text(error)}", details)


def _trace(error: BaseException) -> str:
    """The innermost calls, file and line."""
    frames: Sequence[traceback.FrameSummary] = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    lines = [f"{frame.filename}:{frame.lineno} in {frame.name}: {frame.line}" for frame in frames]
    return safe_text("\n".join(lines))[-_TRACE_CHARS:]


def failure_from_result(said: Any) -> TaskFailure | None:
    """The failure that a function returned: {"code", "message", "details"}, or just a message."""
    if not said:
        return None
    if isinstance(said, str):
        return TaskFailure("TRANSIENT_ERROR", said)
    if not isinstance(said, dict) or not all(
        isinstance(said.get(key, ""), str) for key in ("code", "message")
    ):
        raise ValueError(f"error: expected a str or a dict of code, message and details, got {said!r}")
    return TaskFailure(said.get("code") or "TRANSIENT_ERROR", said.get("message", ""), said.get("details"))
