"""Task results as steps: a result, a loss or a timeout of an attempt, fenced by the attempt. Pure."""

from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..clock import add_seconds, elapsed_ms
from ..errors import NotSerializable
from ..model import (
    HELD_STATES,
    AttemptState,
    Change,
    Event,
    EventType,
    FailureKind,
    Job,
    JobStatus,
    ResultVerdict,
    Task,
    TaskFailure,
    TaskResult,
    TaskWrite,
    job_id_of_task,
    split_attempt_id,
    was_accepted,
)
from ..serialization import safe_text, to_storable
from . import retries, signals, transitions
from .retries import AttemptOutcome, CancelJob, FailJob, FollowTransition, QuarantineJob, RetryTask
from .step import DecisionContext, Step

_decode_result = msgspec.msgpack.Decoder(TaskResult).decode


class TaskStep(Struct, frozen=True, kw_only=True, gc=False):
    """A change of tasks only: a retry, or the end of a branch. The job record is not written."""

    job_id: str
    #: Revision of the job that was read: a cancel since then must not be undone by this change.
    revision: int
    tasks: tuple[TaskWrite, ...]
    closes_branches: int = 0
    events: tuple[Event, ...] = ()

    def then(self, other: "TaskStep") -> "TaskStep":
        """Both changes as one write: branches of one job that end in the same turn."""
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


def storable_result(result: TaskResult) -> TaskResult:
    """The result with values that a store can keep. A result that it cannot keep becomes a permanent failure."""
    try:
        result = to_storable(result, _decode_result, "the result")
        if result.started_at is not None and result.started_at.tzinfo is None:
            result = replace(result, started_at=None)  # an instant without a zone is unknown
        if isinstance(result.data, dict):
            for key in result.data:
                if not isinstance(key, str):
                    raise NotSerializable("the result's data", "expected a dict with str keys")
    except NotSerializable as problem:
        failure = TaskFailure("PERMANENT_ERROR", safe_text(problem))
        return replace(result, status=None, data=None, error=failure)
    return result


def apply_result(
    job: Job | None, task: Task | None, result: TaskResult, context: DecisionContext
) -> ResultVerdict | Step | TaskStep:
    """What a result does: a change, or the verdict that tells the worker why there is none."""
    if job is None:
        return ResultVerdict.JOB_NOT_FOUND
    if (job_id_of_task(result.task_id) if task is None else task.job_id) != job.id:
        return ResultVerdict.STALE_TASK  # a result counts only for the job of its attempt
    if task is None or task.attempt_id != result.task_id or task.state is AttemptState.CLOSED:
        return _late(job, task, result.task_id)
    if result.worker_id and result.worker_id != task.worker_id:
        return ResultVerdict.WORKER_MISMATCH  # another worker has the attempt, or it was never offered to any
    accepted = (*task.accepted_attempts, task.attempt)
    if result.checkpoint is not None:
        task, result = replace(task, checkpoint=result.checkpoint), replace(result, checkpoint=None)
    outcome = retries.after_result(task, result, context.now, context.random)
    events = (*_started(job, task, result), _reported(job, task, result, context.now))
    return close_attempt(job, task, result, outcome, events, context, accepted)


def with_siblings(base: Job, step: Step, siblings: list[Task]) -> Step:
    """A branch that fails its job ends its siblings too: keeps which of their attempts were accepted."""
    ended = {write.task.id: write.task for write in step.tasks}
    wave = tuple(ended.get(task.id, task) for task in siblings)
    return replace(step, job=replace(step.job, finished_tasks=transitions.with_finished_tasks(base, wave)))


def is_held(task: Task | None, result: TaskResult) -> bool:
    """Whether the sender of this result still holds its attempt."""
    return (
        task is not None
        and task.attempt_id == result.task_id
        and task.worker_id == result.worker_id
        and task.state in HELD_STATES
    )


def _late(job: Job, task: Task | None, attempt_id: str) -> ResultVerdict:
    """A result of a closed attempt: accepted again if it was accepted before, else stale."""
    task_id, number = split_attempt_id(attempt_id)
    accepted = was_accepted(job, task_id, number) if task is None else number in task.accepted_attempts
    if accepted:
        return ResultVerdict.ACCEPTED
    if job.status is JobStatus.CANCELLED:
        return ResultVerdict.JOB_CANCELLED
    return ResultVerdict.JOB_ALREADY_TERMINATED if job.status.terminal else ResultVerdict.STALE_TASK


