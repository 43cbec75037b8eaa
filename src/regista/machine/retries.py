"""What follows from the end of an attempt, as a value: retry, transition, failure, quarantine or cancel."""

from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from ..model import AttemptState, FailureKind, Fault, RetryPolicy, Task, TaskFailure, TaskResult
from .step import retry_at

#: Seconds before an attempt that follows the second loss and later ones.
_PAUSES_AFTER_LOSSES = RetryPolicy(first_s=1.0, factor=2.0, cap_s=60.0)


class RetryTask(Struct, frozen=True, gc=False):
    """Another attempt. `task` is the task as it is queued again."""

    task: Task


class FollowTransition(Struct, frozen=True, gc=False):
    """The task is over and the job enters `to`. `fault` is the error of the task, if it failed."""

    to: str
    fault: Fault | None = None


class FailJob(Struct, frozen=True, gc=False):
    """The job fails (through the state `failed` where there is one)."""

    fault: Fault


class QuarantineJob(Struct, frozen=True, gc=False):
    """The job is quarantined."""

    fault: Fault


class CancelJob(Struct, frozen=True, gc=False):
    """The worker reported the task as cancelled, and the task has no transition for that."""


AttemptOutcome = RetryTask | FollowTransition | FailJob | QuarantineJob | CancelJob


def after_result(task: Task, result: TaskResult, now: datetime, random: float) -> AttemptOutcome:
    """What follows from a worker's result."""
    status, transitions = result.outcome, task.transitions
    if result.error is not None or (status == "failure" and "failure" not in transitions):
        return _after_failure(task, result.error or TaskFailure("TRANSIENT_ERROR"), now, random)
    if status in transitions:
        return FollowTransition(transitions[status])
    if status == "cancelled":
        return CancelJob()
    known = ", ".join(sorted(transitions))
    return FailJob(
        Fault("unknown_status", f"task {task.type!r} returned {status!r}; expected one of {known}")
    )


def _after_failure(task: Task, error: TaskFailure, now: datetime, random: float) -> AttemptOutcome:
    kind = FailureKind.of(error.code)
    fault = Fault(error.code or kind.value, error.message)
    runs = task.failed_runs + 1
    if kind is FailureKind.TRANSIENT and runs < task.retry.max_attempts:
        pause = retry_at(now, task.retry, runs, random)
        return RetryTask(next_attempt(task, now, failed_runs=runs, not_before=pause))
    target = task.transitions.get(error.code) or task.transitions.get(kind.value)
    if target is not None:
        return FollowTransition(target, fault)
    return FailJob(fault) if kind is FailureKind.INVALID_INPUT else QuarantineJob(fault)


def after_loss(task: Task, now: datetime, random: float) -> AttemptOutcome:
    """The worker was lost or never received the attempt. Lost attempts have a budget of their own (FENCES 14).

    The first loss is retried at once. Each further one waits longer: a task that ends its workers must not take all
    of them in turn.
    """
    lost = task.lost_runs + 1
    if lost <= task.retry.lost_budget:
        pause = None if lost == 1 else retry_at(now, _PAUSES_AFTER_LOSSES, lost - 1, random)
        return RetryTask(next_attempt(task, now, lost_runs=lost, not_before=pause))
    message = f"{lost} attempts of task {task.type!r} were lost; expected at most {task.retry.lost_budget}"
    return QuarantineJob(Fault("lost", message))


def after_timeout(task: Task, code: str, message: str) -> AttemptOutcome:
    """A deadline of the whole task has passed: the transition named `timeout`, else the job fails."""
    fault = Fault(code, message)
    target = task.transitions.get("timeout")
    return FollowTransition(target, fault) if target is not None else FailJob(fault)


def next_attempt(
    task: Task,
    now: datetime,
    *,
    failed_runs: int | None = None,
    lost_runs: int | None = None,
    not_before: datetime | None = None,
) -> Task:
    """The task with a new attempt, queued again (or paused until `not_before`)."""
    return replace(
        task,
        attempt=task.attempt + 1,
        state=AttemptState.QUEUED,
        worker_id=None,
        session=0,
        queued_at=now,
        not_before=not_before,
        offered_at=None,
        started_at=None,
        seen_at=None,
        progress=None,
        progress_message="",
        failed_runs=task.failed_runs if failed_runs is None else failed_runs,
        lost_runs=task.lost_runs if lost_runs is None else lost_runs,
    )
