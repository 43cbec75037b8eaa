"""KeptRecords: stands before a store, and keeps large values out of it.

Deciders (executor, dispatcher, workers) see every value as if it had been stored whole. Strangers see small
ones, and a size with a checksum in the place of very large ones. Records without large values pass untouched.
"""

import asyncio
import sys
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Any, cast

from msgspec.structs import replace

from ..clock import Clock
from ..errors import FileMissing
from ..model import (
    AttemptState,
    Change,
    ChildJob,
    CommitOutcome,
    Event,
    Job,
    JobMessage,
    QueueKey,
    Task,
    TaskWrite,
    Worker,
)
from ..storage.base import StorageBackend, TaskClaim, Version
from .base import MARK, Broken, Payloads, broken, refs_of
from .offload import Offloader, shown, unfetched

#: A value up to this size is shown whole by `get`; a larger one as a size and a checksum.
SHOW_BYTES = 1024 * 1024


class KeptRecords:
    """Only the intentions below are looked at; all others are the store's own methods."""

    def __init__(self, storage: StorageBackend, offloader: Offloader) -> None:
        self._inner = storage
        self._offload = offloader
        #: Called with a task whose params cannot be had (any more): somebody must fail it.
        self.on_broken: Callable[[Task, Broken], None] = lambda task, why: None

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if callable(found):  # kept for the next time: the store's own method costs the same as without us
            self.__dict__[name] = found
        return found

    # -- writing ---------------------------------------------------------------------------------

    async def commit(self, changes: Sequence[Change], instance: str) -> list[CommitOutcome]:
        """Put large values away first: a reference never leads nowhere."""
        heavy = [index for index, change in enumerate(changes) if self._heavy(change)]
        if heavy:
            packed = list(changes)
            found = await asyncio.gather(*(self._pack(changes[index]) for index in heavy))
            for index, change in zip(heavy, found, strict=True):
                packed[index] = change
            changes = packed
        outcomes = await self._inner.commit(changes, instance)
        for index in heavy:
            self._note(changes[index], outcomes[index])
        return outcomes

    def _note(self, change: Change, outcome: CommitOutcome) -> None:
        """What was put away for a record that nobody has, or soon nobody, may be removed: it is written again."""
        if not outcome.ok or (change.job is not None and change.job.status.terminal):
            for owner in (change.job_id, *(birth.job.id for birth in change.children)):
                self._offload.fresh.drop(owner)

    def _heavy(self, change: Change) -> bool:
        heavy, job = self._offload.heavy, change.job
        if job is not None and (heavy(job.input) or heavy(job.data) or heavy(job.result)):
            return True
        for write in change.tasks:
            result = write.task.result
            if heavy(write.task.params) or (result is not None and heavy(result.data)):
                return True
        # A child has its input from what its parent knows, which may be gone by the end of the same step.
        for birth in change.children:
            if heavy(birth.job.input):
                return True
        for event in change.events:  # noqa: SIM110  # twice as quick, for every commit
            if event.snapshot and heavy(event.snapshot):
                return True
        return False

    async def _pack(self, change: Change) -> Change:
        owner = change.job_id
        return replace(
            change,
            job=None if change.job is None else await self._pack_job(change.job),
            tasks=tuple([await self._pack_write(write) for write in change.tasks]),
            children=tuple(
                [ChildJob(await self._pack_job(each.job), each.events) for each in change.children]
            ),
            messages=tuple([await self._pack_message(owner, each) for each in change.messages]),
            events=tuple([await self._pack_event(owner, each) for each in change.events]),
        )

    async def _pack_job(self, job: Job) -> Job:
        pack = self._offload.pack
        return replace(
            job,
            input=await pack(job.id, job.input),
            data=await pack(job.id, job.data),
            result=await pack(job.id, job.result),
        )

    async def _pack_write(self, write: TaskWrite) -> TaskWrite:
        task, pack = write.task, self._offload.pack
        result = task.result
        if result is not None:
            result = replace(result, data=await pack(task.job_id, result.data))
        task = replace(task, params=await pack(task.job_id, task.params), result=result)
        return replace(write, task=task)

    async def _pack_message(self, owner: str, message: JobMessage) -> JobMessage:
        """What a child tells its parent lies with the child."""
        if "result" not in message.body:
            return message
        result = await self._offload.pack(owner, message.body["result"])
        return replace(message, body={**message.body, "result": result})

    async def _pack_event(self, owner: str, event: Event) -> Event:
        """History tells of a large value, and does not keep a copy of it."""
        if event.snapshot is None:
            return event
        return replace(event, snapshot=shown(owner, await self._offload.pack(owner, event.snapshot)))

    # -- reading, for deciders -------------------------------------------------------------------

    async def load(
        self, jobs: Sequence[str], tasks: Sequence[str] = ()
    ) -> tuple[list[Job | None], list[Task | None]]:
        """Load, and fetch what lies elsewhere."""
        found, todo = await self._inner.load(jobs, tasks)
        return [await self._whole(job) for job in found], [await self._whole_task(task) for task in todo]

    async def claim_ready(
        self, instance: str, versions: Collection[Version], limit: int, lease_s: float
    ) -> list[Job]:
        """Claim, and fetch what lies elsewhere."""
        return await self._whole_jobs(await self._inner.claim_ready(instance, versions, limit, lease_s))

    async def tasks_of(self, job_id: str) -> list[Task]:
        """The tasks, with what lies elsewhere."""
        return await self._whole_tasks(await self._inner.tasks_of(job_id))

    async def claim_tasks(
        self, worker: Worker, lanes: Collection[QueueKey], limit: int, now: datetime
    ) -> TaskClaim:
        """Claim, and fetch what lies elsewhere. Tasks whose payload is broken go to `on_broken` instead of the worker."""
        while True:
            found, exhausted = await self._inner.claim_tasks(worker, lanes, limit, now)
            tasks = await self._whole_tasks(found)
            sound = [task for task in tasks if self._is_sound(task)]
            if sound or exhausted or not found:
                return TaskClaim(sound, exhausted)

    def _is_sound(self, task: Task) -> bool:
        why = broken(task.params)
        if why is not None:
            self.on_broken(task, why)
        return why is None

    async def held_by(self, worker_id: str) -> list[Task]:
        """What a worker has. What was only offered may have to be offered again, so it comes with its params.

        Asked at every heartbeat, and what has begun is never sent twice: that is not fetched.
        """
        held = await self._inner.held_by(worker_id)
        for index, task in enumerate(held):
            if task.state is AttemptState.OFFERED:
                held[index] = cast(Task, await self._whole_task(task))
                self._is_sound(held[index])
            elif MARK in task.params:
                held[index] = replace(task, params=unfetched(task.job_id, task.params))
        return held

    async def stranded(self, limit: int) -> list[Job]:
        """Jobs of versions that nobody attends, with what lies elsewhere."""
        return await self._whole_jobs(await self._inner.stranded(limit))

    async def messages(self, limit: int) -> list[JobMessage]:
        """The messages, with what lies elsewhere."""
        return [await self._whole_message(each) for each in await self._inner.messages(limit)]

    async def _whole_message(self, message: JobMessage) -> JobMessage:
        told = message.body.get("result")
        if not (isinstance(told, dict) and MARK in told):
            return message
        result = await self._offload.unpack(message.from_job, told)
        if broken(result) is not None:  # deep in the parent's data nobody would look for a reference
            result = shown(message.from_job, told)
        return replace(message, body={**message.body, "result": result})

    async def _whole_jobs(self, jobs: list[Job]) -> list[Job]:
        return [cast(Job, await self._whole(job)) for job in jobs]

    async def _whole(self, job: Job | None) -> Job | None:
        if job is None or not is_kept(job):
            return job
        unpack = self._offload.unpack
        return replace(
            job,
            input=await unpack(job.id, job.input),
            data=await unpack(job.id, job.data),
            result=await unpack(job.id, job.result),
        )

    async def _whole_tasks(self, tasks: list[Task]) -> list[Task]:
        return [cast(Task, await self._whole_task(task)) for task in tasks]

    async def _whole_task(self, task: Task | None) -> Task | None:
        if task is None:
            return None
        if MARK in task.params:
            task = replace(task, params=await self._offload.unpack(task.job_id, task.params))
        result = task.result
        if result is not None and isinstance(result.data, dict) and MARK in result.data:
            data = await self._offload.unpack(task.job_id, result.data)
            task = replace(task, result=replace(result, data=data))
        return task

    # -- reading, for strangers ------------------------------------------------------------------

    async def get(self, job_ids: Sequence[str]) -> list[Job | None]:
        """The jobs as clients may see them; what is very large, only by its size and checksum."""
        found = await self._inner.get(job_ids)
        return [
            job if job is None or not is_kept(job) else await self._show(job, SHOW_BYTES) for job in found
        ]

    async def whole(self, job: Job) -> Job:
        """A job that `get` has shown, with every value whole, whatever its size."""
        (stored,) = await self._inner.get([job.id])
        return job if stored is None or not is_kept(stored) else await self._show(stored, None)

    async def seen(self, job: Job) -> Job:
        """A job that was just written, as `get` would show it."""
        heavy = self._offload.heavy
        if heavy(job.input) or heavy(job.data) or heavy(job.result):
            (stored,) = await self.get([job.id])
            return stored or job
        return job

    async def value(self, job_id: str, sha256: str) -> Any:
        """One large value of a job, by its checksum; FileMissing when it has none with that."""
        (job,) = await self._inner.get([job_id])
        refs = [] if job is None else [*refs_of(job.input), *refs_of(job.data), *refs_of(job.result)]
        for ref in refs:
            if ref.sha256 == sha256:
                return await self._offload.fetch(job_id, ref)
        raise FileMissing(sha256)

    async def _show(self, job: Job, most: int | None) -> Job:
        return replace(
            job,
            input=await self._shown(job.id, job.input, most),
            data=await self._shown(job.id, job.data, most),
            result=await self._shown(job.id, job.result, most),
        )

    async def _shown(self, owner: str, value: Any, most: int | None) -> Any:
        if most is not None and sum(ref.size for ref in refs_of(value)) > most:
            return shown(owner, value)
        found = await self._offload.unpack(owner, value)
        return shown(owner, value) if broken(found) is not None else found


