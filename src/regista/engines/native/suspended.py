"""SuspendedHandlers: handlers that await something. Sticky for 20 ms, then under a lease of their own."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from ...clock import IdGenerator
from ...errors import StorageOutcomeUnknown
from ...model import Change, CommitOutcome
from ...storage.base import StorageBackend
from ..handler_runner import HandlerOutcome
from .repository import JobRepository
from .settings import ExecutorSettings
from .work_item import WorkItem

log = logging.getLogger("regista.engine")


class SuspendedHandlers:
    """Waits for handlers that await, each in a task of its own (FENCES 5).

    A handler that decides within `sticky_s` is committed together with what came before it. After that, what came
    before is committed alone, so that its callers are answered, and the job is kept under a lease while the handler runs.
    """

    def __init__(
        self,
        repository: JobRepository,
        leases: StorageBackend,
        ids: IdGenerator,
        settings: ExecutorSettings,
        *,
        resume: Callable[[WorkItem, HandlerOutcome], Awaitable[None]],
        after_commit: Callable[[WorkItem, Change, CommitOutcome], None],
        abandon: Callable[[WorkItem, BaseException], None],
        on_end: Callable[[], None],
    ) -> None:
        """`resume` continues the item with the handler's outcome; `on_end` is called when a handler has ended."""
        self._repository = repository
        self._leases = leases
        self._ids = ids
        self._settings = settings
        self._resume = resume
        self._after_commit = after_commit
        self._abandon = abandon
        self._on_end = on_end
        self._tasks: dict[asyncio.Task[None], None] = {}

    @property
    def free(self) -> int:
        """How many more handlers may be suspended."""
        return self._settings.max_suspended - len(self._tasks)

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, item: WorkItem, running: "asyncio.Future[HandlerOutcome]") -> None:
        """Takes the item out of its turn until the handler has decided."""
        item.done = True
        task = asyncio.get_running_loop().create_task(self._run(item, running), name="suspended-handler")
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def cancel(self) -> None:
        """Cancels all of them; their jobs run again elsewhere once the leases are released."""
        for task in list(self._tasks):
            task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, StorageOutcomeUnknown):
            log.error(
                "a suspended handler's turn failed", exc_info=error, extra={"action": "slow_turn_failed"}
            )
        self._on_end()

    async def _run(self, item: WorkItem, running: "asyncio.Future[HandlerOutcome]") -> None:
        settings = self._settings
        try:
            if not await _done_within(running, settings.sticky_s) and not await self._commit_without_handler(
                item
            ):
                return
            while not await _done_within(running, settings.lease_s / 3):
                if not await self._extend_lease(item):
                    return
            item.done = False
            await self._resume(item, running.result())
        except BaseException as error:
            self._abandon(item, error)
            raise
        finally:
            if not running.done():
                running.cancel()

    async def _commit_without_handler(self, item: WorkItem) -> bool:
        """Commits what came before the handler and keeps the job. False when another instance has the job now."""
        if item.step is None:
            return await self._extend_lease(item)
        change = item.step.change(
            item.base, self._ids.new_token(), quota=item.quota, keep_lease_s=self._settings.lease_s
        )
        (outcome,) = await self._repository.commit([change], self._settings.instance)
        self._after_commit(item, change, outcome)
        if outcome.ok and change.job is not None:
            item.committed(change.job)
        return outcome.ok

    async def _extend_lease(self, item: WorkItem) -> bool:
        assert item.base is not None
        settings = self._settings
        return bool(await self._leases.extend_leases(settings.instance, [item.base.id], settings.lease_s))


async def _done_within(future: "asyncio.Future[HandlerOutcome]", seconds: float) -> bool:
    await asyncio.wait([future], timeout=seconds)
    return future.done()
