"""Recovery: repeats everything that hints announce, and moves jobs of missing blueprint versions on."""

import logging
from collections.abc import Collection

from ...blueprint.registry import BlueprintRegistry
from ...dispatch.dispatcher import Dispatcher
from ...dispatch.peer_slots import SlotExchange
from ...errors import JobNotFound
from ...machine import signals
from ...machine.step import DecisionContext, Step
from ...model import Job, Task
from ...storage.base import Version
from .announcements import InstanceAnnouncer
from .executor import JobExecutor
from .messages import MessageDelivery
from .repository import JobRepository
from .signals import JobSignals
from .waiting import JobWaiter

log = logging.getLogger("regista.engine")

#: Jobs of missing versions that are moved on in one call.
_STRANDED = 500


class Recovery:
    """Looks again at everything that a lost hint or a crash may have left behind (FENCES 4, 20)."""

    def __init__(
        self,
        announcer: InstanceAnnouncer | None,
        repository: JobRepository,
        registry: BlueprintRegistry,
        executor: JobExecutor,
        dispatcher: Dispatcher,
        exchange: SlotExchange,
        waiter: JobWaiter,
        messages: MessageDelivery,
        job_signals: JobSignals,
    ) -> None:
        self._announcer = announcer
        self._repository = repository
        self._registry = registry
        self._executor = executor
        self._dispatcher = dispatcher
        self._exchange = exchange
        self._waiter = waiter
        self._messages = messages
        self._signals = job_signals

    async def recheck(self) -> int:
        """Wakes all parts, delivers messages and moves stranded jobs on; returns how many jobs were changed."""
        await self.announce()
        self._executor.wake()
        self._dispatcher.wake()
        self._exchange.repeat()
        self._waiter.notify_all()
        changed = await self._messages.deliver()
        known = await self._known_versions()
        for job in await self._repository.stranded(known, _STRANDED):
            changed += await self._migrate(job)
        return changed

    async def announce(self) -> None:
        """Tells the other instances on a shared store which blueprint versions this one can run."""
        if self._announcer is not None:
            await self._announcer.announce(self._registry.versions())

    async def _known_versions(self) -> Collection[Version]:
        """The versions that this instance or another one can run."""
        ours = self._registry.versions()
        return ours if self._announcer is None else [*ours, *await self._announcer.known_versions()]

    async def _migrate(self, stranded: Job) -> int:
        moved = waits = False

        def decide(job: Job, tasks: list[Task], context: DecisionContext) -> Step | None:
            nonlocal moved, waits
            if job.version != stranded.version or job.status.settled:
                return None
            step = signals.migrate(job, self._registry.newest_graph(job.blueprint), context)
            moved = step is not None and step.job.version != stranded.version
            waits = step is not None and not moved
            return step

        try:
            await self._signals.signal(stranded.id, decide)
        except JobNotFound:
            return 0
        if waits:
            log.warning(
                "job %s waits: no instance has version %s of %r, and it does not fit the newest version",
                stranded.id,
                stranded.version,
                stranded.blueprint,
                extra={"action": "version_missing", "job_id": stranded.id},
            )
        return int(moved)
