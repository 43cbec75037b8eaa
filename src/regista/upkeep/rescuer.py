"""Rescuer: finds what a lost hint, a crash or a deploy left behind."""

import logging
from datetime import datetime

from ..engines.native.engine import NativeEngine
from ..errors import JobNotFound
from ..machine import signals
from ..machine.step import DecisionContext, Step
from ..model import Job, Task
from ..storage.base import ReadyQueue
from .loop import Report

log = logging.getLogger("regista.upkeep")


class Rescuer:
    """Looks again at everything that hints only hint at (FENCES 4): the ready queue, the lanes, the
    messages; and moves on jobs whose blueprint version nobody has any more (FENCES 20).
    """

    name = "rescuer"
    needs_leader = False

    def __init__(
        self, ready: ReadyQueue, engine: NativeEngine, interval_s: float = 2.0, limit: int = 500
    ) -> None:
        self.interval_s = interval_s
        self._ready = ready
        self._engine = engine
        self._limit = limit

    async def run_once(self, now: datetime) -> Report:
        """Nudge everybody once, and migrate what is stranded."""
        await self._engine.attend()
        self._engine.executor.wake()
        self._engine.dispatcher.wake()
        self._engine.exchange.repeat()
        self._engine.effects.wake_all()
        done = await self._engine.deliver_messages()
        for job in await self._ready.stranded(self._limit):
            done += await self._migrate(job)
        return Report(done=done)

    async def _migrate(self, stranded: Job) -> int:
        moved = waits = False

        def decide(job: Job, tasks: list[Task], context: DecisionContext) -> Step | None:
            nonlocal moved, waits
            if job.version != stranded.version or job.status.settled:
                return None
            step = signals.migrate(job, self._engine.library.newest_graph(job.blueprint), context)
            moved = step is not None and step.job.version != stranded.version
            waits = step is not None and not moved
            return step

        try:
            await self._engine.signal(stranded.id, decide)
        except JobNotFound:
            return 0
        if waits:
            log.warning(
                "job %s waits: nobody has version %s of %r any more, and it does not fit the newest",
                stranded.id,
                stranded.version,
                stranded.blueprint,
                extra={"action": "version_missing", "job_id": stranded.id},
            )
        return int(moved)