def lost(job: Job, task: Task, kind: EventType, context: DecisionContext) -> Step | TaskStep:
    """The attempt was lost with its worker, or never delivered. `kind` says which (FENCES 10, 14)."""
    event = _task_event(kind, job, task, context.now)
    outcome = retries.after_loss(task, context.now, context.random)
    result = _own_result(task, "failure", "LOST", "attempt lost")
    return close_attempt(job, task, result, outcome, (event,), context, task.accepted_attempts)


def attempt_due(job: Job, task: Task, context: DecisionContext) -> Step | TaskStep | None:
    """The deadline of the task has passed. None when it has not."""
    now = context.now
    if task.deadline is None or task.deadline > now:
        return None
    if task.result_by is not None and task.result_by <= now:
        return _timed_out(job, task, "result_timeout", "no result in time", context)
    if task.state is AttemptState.QUEUED:
        if task.dispatch_by is not None and task.dispatch_by <= now:
            return _timed_out(job, task, "dispatch_timeout", "no worker took the task in time", context)
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
        return lost(job, task, EventType.TASK_LOST, context)  # the worker sent no heartbeat for it
    late = _own_result(task, "failure", "TIMEOUT_ERROR", f"no result within {task.attempt_timeout_s:g} s")
    event = _task_event(EventType.TASK_TIMED_OUT, job, task, now, code="attempt_timeout")
    outcome = retries.after_result(task, late, now, context.random)
    return close_attempt(job, task, late, outcome, (event,), context, task.accepted_attempts)


def _timed_out(job: Job, task: Task, code: str, message: str, context: DecisionContext) -> Step | TaskStep:
    event = _task_event(EventType.TASK_TIMED_OUT, job, task, context.now, code=code, message=message)
    result = _own_result(task, "timeout", code, message)
    outcome = retries.after_timeout(task, code, f"task {task.type!r}: {message}")
    return close_attempt(job, task, result, outcome, (event,), context, task.accepted_attempts)


def close_attempt(
    job: Job,
    task: Task,
    result: TaskResult,
    outcome: AttemptOutcome,
    events: tuple[Event, ...],
    context: DecisionContext,
    accepted: tuple[int, ...],
) -> Step | TaskStep:
    """The end of an attempt as a change. `accepted` lists the attempts whose result was accepted, maybe with this one."""
    if isinstance(outcome, RetryTask) and job.status is not JobStatus.CANCELLING:
        again = replace(outcome.task, accepted_attempts=accepted)
        return TaskStep(
            job_id=job.id,
            revision=job.revision,
            tasks=(_write(again, task),),
            events=(*events, _retried(job, again, context)),
        )
    if task.branch or job.status is JobStatus.CANCELLING:
        closed = replace(task, state=AttemptState.CLOSED, result=result, accepted_attempts=accepted)
        if job.status is JobStatus.CANCELLING:
            return _settle_cancelling(job, task, closed, events, context)
        if not _fails_job(outcome, result):
            # A branch's final failure is data for the aggregator (FENCES 8).
            return _branch_over(job, task, closed, events)
    else:
        closed = task  # it is dropped with this write, so only its fence counts
    step = _follow(job, task, result, outcome, context, accepted)
    return replace(
        step, tasks=(_write(closed, task), *step.tasks), drop_tasks=True, events=(*events, *step.events)
    )


def _settle_cancelling(
    job: Job, task: Task, closed: Task, events: tuple[Event, ...], context: DecisionContext
) -> Step | TaskStep:
    """Cancel wins: the result is recorded and not followed (FENCES 15)."""
    if task.branch:
        return _branch_over(job, task, closed, events)
    step = signals.cancelled(job, [closed], context)
    return replace(step, tasks=(_write(closed, task),), events=(*events, *step.events))


def _branch_over(job: Job, task: Task, closed: Task, events: tuple[Event, ...]) -> TaskStep:
    """Closes one branch; the job record is not written."""
    return TaskStep(
        job_id=job.id,
        revision=job.revision,
        tasks=(_write(closed, task),),
        closes_branches=1,
        events=events,
    )


