"""Workers, as clients and operators see them."""

from typing import NamedTuple

from msgspec.structs import replace

from ..errors import WorkerNotFound
from ..workers.info import WorkerInfo
from ..workers.service import WorkerService
from .audit import AuditService
from .caller import Caller


class ListedWorker(NamedTuple):
    """A worker, and how many attempts it holds. `facts.holding` lists them, for operators only."""

    facts: WorkerInfo
    running: int


class WorkerAdminService:
    """Lists and drains workers. Every client sees the workers; only operators see which attempts they hold."""

    def __init__(self, workers: WorkerService, audit: AuditService) -> None:
        self._workers = workers
        self._audit = audit

    async def list_all(self, caller: Caller) -> list[ListedWorker]:
        """All registered workers, by id."""
        return [_visible(caller, facts) for facts in await self._workers.describe()]

    async def get(self, caller: Caller, worker_id: str) -> ListedWorker:
        """One worker, or WorkerNotFound."""
        facts = await self._workers.describe_one(worker_id)
        if facts is None:
            raise WorkerNotFound(worker_id)
        return _visible(caller, facts)

    async def drain(self, caller: Caller, worker_id: str, on: bool = True) -> ListedWorker:
        """Offer the worker no new tasks, or (`on=False`) offer tasks again; for operators.

        The worker finishes the tasks that it holds.
        """
        caller.require_operator("drain a worker")
        action = "worker.drain" if on else "worker.undrain"
        await self._audit.perform(caller, action, worker_id, self._drain(worker_id, on))
        return await self.get(caller, worker_id)

    async def _drain(self, worker_id: str, on: bool) -> None:
        if not await self._workers.ask_to_drain(worker_id, on):
            raise WorkerNotFound(worker_id)


def _visible(caller: Caller, facts: WorkerInfo) -> ListedWorker:
    """An attempt's id names its job, which may be another client's."""
    running = len(facts.holding)
    return ListedWorker(facts if caller.is_privileged else replace(facts, holding=()), running)
