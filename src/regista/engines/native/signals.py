"""JobSignals: changes of stored jobs and tasks that no turn of the executor makes. Load, decide, commit, repeat."""

import logging
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from ...clock import IdGenerator
from ...dispatch.dispatcher import Dispatcher
from ...errors import JobNotFound, NotSerializable, StorageError
from ...machine.step import DecisionContext, Step
from ...machine.task_results import TaskStep
from ...model import (
    HELD_STATES,
    Change,
    CommitStatus,
    EventType,
    Job,
    Task,
    job_id_of_task,
)
from ...model.audit import AuditedAction
from .contexts import ContextFactory
from .repository import JobRepository

log = logging.getLogger("regista.engine")

#: Losing a race this often means that something is wrong.
MAX_RACES = 1000
#: Events that a person or client causes; they carry the actor.
_ACTOR_EVENTS = frozenset(
    {
        EventType.CANCEL_REQUESTED,
        EventType.APPROVAL_GIVEN,
        EventType.JOB_RELEASED,
        EventType.JOB_FINISHED,
    }
)

Decide = Callable[[Job, list[Task], DecisionContext], Step | TaskStep | None]
DecideTask = Callable[[Job, Task, DecisionContext], Step | TaskStep | None]


class JobSignals:
    """Commits decisions about stored jobs and tasks; decides again when another writer was first."""

    def __init__(
        self,
        repository: JobRepository,
        dispatcher: Dispatcher,
        contexts: ContextFactory,
        ids: IdGenerator,
        instance: str,
    ) -> None:
        self._repository = repository
        self._dispatcher = dispatcher
        self._contexts = contexts
        self._ids = ids
        self._instance = instance

    async def signal(
        self,
        job_id: str,
        decide: Decide,
        consumes_message: str | None = None,
        by: AuditedAction | None = None,
    ) -> Job:
        """Changes one job; returns the job as stored. Where `decide` returns None nothing changes. JobNotFound."""
        for _ in range(MAX_RACES):
            (job,), _ = await self._repository.load([job_id])
            if job is None:
                raise JobNotFound(job_id)
            tasks = await self._repository.tasks_of(job_id)
            step = decide(job, tasks, self._contexts.new(job))
            if step is None:
                if consumes_message is not None:
                    await self.consume(job_id, consumes_message)
                (stored,) = await self._repository.get([job_id])
                if stored is None:
                    raise JobNotFound(job_id)
                return stored
            change = self._change(step, job, consumes_message)
            if by is not None:
                change = with_actor(change, by)
            (outcome,) = await self._repository.commit([change], self._instance)
            if outcome.ok:
                self._cancel_attempts(tasks, change)
                return change.job if change.job is not None else job
            if outcome.kind is CommitStatus.UNSTORABLE:
                raise NotSerializable(f"job {job_id}", outcome.reason)
        raise StorageError(f"job {job_id}: lost {MAX_RACES} races in a row")

    async def signal_tasks(self, task_ids: Sequence[str], decide: DecideTask) -> int:
        """Changes single tasks of any jobs with one load and one commit; returns how many were changed.

        The siblings of a task are not loaded, so a task of a job with ten thousand branches costs no more.
        """
        left = list(dict.fromkeys(task_ids))
        changed = 0
        for _ in range(MAX_RACES):
            changes = await self._decide_tasks(left, decide)
            if not changes:
                return changed
            outcomes = await self._repository.commit([change for _, change in changes], self._instance)
            left = []
            for (task, change), outcome in zip(changes, outcomes, strict=True):
                if outcome.ok:
                    changed += 1
                    self._cancel_attempts([task], change)
                elif outcome.kind is CommitStatus.STALE:
                    left.append(task.id)
        raise StorageError(f"lost {MAX_RACES} races in a row over {left[:3]}")

    async def write(self, step: TaskStep) -> bool:
        """Commits a change of tasks only. False when a task was changed meanwhile."""
        (outcome,) = await self._repository.commit([step.change(self._ids.new_token())], self._instance)
        return outcome.ok

    async def consume(self, job_id: str, message_id: str) -> None:
        """Removes a message that changes nothing."""
        change = Change(job_id=job_id, token=self._ids.new_token(), consumes_message=message_id)
        await self._repository.commit([change], self._instance)

    async def _decide_tasks(self, task_ids: list[str], decide: DecideTask) -> list[tuple[Task, Change]]:
        changes: list[tuple[Task, Change]] = []
        for job, task in await self._load_readable(task_ids):
            if job is None or task is None:
                continue
            step = decide(job, task, self._contexts.new(job))
            if step is not None:
                changes.append((task, self._change(step, job, None)))
        return changes

    async def _load_readable(self, task_ids: list[str]) -> list[tuple[Job | None, Task | None]]:
        """Tasks and their jobs. A record that cannot be decoded is logged and left out."""
        try:
            jobs, tasks = await self._repository.load([job_id_of_task(each) for each in task_ids], task_ids)
        except msgspec.MsgspecError as error:
            if len(task_ids) == 1:
                fields = {"action": "unreadable", "job_id": job_id_of_task(task_ids[0])}
                log.error("task %s cannot be read and is left alone: %s", task_ids[0], error, extra=fields)
                return []
            return [pair for task_id in task_ids for pair in await self._load_readable([task_id])]
        return list(zip(jobs, tasks, strict=True))

    def _change(self, step: Step | TaskStep, job: Job, consumes_message: str | None) -> Change:
        if isinstance(step, TaskStep):
            return step.change(self._ids.new_token())
        return step.change(job, self._ids.new_token(), consumes_message=consumes_message)

    def _cancel_attempts(self, tasks: list[Task], change: Change) -> None:
        """Tells workers to stop attempts that this change closed. Their slots stay taken until they confirm."""
        moved = {write.task.id for write in change.tasks if write.task.attempt != write.attempt}
        for task in tasks:
            if task.state in HELD_STATES and (change.drop_tasks or task.id in moved):
                self._dispatcher.cancel(task.worker_id, [task.attempt_id])


def with_actor(change: Change, action: AuditedAction) -> Change:
    """The change with its actor in the events, and with the audit record of the action."""
    events = tuple(
        replace(event, actor=action.actor) if event.type in _ACTOR_EVENTS else event
        for event in change.events
    )
    return replace(change, events=events, records=(*change.records, action.record))