def _fails_job(outcome: AttemptOutcome, result: TaskResult) -> bool:
    code = result.error.code if result.error is not None else None
    return isinstance(outcome, FailJob) and FailureKind.of(code) is FailureKind.INVALID_INPUT


def _follow(
    job: Job,
    task: Task,
    result: TaskResult,
    outcome: AttemptOutcome,
    context: DecisionContext,
    accepted: tuple[int, ...],
) -> Step:
    finished_tasks = transitions.add_finished_tasks(
        job, task.id, 1, {} if accepted == (1,) else {task.index: accepted}
    )
    if isinstance(outcome, FollowTransition):
        return transitions.enter_after_result(
            job, outcome.to, context, _merged(job, task, result), finished_tasks, outcome.fault
        )
    job = replace(job, finished_tasks=finished_tasks)
    match outcome:
        case FailJob(fault):
            return transitions.fail(job, fault, context, failed_state=getattr(job.wait, "unhandled", None))
        case QuarantineJob(fault):
            return transitions.quarantine(job, fault, context)
        case CancelJob():
            return transitions.end(job, JobStatus.CANCELLED, context)
        case RetryTask():  # settled before: a retry does not touch the job
            raise AssertionError(outcome)


def _merged(job: Job, task: Task, result: TaskResult) -> dict[str, Any]:
    """A dict is merged into the job's data; anything else is kept under the name of the task's type."""
    if isinstance(result.data, dict):
        return {**job.data, **result.data}
    return job.data if result.data is None else {**job.data, task.type: result.data}


def _write(new: Task, old: Task) -> TaskWrite:
    """Applies only if the attempt is still in the state that was read."""
    return TaskWrite(new, old.attempt, (old.state,))


def _own_result(task: Task, status: str, code: str, message: str) -> TaskResult:
    """A result written by the orchestrator for a worker that sent none."""
    return TaskResult(
        task_id=task.attempt_id, job_id=task.job_id, status=status, error=TaskFailure(code, message)
    )


def _started(job: Job, task: Task, result: TaskResult) -> tuple[Event, ...]:
    """`task_started` rides with the result when nothing current_context it before."""
    if task.state is AttemptState.STARTED:
        return ()
    at = result.started_at or task.offered_at or task.queued_at
    return () if at is None else (_task_event(EventType.TASK_STARTED, job, task, at),)


def _reported(job: Job, task: Task, result: TaskResult, now: datetime) -> Event:
    began = result.started_at or task.started_at or task.offered_at or now
    error, outcome = result.error, result.outcome
    failed = error is not None or outcome == "failure"
    duration_ms = elapsed_ms(began, now)
    return Event(
        type=EventType.TASK_FAILED if failed else EventType.TASK_FINISHED,
        at=now,
        state=job.state,
        status=outcome,
        task_id=task.id,
        attempt=task.attempt,
        worker_id=result.worker_id or task.worker_id,
        duration_ms=duration_ms,
        code=error.code if error is not None else None,
        message=error.message if error is not None else None,
        detail=_event_detail(error, duration_ms / 1000 * task.price)
        if error is not None or task.price
        else {},
    )


def _event_detail(error: TaskFailure | None, cost: float) -> dict[str, Any]:
    """Detail of the event: the cost, and the worker's error details."""
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


def _retried(job: Job, task: Task, context: DecisionContext) -> Event:
    event = _task_event(EventType.TASK_RETRIED, job, task, context.now)
    if task.not_before is None:
        return event
    return replace(event, detail={"seconds": round((task.not_before - context.now).total_seconds(), 3)})


def mark_started(job: Job, task: Task, at: datetime) -> TaskStep | None:
    """The worker has begun: it acknowledged, sent progress, or lists the attempt. None when that is known."""
    if task.state is not AttemptState.OFFERED:
        return None
    began = replace(task, state=AttemptState.STARTED, started_at=at, seen_at=at)
    event = _task_event(EventType.TASK_STARTED, job, task, at)
    write = TaskWrite(began, task.attempt, (AttemptState.OFFERED,))
    return TaskStep(job_id=job.id, revision=job.revision, tasks=(write,), events=(event,))
