"""JobRepository: what the engine reads and writes of jobs and tasks, with payload offloading and telemetry."""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime

from ...clock import Clock
from ...errors import StorageError
from ...model import Change, CommitOutcome, Job, JobMessage, QueueKey, Task, Worker
from ...payloads.base import FetchFailure, PayloadOffloader, broken
from ...storage.base import StorageBackend, TaskClaim, Version
from ..base import EngineObserver, NoObserver


class JobRepository:
    """Jobs and tasks with all their values, wherever these are stored. Without a payload store, the records as they are.

    The methods have the contracts of the store's methods of the same name.
    """

    def __init__(
        self,
        storage: StorageBackend,
        clock: Clock,
        payloads: PayloadOffloader | None = None,
        observer: EngineObserver | None = None,
        on_broken_payload: Callable[[Task, FetchFailure], None] = lambda task, why: None,
    ) -> None:
        """`on_broken_payload` is called with a task whose params cannot be read. It must fail the task."""
        self._storage = storage
        self._clock = clock
        self._payloads = payloads
        self._observer = observer if observer is not None else NoObserver()
        self._on_broken_payload = on_broken_payload

    async def commit(self, changes: Sequence[Change], instance: str) -> list[CommitOutcome]:
        """Applies each change whole or not at all. Large values are stored before the records that refer to them."""
        if self._payloads is not None:
            changes = await self._payloads.pack(changes)
        began = self._clock.elapsed()
        try:
            outcomes = await self._storage.commit(changes, instance)
        except StorageError:
            self._observer.commit_failed()
            raise
        self._observer.committed(changes, outcomes, self._clock.elapsed() - began)
        if self._payloads is not None:
            self._payloads.committed(changes, outcomes)
        return outcomes

    async def load(
        self, jobs: Sequence[str], tasks: Sequence[str] = ()
    ) -> tuple[list[Job | None], list[Task | None]]:
        """The newest applied records, in the order asked; None where there is none."""
        found_jobs, found_tasks = await self._storage.load(jobs, tasks)
        self._observer.loaded(found_jobs)
        if self._payloads is None:
            return found_jobs, found_tasks
        return (
            [None if job is None else await self._payloads.whole_job(job) for job in found_jobs],
            [None if task is None else await self._payloads.whole_task(task) for task in found_tasks],
        )

    async def tasks_of(self, job_id: str) -> list[Task]:
        """The stored tasks of a job, in dispatch order."""
        return await self._whole_tasks(await self._storage.tasks_of(job_id))

    async def get(self, job_ids: Sequence[str]) -> list[Job | None]:
        """The flushed jobs as clients see them: very large values only by size and checksum."""
        found = await self._storage.get(job_ids)
        if self._payloads is None:
            return found
        return [None if job is None else await self._payloads.shown(job) for job in found]

    async def claim_ready(
        self, instance: str, versions: Collection[Version], limit: int, lease_s: float
    ) -> list[Job]:
        """Claims jobs of the ready queue."""
        return await self._whole_jobs(await self._storage.claim_ready(instance, versions, limit, lease_s))

    async def claim_tasks(
        self, worker: Worker, lanes: Collection[QueueKey], limit: int, now: datetime
    ) -> TaskClaim:
        """Claims waiting tasks for a worker. A task whose params cannot be read goes to `on_broken_payload` instead."""
        while True:
            claimed, exhausted = await self._storage.claim_tasks(worker, lanes, limit, now)
            if claimed:
                self._observer.claimed(worker, claimed)
            tasks = [task for task in await self._whole_tasks(claimed) if self._is_readable(task)]
            if tasks or exhausted or not claimed:
                return TaskClaim(tasks, exhausted)

    async def held_by(self, worker_id: str) -> list[Task]:
        """The tasks that a worker holds. Params of started tasks are not read: they are never sent again."""
        held = await self._storage.held_by(worker_id)
        if self._payloads is None:
            return held
        tasks = [await self._payloads.held_task(task) for task in held]
        for task in tasks:
            self._is_readable(task)
        return tasks

    async def stranded(self, known: Collection[Version], limit: int) -> list[Job]:
        """Runnable jobs of other blueprint versions than these."""
        return await self._whole_jobs(await self._storage.stranded(known, limit))

    async def messages(self, limit: int) -> list[JobMessage]:
        """Stored messages between jobs, the oldest first."""
        found = await self._storage.messages(limit)
        if self._payloads is None:
            return found
        return [await self._payloads.whole_message(message) for message in found]

    async def _whole_jobs(self, jobs: list[Job]) -> list[Job]:
        return jobs if self._payloads is None else [await self._payloads.whole_job(job) for job in jobs]

    async def _whole_tasks(self, tasks: list[Task]) -> list[Task]:
        return tasks if self._payloads is None else [await self._payloads.whole_task(task) for task in tasks]

    def _is_readable(self, task: Task) -> bool:
        why = broken(task.params)
        if why is not None:
            self._on_broken_payload(task, why)
        return why is None
