"""Performance: one attempt in a worker's hands, and where word of it goes."""

import asyncio
from datetime import datetime
from typing import Any, Protocol

from ..model import TaskResult
from ..trace import Live
from .context import Assignment, TaskContext
from .tasks import Skill


class Performance:
    """One attempt in our hands, until its result is acknowledged."""

    __slots__ = (
        "attempt_id",
        "began",
        "cancelled",
        "cancelled_at",
        "context",
        "future",
        "home",
        "job_id",
        "result",
        "said",
        "skill",
        "span",
        "task",
    )

    def __init__(self, task: Assignment, attempt_id: str, home: str, began: datetime) -> None:
        #: What is to be done; None once it has begun.
        self.task: Assignment | None = task
        self.attempt_id = attempt_id
        self.job_id = task.job_id
        #: Who gave it: its result is for nobody else (FENCES 11).
        self.home = home
        self.began = began
        self.skill: Skill | None = None
        #: Somebody wants it to stop; and when it was told so last, by the loop's time.
        self.cancelled = False
        self.cancelled_at = 0.0
        self.context: TaskContext | None = None
        #: What can be cancelled. None for a thread: it is asked, and counts as running until it returns.
        self.future: asyncio.Task[Any] | None = None
        #: How far it is, by its last word: value, message and checkpoint. Whoever listens next hears it again.
        self.said: tuple[float | None, str, Any] | None = None
        #: How it went; kept until acknowledged.
        self.result: TaskResult | None = None
        #: Its part of a trace, from its start to its result.
        self.span: Live | None = None


class Sink(Protocol):
    """Where a performer's words go. All are said on the loop, in the order in which they happened."""

    def started(self, performance: Performance) -> None:
        """It has begun, and will take a while."""
        ...

    def progress(
        self, performance: Performance, value: float | None, message: str, checkpoint: Any
    ) -> None: ...

    def finished(self, performance: Performance) -> None:
        """`performance.result` is there. Whoever gets it acknowledged calls `Performer.forget`."""
        ...
