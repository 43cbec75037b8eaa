"""The fate of an attempt, as a value. Pure: what happened + what the task allows → what follows."""

from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from ...blueprint.step import retry_at
from ...model import AttemptState, FailureKind, Fault, RetryPolicy, Task, TaskFailure, TaskResult

#: Seconds before an attempt that follows the second loss and later ones.
_PAUSES_AFTER_LOSSES = RetryPolicy(first_s=1.0, factor=2.0, cap_s=60.0)


class Retry(Struct, frozen=True, gc=False):
    """Another attempt: the task as it goes back to its lane."""

    task: Task


class Follow(Struct, frozen=True, gc=False):
    """The task is over and the job goes on in `to`; `fault` says what is wrong, if something is."""

    to: str
    fault: Fault | None = None


class Fail(Struct, frozen=True, gc=False):
    """The job fails (through the state `failed` where there is one)."""

    fault: Fault


class Quarantine(Struct, frozen=True, gc=False):
    """The job waits for a person."""

    fault: Fault


class Cancel(Struct, frozen=True, gc=False):
    """The worker gave the task up as cancelled, and nothing says where to go then."""


Fate = Retry | Follow | Fail | Quarantine | Cancel


def fate_of_result(task: Task, result: TaskResult, now: datetime, chance: float) -> Fate:
    """What follows from a worker's word. DESIGN section 5, rules."""
    status, ways = result.outcome, task.transitions
    if result.error is not None or (status == "failure" and "failure" not in ways):
        return _fate_of_failure(task, result.error or TaskFailure("TRANSIENT_ERROR"), now, chance)
    if status in ways:
        return Follow(ways[status])
    if status == "cancelled":
        return Cancel()
    known = ", ".join(sorted(ways))
    return Fail(Fault("unknown_status", f"task {task.type!r} returned {status!r}; expected one of {known}"))


def _fate_of_failure(task: Task, error: TaskFailure, now: datetime, chance: float) -> Fate:
    kind = FailureKind.of(error.code)
    fault = Fault(error.code or kind.value, error.message)
    runs = task.failed_runs + 1
    if kind is FailureKind.TRANSIENT and runs < task.retry.max_attempts:
        pause = retry_at(now, task.retry, runs, chance)
        return Retry(next_attempt(task, now, failed_runs=runs, not_before=pause))
    way = task.transitions.get(error.code) or task.transitions.get(kind.value)
    if way is not None:
        return Follow(way, fault)
    return Fail(fault) if kind is FailureKind.INVALID_INPUT else Quarantine(fault)


def fate_of_lost(task: Task, now: datetime, chance: float) -> Fate:
    """The worker is gone, or never got it: no run is spent, but patience is (FENCES 14).

    The first loss is made up for at once. Each further one waits longer: a task that ends its workers must not take all
    of them in turn.
    """
    lost = task.lost_runs + 1
    if lost <= task.retry.lost_budget:
        pause = None if lost == 1 else retry_at(now, _PAUSES_AFTER_LOSSES, lost - 1, chance)
        return Retry(next_attempt(task, now, lost_runs=lost, not_before=pause))
    message = f"{lost} attempts of task {task.type!r} were lost; expected at most {task.retry.lost_budget}"
    return Quarantine(Fault("lost", message))


def fate_of_timeout(task: Task, code: str, message: str) -> Fate:
    """A deadline of the whole task has passed: the way named `timeout`, else the job fails."""
    fault = Fault(code, message)
    way = task.transitions.get("timeout")
    return Follow(way, fault) if way is not None else Fail(fault)


def next_attempt(
    task: Task,
    now: datetime,
    *,
    failed_runs: int | None = None,
    lost_runs: int | None = None,
    not_before: datetime | None = None,
) -> Task:
    """The task under a new attempt, back in its lane (or paused until `not_before`)."""
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
