"""MessageDelivery: acts on the durable messages between jobs."""

import logging

from ...aio import BackgroundTasks
from ...errors import JobNotFound, OrchestratorStopped, StorageOutcomeUnknown
from ...machine import signals
from ...machine.step import DecisionContext, Step
from ...model import Job, JobMessage, JobMessageKind, Task
from .repository import JobRepository
from .signals import JobSignals

log = logging.getLogger("regista.engine")

#: Messages that are read at once.
_PAGE = 100


class MessageDelivery:
    """Delivers the end of child jobs to their parents, and cancels to children."""

    def __init__(
        self, repository: JobRepository, job_signals: JobSignals, background: BackgroundTasks
    ) -> None:
        self._repository = repository
        self._signals = job_signals
        self._background = background
        self._running = False

    def deliver_soon(self) -> None:
        """Starts a delivery, unless one is running: it reads until no message is left."""
        if not self._running:
            self._running = True
            self._background.start(self._deliver_all(), "messages")

    async def _deliver_all(self) -> None:
        try:
            await self.deliver()
        finally:
            self._running = False

    async def deliver(self) -> int:
        """Acts on all stored messages; returns on how many. Each is removed by the commit that it causes.

        A message that cannot be acted on stays stored and is skipped until the next call.
        """
        acted = 0
        failed: set[str] = set()
        while True:
            # The store lists the oldest first: ask for as many more as are to be skipped.
            found = await self._repository.messages(_PAGE + len(failed))
            messages = [message for message in found if message.id not in failed]
            if not messages:
                return acted
            for message in messages:
                try:
                    await self._apply(message)
                    acted += 1
                except (StorageOutcomeUnknown, OrchestratorStopped):
                    raise
                except Exception:  # one unreadable record must not hold up the others
                    failed.add(message.id)
                    fields = {"action": "messages", "job_id": message.to_job}
                    log.exception("a message for job %s cannot be acted on", message.to_job, extra=fields)

    async def _apply(self, message: JobMessage) -> None:
        def decide(job: Job, tasks: list[Task], context: DecisionContext) -> Step | None:
            if message.kind is JobMessageKind.CHILD_ENDED:
                return signals.child_ended(job, message, context)
            if job.status.terminal:
                return None
            return signals.request_cancel(job, tasks, context, "parent cancelled")

        try:
            await self._signals.signal(message.to_job, decide, consumes_message=message.id)
        except JobNotFound:
            await self._signals.consume(message.to_job, message.id)
