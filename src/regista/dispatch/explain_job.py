"""Explain, for jobs: what a job waits for. Pure."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from msgspec import Struct
from msgspec.structs import replace

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
    QueueKey,
    Task,
)
from ..model.explanation import Explanation, Reason
from ..schemas.job_view import answer_commands

#: Open branches that are named one by one.
_BRANCHES = 5
_NEVER = datetime.max.replace(tzinfo=UTC)
#: Reasons that tell of no worker that comes near.
_FAR = frozenset({"no_worker_with_skill", "skill_missing"})


class Disconnection(Struct, frozen=True):
    """A worker that holds a task and is not connected."""

    #: Since when; None where nobody knows, as after a restart.
    since: datetime | None = None
    #: When its lease is over, at the latest.
    until: datetime | None = None


def group_waiting_tasks(tasks: Sequence[Task]) -> list[list[Task]]:
    """The waiting tasks in groups that wait for the same; in each the one that is next comes first."""
    groups: dict[tuple[QueueKey, bool], list[Task]] = {}
    for task in tasks:
        if task.state is AttemptState.QUEUED:
            groups.setdefault((task.queue_key, task.not_before is not None), []).append(task)
    for (_, paused), group in groups.items():
        if paused:
            group.sort(key=lambda task: task.not_before or _NEVER)
    return list(groups.values())


def explain_job(
    job: Job,
    tasks: Sequence[Task],
    about: Sequence[tuple[Explanation, int]] = (),
    absent: Mapping[str, Disconnection] | None = None,
) -> Explanation:
    """Why the job is where it is.

    `about` explains its waiting tasks: each explanation, and for how many of them it holds. `absent` are those
    who hold one of its tasks and are not connected.
    """
    summary, reasons = _told(job, tasks, absent or {})
    since = job.waiting_since or job.updated_at
    found = (*reasons, *_merged(about))
    return Explanation(kind="job", id=job.id, summary=summary, since=since, reasons=found)


def _merged(about: Sequence[tuple[Explanation, int]]) -> list[Reason]:
    """What holds the waiting tasks back: equal reasons once, with the number of tasks; the nearest miss first."""
    found: dict[Reason, int] = {}
    for explanation, tasks in about:
        for reason in explanation.reasons:
            found[reason] = found.get(reason, 0) + tasks
    merged = [replace(reason, tasks=tasks) for reason, tasks in found.items()]
    return sorted(merged, key=lambda reason: reason.code in _FAR)


def _told(job: Job, tasks: Sequence[Task], absent: Mapping[str, Disconnection]) -> tuple[str, list[Reason]]:
    if job.status.terminal:
        again = f"regista jobs fork {job.id} starts a new job like it (--input JSON changes its input)"
        return f"Job {job.id} has ended as {job.status} in state {job.state!r}.", _fault(job, again)
    if job.status is JobStatus.QUARANTINED:
        unblock = (
            f"regista jobs retry {job.id} (--data corrects its data first); where the handler reads the input, "
            f"regista jobs fork {job.id} --input JSON starts a new job; or regista jobs fail {job.id}"
        )
        return f"Job {job.id} is quarantined in state {job.state!r}.", _fault(job, unblock)
    if job.status is JobStatus.CANCELLING:
        return f"Job {job.id} is being cancelled.", [_cancelling(job, tasks)]
    match job.wait:
        case AwaitTask(task_id=task_id):
            return f"Job {job.id} waits for task {task_id}.", _held(tasks, absent)
        case AwaitBranches(missing=version) if version:
            words, reason = _waits(job.id, AwaitVersion(version))
            return f"Job {job.id} {words}.", [reason]
        case AwaitBranches() as wait:
            left = _open(tasks)
            text = f"Job {job.id} waits for {len(left)} of {wait.total} branches before {wait.aggregator!r}."
            return text, _held(left, absent)
        case None:
            return _running(job)
        case wait:
            words, reason = _waits(job.id, wait)
            return f"Job {job.id} {words}.", [reason]


def _waits(
    job_id: str, wait: AwaitHuman | AwaitChild | AwaitTimer | AwaitRetry | AwaitVersion
) -> tuple[str, Reason]:
    """The end of the sentence, and the reason."""
    match wait:
        case AwaitHuman():
            unblock = ", or ".join(answer_commands(job_id, wait.transitions))
            return "waits for a person", Reason("waiting_for_human", wait.message or "no message", unblock)
        case AwaitChild():
            detail = f"the child {wait.child_id} of blueprint {wait.blueprint!r} has not ended"
            unblock = f"regista jobs explain {wait.child_id} says what it waits for"
            return f"waits for its child {wait.child_id}", Reason("waiting_for_child", detail, unblock)
        case AwaitTimer():
            detail = f"sleeps until {_at(wait.until)}, then goes on to {wait.then!r}"
            return f"sleeps until {_at(wait.until)}", Reason("waiting_for_timer", detail, "wait")
        case AwaitRetry():
            detail = f"its handler failed {wait.failures} times and is run again at {_at(wait.until)}"
            unblock = f"wait; regista jobs history {job_id} says what the handler raised"
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


def _held(tasks: Sequence[Task], absent: Mapping[str, Disconnection]) -> list[Reason]:
    """The tasks that somebody has in hand; first those whose worker is away."""
    held = [task for task in _open(tasks) if task.state is not AttemptState.QUEUED]
    held.sort(key=lambda task: task.worker_id not in absent)
    reasons = [_in_hand(task, absent.get(task.worker_id or "")) for task in held[:_BRANCHES]]
    if len(held) > _BRANCHES:
        reasons.append(Reason("more_branches", f"{len(held) - _BRANCHES} further branches are with workers"))
    return reasons


def _in_hand(task: Task, away: Disconnection | None) -> Reason:
    begun = task.state is AttemptState.STARTED
    done = f", {task.progress:.0%} done" if task.progress is not None else ""
    where = f"attempt {task.attempt} of {task.id} ({task.type}) is with worker {task.worker_id!r}"
    if away is not None:
        gone = "" if away.since is None else f" since {_at(away.since)}"
        end = "its lease ends" if away.until is None else f"its lease ends at {_at(away.until)}"
        unblock = f"start that worker again; if it is not back when {end}, the task goes to another one"
        return Reason("worker_disconnected", f"{where}, which is not connected{gone}{done}", unblock)
    code = "task_running" if begun else "task_offered"
    since = f" since {_at(task.started_at or task.offered_at)}"
    return Reason(code, f"{where}{since}{done}", f"wait, or regista jobs cancel {task.job_id}")


def _open(tasks: Sequence[Task]) -> list[Task]:
    return [task for task in tasks if task.state is not AttemptState.CLOSED]


def _at(when: datetime | None) -> str:
    return when.isoformat(timespec="seconds") if when is not None else "some time"
