"""Explain, for jobs: what a job waits for, whoever or whatever that is. Pure."""

from collections.abc import Sequence
from datetime import datetime

from ..model import (
    AttemptState,
    AwaitBranches,
    AwaitChild,
    AwaitHuman,
    AwaitRetry,
    AwaitTask,
    AwaitTimer,
    AwaitVersion,
    Job,
    JobStatus,
    Task,
)
from .explain import Explanation, Reason

#: Open branches that are named one by one.
_BRANCHES = 5


def explain_job(job: Job, tasks: Sequence[Task], about: Sequence[Explanation] = ()) -> Explanation:
    """Why the job is where it is. `about` are the explanations of those of its tasks that wait."""
    summary, reasons = _told(job, tasks)
    since = job.waiting_since or job.updated_at
    found = [*reasons, *(reason for task in about for reason in task.reasons)]
    return Explanation(kind="job", id=job.id, summary=summary, since=since, reasons=tuple(found))


def _told(job: Job, tasks: Sequence[Task]) -> tuple[str, list[Reason]]:
    if job.status.terminal:
        return f"Job {job.id} has ended as {job.status} in state {job.state!r}.", _fault(job, "")
    if job.status is JobStatus.QUARANTINED:
        unblock = "release it, correct its data and release it, or fail it"
        return f"Job {job.id} is quarantined in state {job.state!r}.", _fault(job, unblock)
    if job.status is JobStatus.CANCELLING:
        return f"Job {job.id} is being cancelled.", [_cancelling(job, tasks)]
    match job.wait:
        case AwaitTask(task_id=task_id):
            return f"Job {job.id} waits for task {task_id}.", _tasks(tasks)
        case AwaitBranches() as wait:
            left = _open(tasks)
            text = f"Job {job.id} waits for {len(left)} of {wait.total} branches before {wait.aggregator!r}."
            return text, _branches(left)
        case None:
            return _running(job)
        case wait:
            return f"Job {job.id} {_waits(wait)[0]}.", [_waits(wait)[1]]


def _waits(wait: AwaitHuman | AwaitChild | AwaitTimer | AwaitRetry | AwaitVersion) -> tuple[str, Reason]:
    """The end of the sentence, and the reason."""
    match wait:
        case AwaitHuman():
            choices = ", ".join(sorted(wait.transitions))
            unblock = f"decide: POST /api/v1/jobs/{{id}}/approval with one of {choices}"
            return "waits for a person", Reason("waiting_for_human", wait.message or "no message", unblock)
        case AwaitChild():
            detail = f"the child {wait.child_id} of blueprint {wait.blueprint!r} has not ended"
            unblock = "explain the child; one that is quarantined waits for a person"
            return f"waits for its child {wait.child_id}", Reason("waiting_for_child", detail, unblock)
        case AwaitTimer():
            detail = f"sleeps until {_at(wait.until)}, then goes on to {wait.then!r}"
            return f"sleeps until {_at(wait.until)}", Reason("waiting_for_timer", detail, "wait")
        case AwaitRetry():
            detail = f"its handler failed {wait.failures} times and is run again at {_at(wait.until)}"
            unblock = "wait; the history says what the handler raised"
            return f"pauses until {_at(wait.until)}", Reason("paused_until", detail, unblock)
        case AwaitVersion():
            detail = f"no instance has version {wait.version} of its blueprint, and it fits no newer one"
            unblock = "start an instance with that version"
            return f"waits for version {wait.version} of its blueprint", Reason(wait.reason, detail, unblock)


def _running(job: Job) -> tuple[str, list[Reason]]:
    detail = f"the handler of {job.state!r} runs, or is next in the ready queue"
    reason = Reason("handler", detail, "wait; a lapsed lease hands it to another instance")
    return f"Job {job.id} is {job.status} in state {job.state!r}.", [reason]


def _fault(job: Job, unblock: str) -> list[Reason]:
    if job.error is None:
        return []
    return [Reason(job.error.code, job.error.message or "no message", unblock)]


def _cancelling(job: Job, tasks: Sequence[Task]) -> Reason:
    workers = sorted({task.worker_id for task in _open(tasks) if task.worker_id})
    by = f" by {', '.join(workers)}" if workers else ""
    until = _at(job.cancel.deadline) if job.cancel is not None else "its deadline"
    detail = f"waits to be confirmed{by}, until {until} at the latest"
    return Reason("cancelling", detail, "wait", len(workers))


def _tasks(tasks: Sequence[Task]) -> list[Reason]:
    return [_held(task) for task in _open(tasks) if task.state is not AttemptState.QUEUED]


def _held(task: Task) -> Reason:
    begun = task.state is AttemptState.STARTED
    done = f", {task.progress:.0%} done" if task.progress is not None else ""
    where = f"attempt {task.attempt} of {task.id} ({task.type}) is with worker {task.worker_id!r}"
    code = "task_running" if begun else "task_offered"
    since = f" since {_at(task.started_at or task.offered_at)}"
    return Reason(code, f"{where}{since}{done}", "wait, or cancel the job")


def _branches(left: list[Task]) -> list[Reason]:
    reasons = _tasks(left[:_BRANCHES])
    if len(left) > _BRANCHES:
        reasons.append(Reason("more_branches", f"{len(left) - _BRANCHES} further branches are open"))
    return reasons


def _open(tasks: Sequence[Task]) -> list[Task]:
    return [task for task in tasks if task.state is not AttemptState.CLOSED]


def _at(when: datetime | None) -> str:
    return when.isoformat(timespec="seconds") if when is not None else "some time"
