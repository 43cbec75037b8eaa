"""Counts of waiting and running tasks, by queue."""

import asyncio
from datetime import datetime

from msgspec import Struct, field

from ..storage.base import JobStorage
from ..workers.info import WorkerInfo
from ..workers.service import WorkerService
from .caller import Caller


class QueueCounts(Struct, kw_only=True):
    """One queue: its tasks, and the ids of the workers that serve it."""

    waiting: int = 0
    running: int = 0
    #: When the task that waits longest was queued.
    oldest: datetime | None = None
    workers: set[str] = field(default_factory=set)


class Totals(Struct, frozen=True):
    """Workers by state (and `total`), and tasks that wait and run."""

    workers: dict[str, int]
    tasks: dict[str, int]


class QueueService:
    """Counts tasks: for a client its own, for an operator all."""

    def __init__(self, tasks: JobStorage, workers: WorkerService) -> None:
        self._tasks = tasks
        self._workers = workers

    async def list_all(self, caller: Caller) -> dict[str, QueueCounts]:
        """Queues in which a task waits or runs, and those that a registered worker serves, by name."""
        return await self._count(caller, await self._workers.describe())

    async def totals(self, caller: Caller) -> Totals:
        """Counts over all queues and workers."""
        described = await self._workers.describe()
        queues = (await self._count(caller, described)).values()
        workers: dict[str, int] = {"total": len(described)}
        for facts in described:
            workers[facts.state] = workers.get(facts.state, 0) + 1
        waiting, running = sum(each.waiting for each in queues), sum(each.running for each in queues)
        return Totals(workers, {"waiting": waiting, "running": running})

    async def _count(self, caller: Caller, described: list[WorkerInfo]) -> dict[str, QueueCounts]:
        queues: dict[str, QueueCounts] = {}
        #: Skill → workers that have it and serve any queue.
        unrestricted: dict[str, set[str]] = {}
        for worker in (facts.worker for facts in described):
            for name in worker.skills if worker.queues is None else worker.queues:
                # A task that names no queue waits in the queue of its type.
                queues.setdefault(name, QueueCounts()).workers.add(worker.id)
            for skill in worker.skills if worker.queues is None else ():
                unrestricted.setdefault(skill, set()).add(worker.id)
        client = caller.visible_client
        for status in await self._tasks.queue_status():
            if client in (None, status.client):
                queue = queues.setdefault(status.queue_key.queue, QueueCounts())
                queue.workers |= unrestricted.get(status.queue_key.type, set())
                queue.waiting += status.waiting
                if status.oldest is not None and (queue.oldest is None or status.oldest < queue.oldest):
                    queue.oldest = status.oldest
        # Concurrent questions share round trips to the store.
        holders = await self._tasks.holders()
        for held in await asyncio.gather(*(self._tasks.held_by(worker_id) for worker_id in holders)):
            for task in held:
                if client in (None, task.client):
                    queue = queues.setdefault(task.queue or task.type, QueueCounts())
                    queue.workers |= unrestricted.get(task.type, set())
                    queue.running += 1
        return queues
