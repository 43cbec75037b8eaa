"""RecordOffloader: keeps large values of records in the payload store, and puts them back when records are read.

The engine sees every value as if it were stored in the record. Clients see small ones, and a size with a checksum in the
place of very large ones. Records without large values are not copied.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from ..errors import FileMissing
from ..model import AttemptState, Change, ChildJob, CommitOutcome, Event, Job, JobMessage, Task, TaskWrite
from .base import MARK, broken, refs_of
from .offload import Offloader, shown, unfetched

#: A value up to this size is shown whole by `shown`; a larger one as a size and a checksum.
SHOW_BYTES = 1024 * 1024


class RecordOffloader:
    """Implements `payloads.base.PayloadOffloader`."""

    def __init__(self, offloader: Offloader) -> None:
        self._offload = offloader

    # -- writing ---------------------------------------------------------------------------------

    async def pack(self, changes: Sequence[Change]) -> Sequence[Change]:
        """The changes with large values stored elsewhere. The values are stored first, so no reference leads nowhere."""
        needs_offload = [index for index, change in enumerate(changes) if self._heavy(change)]
        if not needs_offload:
            return changes
        packed = list(changes)
        found = await asyncio.gather(*(self._pack(changes[index]) for index in needs_offload))
        for index, change in zip(needs_offload, found, strict=True):
            packed[index] = change
        return packed

    def committed(self, changes: Sequence[Change], outcomes: Sequence[CommitOutcome]) -> None:
        """Values of refused changes and of ended jobs may be removed; they are stored again when they are needed."""
        for change, outcome in zip(changes, outcomes, strict=True):
            if not outcome.ok or (change.job is not None and change.job.status.terminal):
                for owner in (change.job_id, *(child.job.id for child in change.children)):
                    self._offload.fresh.drop(owner)

    def _heavy(self, change: Change) -> bool:
        needs_offload, job = self._offload.needs_offload, change.job
        if job is not None and (
            needs_offload(job.input) or needs_offload(job.data) or needs_offload(job.result)
        ):
            return True
        for write in change.tasks:
            result = write.task.result
            if needs_offload(write.task.params) or (result is not None and needs_offload(result.data)):
                return True
        # A child has its input from what its parent knows, which may be gone by the end of the same step.
        for birth in change.children:
            if needs_offload(birth.job.input):
                return True
        for event in change.events:  # noqa: SIM110  # twice as quick, for every commit
            if event.snapshot and needs_offload(event.snapshot):
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

    # -- reading, for decisions ------------------------------------------------------------------

    async def whole_job(self, job: Job) -> Job:
        """The job with all its values."""
        if not is_kept(job):
            return job
        unpack = self._offload.unpack
        return replace(
            job,
            input=await unpack(job.id, job.input),
            data=await unpack(job.id, job.data),
            result=await unpack(job.id, job.result),
        )

    async def whole_task(self, task: Task) -> Task:
        """The task with all its values."""
        if MARK in task.params:
            task = replace(task, params=await self._offload.unpack(task.job_id, task.params))
        result = task.result
        if result is not None and isinstance(result.data, dict) and MARK in result.data:
            data = await self._offload.unpack(task.job_id, result.data)
            task = replace(task, result=replace(result, data=data))
        return task

    async def held_task(self, task: Task) -> Task:
        """A task that a worker holds. Params are read only where the task may have to be sent again."""
        if task.state is AttemptState.OFFERED:
            return await self.whole_task(task)
        if MARK in task.params:
            return replace(task, params=unfetched(task.job_id, task.params))
        return task

    async def whole_message(self, message: JobMessage) -> JobMessage:
        """The message with all its values; a value that cannot be read is replaced by its size and checksum."""
        stored = message.body.get("result")
        if not (isinstance(stored, dict) and MARK in stored):
            return message
        result = await self._offload.unpack(message.from_job, stored)
        if broken(result) is not None:  # a reference deep in the parent's data would not be followed
            result = shown(message.from_job, stored)
        return replace(message, body={**message.body, "result": result})

    # -- reading, for clients --------------------------------------------------------------------

    async def shown(self, job: Job) -> Job:
        """The job as clients see it: very large values only by size and checksum."""
        return job if not is_kept(job) else await self._show(job, SHOW_BYTES)

    async def complete(self, job: Job) -> Job:
        """The stored job with every value, whatever its size."""
        return job if not is_kept(job) else await self._show(job, None)

    def at_a_glance(self, job: Job) -> Job:
        """The job with all large values by size and checksum only; nothing is read."""
        return job if not is_kept(job) else _at_a_glance(job)

    def is_large(self, job: Job) -> bool:
        """A job that was just written has values that clients see in another form."""
        needs_offload = self._offload.needs_offload
        return needs_offload(job.input) or needs_offload(job.data) or needs_offload(job.result)

    async def value(self, job: Job, sha256: str) -> Any:
        """One large value of a stored job by its checksum; FileMissing."""
        for ref in [*refs_of(job.input), *refs_of(job.data), *refs_of(job.result)]:
            if ref.sha256 == sha256:
                return await self._offload.fetch(job.id, ref)
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
