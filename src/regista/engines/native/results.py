"""Results: fence a worker's word by its attempt, then say what follows. Pure."""

from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ...blueprint import machine, signals
from ...blueprint.step import Scene, Step
from ...clock import add_seconds, elapsed_ms
from ...errors import NotSerializable
from ...model import (
    AttemptState,
    Change,
    Event,
    EventType,
    FailureKind,
    Job,
    JobStatus,
    Task,
    TaskFailure,
    TaskResult,
    TaskWrite,
    job_id_of_task,
    split_attempt_id,
    was_accepted,
)
from ...serialization import safe_text, to_storable
from ..base import Verdict
from . import retries
from .retries import Cancel, Fail, Fate, Follow, Quarantine, Retry

_decode_result = msgspec.msgpack.Decoder(TaskResult).decode
#: Members that every result meets: to find one through its class costs more than to compare it.
_CANCELLING = JobStatus.CANCELLING
_STARTED, _CLOSED = AttemptState.STARTED, AttemptState.CLOSED
#: Only the first attempt was heard.
_FIRST = (1,)
_TASK_STARTED, _TASK_FINISHED = EventType.TASK_STARTED, EventType.TASK_FINISHED


class TaskStep(Struct, frozen=True, kw_only=True, gc=False):
    """A change of tasks alone: a retry, or the end of a branch. The job's record is not touched."""

    job_id: str
    #: The job's, as it was judged: a cancel that came since must not be undone by what was decided before it.
    revision: int
    tasks: tuple[TaskWrite, ...]
    closes_branches: int = 0
    events: tuple[Event, ...] = ()

    def then(self, other: "TaskStep") -> "TaskStep":
        """Both, as one write: branches of one job that end together."""
        return TaskStep(
            job_id=self.job_id,
            revision=self.revision,
            tasks=self.tasks + other.tasks,
            closes_branches=self.closes_branches + other.closes_branches,
            events=self.events + other.events,
        )

    def change(self, token: str) -> Change:
        """The write."""
        return Change(
            job_id=self.job_id,
            token=token,
            expected=self.revision,
            tasks=self.tasks,
            closes_branches=self.closes_branches,
            events=self.events,
        )


def sound(result: TaskResult) -> TaskResult:
    """The result as a store can keep it. One that it cannot is the worker's mistake, and a permanent failure."""
    try:
        result = to_storable(result, _decode_result, "the result")
        if result.started_at is not None and result.started_at.tzinfo is None:
            result = replace(result, started_at=None)  # nobody knows when that was
        if type(result.data) is dict:
            for key in result.data:
                if type(key) is not str:
                    raise NotSerializable("the result's data", "expected a dict with str keys")
    except NotSerializable as problem:
        failure = TaskFailure("PERMANENT_ERROR", safe_text(problem))
        return replace(result, status=None, data=None, error=failure)
    return result


def judge(job: Job | None, task: Task | None, result: TaskResult, scene: Scene) -> Verdict | Step | TaskStep:
    """What a result does: a change, or a word to the worker why there is none."""
    if job is None:
        return Verdict.JOB_NOT_FOUND
    if (job_id_of_task(result.task_id) if task is None else task.job_id) != job.id:
        return Verdict.STALE_TASK  # a result counts for the job of its attempt, whatever it says
    if task is None or task.attempt_id != result.task_id or task.state is _CLOSED:
        return _late(job, task, result.task_id)
    if result.worker_id and result.worker_id != task.worker_id:
        return Verdict.WORKER_MISMATCH  # another worker has the attempt, or it was never offered to any
    heard = (*task.accepted_attempts, task.attempt)
    if result.checkpoint is not None:
        task, result = replace(task, checkpoint=result.checkpoint), replace(result, checkpoint=None)
    fate = retries.fate_of_result(task, result, scene.now, scene.chance)
    events = (*_started(job, task, result), _reported(job, task, result, scene.now))
    return settle(job, task, result, fate, events, scene, heard)


def with_siblings(base: Job, step: Step, siblings: list[Task]) -> Step:
    """A branch that fails its job ends its siblings too: remember who of them was heard."""
    ended = {write.task.id: write.task for write in step.tasks}
    wave = tuple(ended.get(task.id, task) for task in siblings)
    return replace(step, job=replace(step.job, finished_tasks=machine.remember(base, wave)))