class Glance:
    """The store for whoever only looks at many jobs: nothing is fetched, large values are sizes and checksums."""

    def __init__(self, storage: StorageBackend) -> None:
        self._inner = storage

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if callable(found):
            self.__dict__[name] = found
        return found

    async def get(self, job_ids: Sequence[str]) -> list[Job | None]:
        """The jobs, at a glance."""
        found = await self._inner.get(job_ids)
        return [job if job is None or not is_kept(job) else _at_a_glance(job) for job in found]


def _at_a_glance(job: Job) -> Job:
    return replace(
        job,
        input=shown(job.id, job.input),
        data=shown(job.id, job.data),
        result=shown(job.id, job.result),
    )


def is_kept(job: Job) -> bool:
    """Some value of the record lies elsewhere."""
    result = job.result
    return MARK in job.input or MARK in job.data or (isinstance(result, dict) and MARK in result)


def keep_records(storage: StorageBackend, store: Payloads | None, limit: int, clock: Clock) -> StorageBackend:
    """The store with large values kept out of it; itself where there is nowhere else to keep them."""
    if store is None:
        return storage
    # With a limit of 0 nothing more is put away, and what was can still be read.
    return cast(StorageBackend, KeptRecords(storage, Offloader(store, limit or sys.maxsize, clock)))
