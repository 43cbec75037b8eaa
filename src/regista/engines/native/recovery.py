"""Recovery: repeats everything that hints announce, and moves jobs of missing blueprint versions on."""

import logging

from ...blueprint.registry import BlueprintRegistry
from ...dispatch.dispatcher import Dispatcher
from ...dispatch.exchange import Exchange
from ...errors import JobNotFound
from ...machine import signals
from ...machine.step import DecisionContext, Step
from ...model import Job, Task
from ...storage.base import StorageBackend
from .executor import JobExecutor
from .messages import MessageDelivery
from .repository import JobRepository
from .settings import ExecutorSettings
from .signals import JobSignals
from .waiting import JobWaiter

log = logging.getLogger("regista.engine")

#: Jobs of missing versions that are moved on in one call.
_STRANDED = 500


class Recovery:
    """Looks again at everything that a lost hint or a crash may have left behind (FENCES 4, 20)."""

    def __init__(
        self,
        storage: StorageBackend,
        repository: JobRepository,
        registry: BlueprintRegistry,
        executor: JobExecutor,
        dispatcher: Dispatcher,
        exchange: Exchange,
        waiter: JobWaiter,
        messages: MessageDelivery,
        job_signals: JobSignals,
        settings: ExecutorSettings,
    ) -> None:
        self._storage = storage
        self._repository = repository
        self._registry = registry
        self._executor = executor
        self._dispatcher = dispatcher
        self._exchange = exchange
        self._waiter = waiter
        self._messages = messages
        self._signals = job_signals
        self._settings = settings

    async def recheck(self) -> int:
        """Wakes all parts, delivers messages and moves stranded jobs on; returns how many jobs were changed."""
        await self.announce()
        self._executor.wake()
        self._dispatcher.wake()
        self._exchange.repeat()
        self._waiter.notify_all()
        changed = await self._messages.deliver()
        for job in await self._repository.stranded(_STRANDED):
            changed += await self._migrate(job)
        return changed

    async def announce(self) -> None:
        """Publishes the blueprint versions that this instance can run, for one lease."""
        settings = self._settings
        await self._storage.attend(settings.instance, self._registry.versions(), settings.lease_s)

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
