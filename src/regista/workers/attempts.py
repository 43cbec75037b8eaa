"""AttemptTracker: what workers report about attempts that are under way, and which attempts a heartbeat lacks. FENCES 10."""

import asyncio
import logging
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..clock import Clock
from ..engines.base import TaskEngine
from ..errors import NotSerializable
from ..machine.step import DecisionContext, Step
from ..machine.task_results import TaskStep, lost, mark_started, storable_result
from ..model import (
    HELD_STATES,
    AttemptState,
    EventType,
    Job,
    ResultVerdict,
    Task,
    TaskResult,
    TaskWrite,
    Worker,
    split_attempt_id,
)
from ..serialization import to_storable

log = logging.getLogger("regista.workers")

#: Two heartbeats that lack an offered attempt say that it never arrived, when the second comes so much later: a worker
#: that sends heartbeats all the time may have sent all of them before the offer arrived.
_APART_S = 2.0

_decode_any = msgspec.msgpack.Decoder().decode


class HeldTasks(Protocol):
    """Reads tasks with all their values, wherever these are stored. The methods are those of the store."""

    async def held_by(self, worker_id: str) -> list[Task]:
        """The tasks that a worker holds."""
        ...

    async def load(
        self, jobs: Sequence[str], tasks: Sequence[str] = ()
    ) -> tuple[list[Job | None], list[Task | None]]:
        """The newest records, in the order asked."""
        ...


class AttemptProgress(Struct, frozen=True):
    """Evidence that an attempt has started, and how far it is."""

    at: datetime
    #: The first evidence that is not stored yet: the attempt has started by then.
    began: datetime
    progress: float | None = None
    message: str = ""
    checkpoint: Any = None
    #: The worker that reports it; empty where that is certain.
    worker_id: str = ""


