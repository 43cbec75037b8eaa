"""Signs: what workers say about attempts that are under way, written down with a later commit."""

from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ..clock import Clock
from ..engines.base import TaskEngine
from ..machine.step import DecisionContext
from ..machine.task_results import TaskStep, mark_started
from ..model import HELD_STATES, Job, Task, TaskWrite, split_attempt_id


class Sign(Struct, frozen=True):
    """A sign of life of an attempt."""

    at: datetime
    #: The first sign that is not written down yet: the attempt has begun by then.
    began: datetime
    progress: float | None = None
    message: str = ""
    checkpoint: Any = None
    #: Who says so; empty where that is certain.
    worker_id: str = ""


class Signs:
    """Evidence that an attempt has started, and how far it is. Cheap to note: most are overtaken by a result."""

    def __init__(self, engine: TaskEngine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._signs: dict[str, Sign] = {}

    def __contains__(self, attempt_id: str) -> bool:
        """There is evidence, not written down yet."""
        return attempt_id in self._signs

    def started(self, attempt_id: str) -> None:
        """The worker has begun."""
        if attempt_id not in self._signs:
            now = self._clock.now()
            self._signs[attempt_id] = Sign(now, now)

    def progress(
        self, attempt_id: str, value: float | None, message: str, checkpoint: Any, worker_id: str
    ) -> None:
        """How far it is. The newest word wins; a checkpoint stays until there is another."""
        old = self._signs.get(attempt_id)
        if checkpoint is None and old is not None:
            checkpoint = old.checkpoint
        now = self._clock.now()
        began = now if old is None else old.began
        self._signs[attempt_id] = Sign(now, began, value, message, checkpoint, worker_id)

    def checkpoint(self, attempt_id: str) -> Any:
        """The checkpoint that is not written down yet, or None."""
        sign = self._signs.get(attempt_id)
        return sign.checkpoint if sign is not None else None

    def forget(self, attempt_id: str) -> None:
        """The attempt is over: this is no longer worth writing down."""
        self._signs.pop(attempt_id, None)

    async def write(self) -> int:
        """Store what has gathered; returns how many attempts that changed."""
        signs, self._signs = self._signs, {}
        tasks = dict(split_attempt_id(attempt_id) for attempt_id in signs)

        def decide(job: Job, task: Task, context: DecisionContext) -> TaskStep | None:
            sign = signs.get(task.attempt_id)
            if sign is None or task.state not in HELD_STATES or sign.worker_id not in ("", task.worker_id):
                return None
            return _signed(job, task, sign)

        return await self._engine.signal_tasks(list(tasks), decide)


def _signed(job: Job, task: Task, sign: Sign) -> TaskStep | None:
    """The task with a sign of life; None when it tells nothing new."""
    step = mark_started(job, task, sign.began)
    if step is None and sign.progress is None and sign.checkpoint is None:
        return None
    write = step.tasks[0] if step is not None else TaskWrite(task, task.attempt, (task.state,))
    marked = replace(
        write.task,
        seen_at=sign.at,
        progress=write.task.progress if sign.progress is None else sign.progress,
        progress_message=sign.message or write.task.progress_message,
        checkpoint=write.task.checkpoint if sign.checkpoint is None else sign.checkpoint,
    )
    events = step.events if step is not None else ()
    return TaskStep(job_id=job.id, revision=job.revision, tasks=(replace(write, task=marked),), events=events)