def _late(job: Job, task: Task | None, attempt_id: str) -> Verdict:
    """A result of an attempt that is over: one that was accepted is fine again, any other is stale."""
    task_id, number = split_attempt_id(attempt_id)
    heard = was_accepted(job, task_id, number) if task is None else number in task.accepted_attempts
    if heard:
        return Verdict.ACCEPTED
    if job.status is JobStatus.CANCELLED:
        return Verdict.JOB_CANCELLED
    return Verdict.JOB_ALREADY_TERMINATED if job.status.terminal else Verdict.STALE_TASK


def lost(job: Job, task: Task, kind: EventType, scene: Scene) -> Step | TaskStep:
    """The worker died with the attempt, or never got it. `kind` says which (FENCES 10, 14)."""
    event = _task_event(kind, job, task, scene.now)
    fate = retries.fate_of_lost(task, scene.now, scene.chance)
    result = _own_result(task, "failure", "LOST", "attempt lost")
    return settle(job, task, result, fate, (event,), scene, task.accepted_attempts)


def due(job: Job, task: Task, scene: Scene) -> Step | TaskStep | None:
    """The task's deadline has passed. None when it has not, after all."""
    now = scene.now
    if task.deadline is None or task.deadline > now:
        return None
    if task.result_by is not None and task.result_by <= now:
        return _timed_out(job, task, "result_timeout", "no result in time", scene)
    if task.state is AttemptState.QUEUED:
        if task.dispatch_by is not None and task.dispatch_by <= now:
            return _timed_out(job, task, "dispatch_timeout", "no worker took the task in time", scene)
        awake = replace(task, not_before=None, queued_at=now)
        return TaskStep(
            job_id=job.id,
            revision=job.revision,
            tasks=(TaskWrite(awake, task.attempt, (AttemptState.QUEUED,)),),
        )
    if task.attempt_timeout_s is None or (
        # The arithmetic of `Task.deadline`: whole microseconds, so that the two agree.
        task.offered_at and add_seconds(task.offered_at, task.attempt_timeout_s) > now
    ):
        return lost(job, task, EventType.TASK_LOST, scene)  # it went silent
    late = _own_result(task, "failure", "TIMEOUT_ERROR", f"no result within {task.attempt_timeout_s:g} s")
    event = _task_event(EventType.TASK_TIMED_OUT, job, task, now, code="attempt_timeout")
    fate = retries.fate_of_result(task, late, now, scene.chance)
    return settle(job, task, late, fate, (event,), scene, task.accepted_attempts)


def _timed_out(job: Job, task: Task, code: str, message: str, scene: Scene) -> Step | TaskStep:
    event = _task_event(EventType.TASK_TIMED_OUT, job, task, scene.now, code=code, message=message)
    result = _own_result(task, "timeout", code, message)
    fate = retries.fate_of_timeout(task, code, f"task {task.type!r}: {message}")
    return settle(job, task, result, fate, (event,), scene, task.accepted_attempts)


def settle(
    job: Job,
    task: Task,
    result: TaskResult,
    fate: Fate,
    events: tuple[Event, ...],
    scene: Scene,
    heard: tuple[int, ...],
) -> Step | TaskStep:
    """The fate of an attempt, as a change. `heard` are the attempts whose worker has spoken, maybe with this one."""
    if type(fate) is Retry and job.status is not _CANCELLING:
        again = replace(fate.task, accepted_attempts=heard)
        return TaskStep(
            job_id=job.id,
            revision=job.revision,
            tasks=(_write(again, task),),
            events=(*events, _retried(job, again, scene)),
        )
    if task.branch or job.status is _CANCELLING:
        closed = replace(task, state=_CLOSED, result=result, accepted_attempts=heard)
        if job.status is _CANCELLING:
            return _settle_cancelling(job, task, closed, events, scene)
        if not _fails_job(fate, result):
            # A branch's final failure is data for the aggregator (FENCES 8).
            return _branch_over(job, task, closed, events)
    else:
        closed = task  # it is dropped with this write, so only its fence counts
    step = _follow(job, task, result, fate, scene, heard)
    return replace(
        step, tasks=(_write(closed, task), *step.tasks), drop_tasks=True, events=(*events, *step.events)
    )


def _settle_cancelling(
    job: Job, task: Task, closed: Task, events: tuple[Event, ...], scene: Scene
) -> Step | TaskStep:
    """Cancel wins: whatever the worker says is recorded, not followed (FENCES 15)."""
    if task.branch:
        return _branch_over(job, task, closed, events)
    step = signals.cancelled(job, [closed], scene)
    return replace(step, tasks=(_write(closed, task),), events=(*events, *step.events))


def _branch_over(job: Job, task: Task, closed: Task, events: tuple[Event, ...]) -> TaskStep:
    """One branch less is open; the job itself is not touched."""
    return TaskStep(
        job_id=job.id,
        revision=job.revision,
        tasks=(_write(closed, task),),
        closes_branches=1,
        events=events,
    )