class AttemptTracker:
    """Collects starts and progress for a later commit: most are overtaken by a result. Counts the heartbeats that lack an attempt."""

    def __init__(self, engine: TaskEngine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._progress: dict[str, AttemptProgress] = {}
        #: Offered attempt → since when heartbeats lack it.
        self._missed: dict[str, float] = {}
        #: Started attempt of a polling worker → since when its heartbeats lack it.
        self._absent: dict[str, float] = {}
        #: Attempt → its newest result, until it is committed.
        self._reports: dict[str, asyncio.Future[ResultVerdict]] = {}

    # -- starts and progress ---------------------------------------------------------------------

    def has_started(self, task: Task) -> bool:
        """There is evidence that the attempt has started, stored or not."""
        return task.state is AttemptState.STARTED or task.attempt_id in self._progress

    def started(self, attempt_id: str) -> None:
        """The worker has begun."""
        if attempt_id not in self._progress:
            now = self._clock.now()
            self._progress[attempt_id] = AttemptProgress(now, now)

    def progress(
        self, attempt_id: str, value: float | None, message: str, checkpoint: Any, worker_id: str
    ) -> None:
        """How far it is. The newest report wins; a checkpoint stays until there is another."""
        old = self._progress.get(attempt_id)
        if checkpoint is not None:
            checkpoint = _storable(checkpoint, attempt_id)
        if checkpoint is None and old is not None:
            checkpoint = old.checkpoint
        now = self._clock.now()
        began = now if old is None else old.began
        self._progress[attempt_id] = AttemptProgress(now, began, value, message, checkpoint, worker_id)

    async def write(self) -> int:
        """Store what has been collected; returns how many attempts that changed."""
        collected, self._progress = self._progress, {}
        tasks = dict(split_attempt_id(attempt_id) for attempt_id in collected)

        def decide(job: Job, task: Task, context: DecisionContext) -> TaskStep | None:
            progress = collected.get(task.attempt_id)
            if progress is None or task.state not in HELD_STATES:
                return None
            return _with_progress(job, task, progress) if progress.worker_id in ("", task.worker_id) else None

        return await self._engine.signal_tasks(list(tasks), decide)

    # -- results ---------------------------------------------------------------------------------

    def report(self, result: TaskResult) -> "asyncio.Future[ResultVerdict]":
        """Pass a result on to the engine. Until it is committed, the attempt is neither missed nor lost."""
        progress = self._progress.get(result.task_id) if result.failed else None
        if progress is not None and progress.checkpoint is not None:
            # Reported a moment before the failure and not stored yet: it is stored with the result.
            result = replace(result, checkpoint=progress.checkpoint)
        verdict = self._engine.deliver(storable_result(result))
        self.reported(result.task_id, verdict)
        return verdict

    def reported(self, attempt_id: str, verdict: "asyncio.Future[ResultVerdict]") -> None:
        """The worker has reported how the attempt went."""
        self._reports[attempt_id] = verdict

        def answered(done: "asyncio.Future[ResultVerdict]") -> None:
            if self._reports.get(attempt_id) is done:
                del self._reports[attempt_id]

        verdict.add_done_callback(answered)

    def is_reported(self, attempt_id: str) -> bool:
        """A result of it is on its way to the store."""
        verdict = self._reports.get(attempt_id)
        return verdict is not None and not verdict.done()

    def forget(self, attempt_id: str) -> None:
        """The attempt is over: what was collected about it is no longer worth storing."""
        self._progress.pop(attempt_id, None)
        self._missed.pop(attempt_id, None)
        self._absent.pop(attempt_id, None)

    # -- heartbeats ------------------------------------------------------------------------------

    def seen(self, task: Task) -> None:
        """A heartbeat lists the attempt: it runs, and earlier heartbeats without it do not count."""
        self._missed.pop(task.attempt_id, None)
        self._absent.pop(task.attempt_id, None)
        if task.state is AttemptState.OFFERED:
            self.started(task.attempt_id)

    def missing(self, task: Task, patience_s: float | None) -> EventType | None:
        """A heartbeat lacks the attempt. Returns what it is closed as, if that is enough; None: wait.

        `patience_s` is how long a started attempt may be missing. None is for ever: the worker reports itself what it
        has lost.
        """
        if self.is_reported(task.attempt_id):
            return None  # the worker no longer holds it, since it has finished it
        elapsed = self._clock.elapsed()
        if not self.has_started(task):
            since = self._missed.setdefault(task.attempt_id, elapsed)
            return EventType.TASK_UNDELIVERED if elapsed - since >= _APART_S else None
        if patience_s is None:
            return None
        since = self._absent.setdefault(task.attempt_id, elapsed)
        return EventType.TASK_LOST if elapsed - since >= patience_s else None

    # -- ends ------------------------------------------------------------------------------------

    async def close(self, tasks: Sequence[Task], kind: EventType) -> None:
        """Close these attempts as lost or undelivered, unless they have moved on.

        One whose result is on its way is not lost. Should its commit fail, the worker sends the result again, or the
        next look at its lease finds the attempt.
        """
        tasks = [task for task in tasks if not self.is_reported(task.attempt_id)]
        attempts = {task.id: task.attempt for task in tasks}
        if any(task.attempt_id in self._progress for task in tasks):
            await self.write()  # the last checkpoint is for the next attempt
        for task in tasks:
            self.forget(task.attempt_id)

        def decide(job: Job, task: Task, context: DecisionContext) -> Step | TaskStep | None:
            if task.attempt != attempts[task.id] or task.state not in HELD_STATES:
                return None
            return lost(job, task, kind, context)

        await self._engine.signal_tasks(list(attempts), decide)

    async def close_predecessors(self, worker_id: str, held: Sequence[Task], kept: Collection[str]) -> None:
        """Close what the process before this one was given, but for the attempts that are `kept`."""
        gone = [task for task in held if task.attempt_id not in kept]
        begun = [task for task in gone if self.has_started(task)]
        unstarted = [task for task in gone if not self.has_started(task)]
        if not gone:
            return
        log.warning(
            "worker %s was started again under its old id: %s attempts of the process before it are lost, "
            "%s were not started",
            worker_id,
            len(begun),
            len(unstarted),
            extra={"action": "worker_restarted", "worker_id": worker_id},
        )
        await self.close(begun, EventType.TASK_LOST)
        await self.close(unstarted, EventType.TASK_UNDELIVERED)


async def offer_again(
    stored: HeldTasks, engine: TaskEngine, tasks: Sequence[Task], worker: Worker
) -> list[Task]:
    """Write the same offers under the worker's new session; returns those that are still its own."""
    kept = []
    jobs, now = await stored.load([task.job_id for task in tasks], [task.id for task in tasks])
    for job, task in zip(jobs, now, strict=True):
        if job is None or task is None or task.worker_id != worker.id:
            continue
        new = replace(task, session=worker.session)
        write = TaskWrite(new, task.attempt, (AttemptState.OFFERED,))
        if await engine.write(TaskStep(job_id=job.id, revision=job.revision, tasks=(write,))):
            kept.append(new)
    return kept


def _with_progress(job: Job, task: Task, progress: AttemptProgress) -> TaskStep | None:
    """The task with what was reported; None when that is nothing new."""
    step = mark_started(job, task, progress.began)
    if step is None and progress.progress is None and progress.checkpoint is None:
        return None
    write = step.tasks[0] if step is not None else TaskWrite(task, task.attempt, (task.state,))
    marked = replace(
        write.task,
        seen_at=progress.at,
        progress=write.task.progress if progress.progress is None else progress.progress,
        progress_message=progress.message or write.task.progress_message,
        checkpoint=write.task.checkpoint if progress.checkpoint is None else progress.checkpoint,
    )
    events = step.events if step is not None else ()
    return TaskStep(job_id=job.id, revision=job.revision, tasks=(replace(write, task=marked),), events=events)


def _storable(checkpoint: Any, attempt_id: str) -> Any:
    """The checkpoint; None, with a warning in the log, when no store could keep it."""
    try:
        return to_storable(checkpoint, _decode_any, "checkpoint")
    except NotSerializable as problem:
        log.warning("attempt %s: %s; it is dropped", attempt_id, problem, extra={"action": "bad_checkpoint"})
        return None
