"""WorkerService: workers come and go, and what they held is never in doubt. FENCES 9 to 14."""

import asyncio
import logging
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ...blueprint.step import Scene, Step
from ...clock import Clock
from ...dispatch.dispatcher import Dispatcher
from ...fleet.seats import Cancel, Send
from ...model import (
    HELD_STATES,
    AttemptState,
    EventType,
    Job,
    Task,
    TaskResult,
    TaskWrite,
    Worker,
    task_of,
)
from ...storage.base import StorageBackend
from ..base import Verdict
from .engine import NativeEngine
from .results import TaskStep, lost, mark_started, sound

log = logging.getLogger("regista.workers")

#: Heartbeats in a row that may lack an offered attempt before it counts as undelivered.
_MISSES = 2


class Beat(Struct, frozen=True):
    """The answer to a heartbeat."""

    #: False: the session is over, register again.
    known: bool
    #: Attempts to stop: cancelled ones, and ones that are no longer the worker's.
    cancel: tuple[str, ...] = ()


class _Sign(Struct, frozen=True):
    """A sign of life of an attempt that rides with a later commit."""

    at: datetime
    progress: float | None = None
    message: str = ""
    checkpoint: Any = None


class WorkerService:
    """Registers workers, hears them, and takes back what they cannot finish."""

    def __init__(
        self,
        storage: StorageBackend,
        engine: NativeEngine,
        dispatcher: Dispatcher,
        clock: Clock,
        instance: str,
        lease_s: float,
    ) -> None:
        self._storage = storage
        self._engine = engine
        self._dispatcher = dispatcher
        self._clock = clock
        self._instance = instance
        self.lease_s = lease_s
        self._signs: dict[str, _Sign] = {}
        self._missed: dict[str, int] = {}

    async def register(
        self, worker: Worker, running: Collection[str], send: Send, cancel: Cancel
    ) -> tuple[Worker, tuple[str, ...]]:
        """Give the worker a session and a seat. Returns the attempts that it should stop (FENCES 11).

        What the store says it holds and it does not report is offered again if it never started, and
        lost otherwise.
        """
        self._unseat(worker.id, None)  # what the old session loses must not be offered to it again
        known = await self._storage.register(replace(worker, instance=self._instance), self.lease_s)
        held = {task.attempt_id: task for task in await self._storage.held_by(worker.id)}
        kept = [attempt for attempt in running if attempt in held]
        again: list[Task] = []
        lost_ones: list[Task] = []
        for attempt, task in held.items():
            if attempt not in kept:
                unstarted = task.state is AttemptState.OFFERED and attempt not in self._signs
                (again if unstarted else lost_ones).append(task)
        await self.lose(lost_ones, EventType.TASK_LOST)
        readopted = await self._readopt(again, known)
        self._dispatcher.seat(known, send, cancel, [*kept, *(task.attempt_id for task in readopted)])
        self._dispatcher.deliver(readopted)
        return known, tuple(attempt for attempt in running if attempt not in held)

    async def _readopt(self, tasks: list[Task], worker: Worker) -> list[Task]:
        """The same offers, under the new session."""
        kept = []
        for task in tasks:
            new = replace(task, session=worker.session)
            step = TaskStep(
                job_id=task.job_id, tasks=(TaskWrite(new, task.attempt, (AttemptState.OFFERED,)),)
            )
            if await self._engine.write(step):
                kept.append(new)
        return kept

    async def heartbeat(self, worker_id: str, session: int, running: Collection[str]) -> Beat:
        """Renew the lease, learn what has started, and say what to stop."""
        if not await self._storage.heartbeat(worker_id, session, self.lease_s):
            return Beat(known=False)
        held = {task.attempt_id: task for task in await self._storage.held_by(worker_id)}
        now = self._clock.now()
        for attempt, task in held.items():
            if attempt in running:
                self._missed.pop(attempt, None)
                if task.state is AttemptState.OFFERED:
                    self._signs.setdefault(attempt, _Sign(now))
            elif task.state is AttemptState.OFFERED and attempt not in self._signs:
                await self._miss(task)
        self._forget_strays(worker_id, held, running)
        stop = [attempt for attempt, task in held.items() if task.cancel_requested and attempt in running]
        stop += [attempt for attempt in running if attempt not in held]
        return Beat(known=True, cancel=tuple(stop))

    async def _miss(self, task: Task) -> None:
        """Delivered is not started: twice missing after the offer means that it never arrived."""
        misses = self._missed[task.attempt_id] = self._missed.get(task.attempt_id, 0) + 1
        if misses >= _MISSES:
            del self._missed[task.attempt_id]
            await self.lose([task], EventType.TASK_UNDELIVERED)
            self._dispatcher.release(task.worker_id, task.attempt_id)

    def _forget_strays(self, worker_id: str, held: Collection[str], running: Collection[str]) -> None:
        """Slots are counted from attempts; those that neither side knows any more are free."""
        seat = self._dispatcher.find(worker_id)
        if seat is not None:
            for attempt in [a for a in seat.holding if a not in held and a not in running]:
                self._dispatcher.release(worker_id, attempt)

    async def leave(self, worker_id: str, session: int) -> None:
        """The worker says goodbye: what it still held is handed back at once."""
        self._dispatcher.unseat(worker_id, session)
        await self.bury(worker_id, session)

    async def bury(self, worker_id: str, session: int | None) -> int:
        """The worker is gone: its attempts are lost, then its record. Returns how many attempts."""
        self._unseat(worker_id, session)  # first of all: what the dead lose must not be offered to them again
        tasks = await self._storage.held_by(worker_id)
        await self.lose(tasks, EventType.TASK_LOST)
        if session is not None:
            await self._storage.forget(worker_id, session)
        return len(tasks)

    def _unseat(self, worker_id: str, session: int | None) -> None:
        seat = self._dispatcher.find(worker_id)
        if seat is not None and session in (None, seat.worker.session):
            self._dispatcher.unseat(worker_id, seat.worker.session)

    async def lose(self, tasks: Sequence[Task], kind: EventType) -> None:
        """Close these attempts as lost or undelivered, unless they have moved on."""
        attempts = {task.id: task.attempt for task in tasks}
        for task in tasks:
            self._signs.pop(task.attempt_id, None)

        def decide(job: Job, task: Task, scene: Scene) -> Step | TaskStep | None:
            if task.attempt != attempts[task.id] or task.state not in HELD_STATES:
                return None
            return lost(job, task, kind, scene)

        await self._engine.signal_tasks(list(attempts), decide)

    async def deliver(self, result: TaskResult) -> Verdict:
        """A result; answered after the commit that it caused."""
        return await self.report(result)

    def report(self, result: TaskResult) -> "asyncio.Future[Verdict]":
        """A result; the future is done after the commit that it caused."""
        self._signs.pop(result.task_id, None)  # no longer worth writing down
        return self._engine.executor.deliver(sound(result))

    # -- signs of life ---------------------------------------------------------------------------

    def started(self, attempt_id: str) -> None:
        """The worker has begun. Written down with a later commit; short tasks end before that."""
        self._signs.setdefault(attempt_id, _Sign(self._clock.now()))

    def progress(
        self, attempt_id: str, value: float | None = None, message: str = "", checkpoint: Any = None
    ) -> None:
        """How far it is. The newest word wins; the checkpoint is handed to the next attempt."""
        old = self._signs.get(attempt_id)
        if checkpoint is None and old is not None:
            checkpoint = old.checkpoint
        self._signs[attempt_id] = _Sign(self._clock.now(), value, message, checkpoint)

    async def write_signs(self) -> int:
        """Store the signs of life that no result has overtaken; returns how many."""
        signs, self._signs = self._signs, {}
        tasks = dict(task_of(attempt_id) for attempt_id in signs)

        def decide(job: Job, task: Task, scene: Scene) -> TaskStep | None:
            sign = signs.get(task.attempt_id)
            held = sign is not None and task.state in HELD_STATES
            return _signed(job, task, sign) if held and sign is not None else None

        return await self._engine.signal_tasks(list(tasks), decide)


def _signed(job: Job, task: Task, sign: _Sign) -> TaskStep | None:
    """The task with a sign of life; None when it tells nothing new."""
    step = mark_started(job, task, sign.at)
    if step is None and sign.progress is None and sign.checkpoint is None:
        return None
    write = step.tasks[0] if step is not None else TaskWrite(task, task.attempt, HELD_STATES)
    marked = replace(
        write.task,
        seen_at=sign.at,
        progress=write.task.progress if sign.progress is None else sign.progress,
        progress_message=sign.message or write.task.progress_message,
        checkpoint=write.task.checkpoint if sign.checkpoint is None else sign.checkpoint,
    )
    events = step.events if step is not None else ()
    return TaskStep(job_id=job.id, tasks=(replace(write, task=marked),), events=events)