def _fails_job(fate: Fate, result: TaskResult) -> bool:
    code = result.error.code if result.error is not None else None
    return isinstance(fate, Fail) and FailureKind.of(code) is FailureKind.INVALID_INPUT


def _follow(
    job: Job, task: Task, result: TaskResult, fate: Fate, scene: Scene, heard: tuple[int, ...]
) -> Step:
    finished_tasks = machine.with_wave(job, task.id, 1, {} if heard == _FIRST else {task.index: heard})
    if isinstance(fate, Follow):
        return machine.follow(job, fate.to, scene, _merged(job, task, result), finished_tasks, fate.fault)
    job = replace(job, finished_tasks=finished_tasks)
    match fate:
        case Fail(fault):
            return machine.fail(job, fault, scene, failed_state=getattr(job.wait, "unhandled", None))
        case Quarantine(fault):
            return machine.quarantine(job, fault, scene)
        case Cancel():
            return machine.end(job, JobStatus.CANCELLED, scene)
        case Retry():  # settled before: a retry does not touch the job
            raise AssertionError(fate)


def _merged(job: Job, task: Task, result: TaskResult) -> dict[str, Any]:
    """A dict is merged into the job's data; anything else is kept under the name of the task's type."""
    if isinstance(result.data, dict):
        return {**job.data, **result.data}
    return job.data if result.data is None else {**job.data, task.type: result.data}


def _write(new: Task, old: Task) -> TaskWrite:
    """Only if the attempt is still as it was judged: what it has gone through meanwhile is judged anew."""
    return TaskWrite(new, old.attempt, (old.state,))


def _own_result(task: Task, status: str, code: str, message: str) -> TaskResult:
    """A result that we write ourselves, in place of a worker that was not heard."""
    return TaskResult(
        task_id=task.attempt_id, job_id=task.job_id, status=status, error=TaskFailure(code, message)
    )


def _started(job: Job, task: Task, result: TaskResult) -> tuple[Event, ...]:
    """`task_started` rides with the result when nothing carried it before."""
    if task.state is _STARTED:
        return ()
    at = result.started_at or task.offered_at or task.queued_at
    return () if at is None else (_task_event(_TASK_STARTED, job, task, at),)


def _reported(job: Job, task: Task, result: TaskResult, now: datetime) -> Event:
    began = result.started_at or task.started_at or task.offered_at or now
    error, outcome = result.error, result.outcome
    failed = error is not None or outcome == "failure"
    duration_ms = elapsed_ms(began, now)
    return Event(
        type=EventType.TASK_FAILED if failed else _TASK_FINISHED,
        at=now,
        state=job.state,
        status=outcome,
        task_id=task.id,
        attempt=task.attempt,
        worker_id=result.worker_id or task.worker_id,
        duration_ms=duration_ms,
        code=error.code if error is not None else None,
        message=error.message if error is not None else None,
        detail=_told(error, duration_ms / 1000 * task.price) if error is not None or task.price else {},
    )


def _told(error: TaskFailure | None, cost: float) -> dict[str, Any]:
    """What else there is to tell: the price, and what the worker said about its error."""
    detail: dict[str, Any] = {"cost": cost} if cost else {}
    if error is not None and error.details is not None:
        detail["error"] = error.details
    return detail


def _task_event(
    kind: EventType, job: Job, task: Task, at: datetime, code: str | None = None, message: str | None = None
) -> Event:
    return Event(
        type=kind,
        at=at,
        state=job.state,
        task_id=task.id,
        attempt=task.attempt,
        worker_id=task.worker_id,
        code=code,
        message=message,
    )


def _retried(job: Job, task: Task, scene: Scene) -> Event:
    event = _task_event(EventType.TASK_RETRIED, job, task, scene.now)
    if task.not_before is None:
        return event
    return replace(event, detail={"seconds": round((task.not_before - scene.now).total_seconds(), 3)})


def mark_started(job: Job, task: Task, at: datetime) -> TaskStep | None:
    """There is evidence that the worker has begun: an ack, progress, or its own list."""
    if task.state is not AttemptState.OFFERED:
        return None
    began = replace(task, state=AttemptState.STARTED, started_at=at, seen_at=at)
    event = _task_event(EventType.TASK_STARTED, job, task, at)
    write = TaskWrite(began, task.attempt, (AttemptState.OFFERED,))
    return TaskStep(job_id=job.id, revision=job.revision, tasks=(write,), events=(event,))
