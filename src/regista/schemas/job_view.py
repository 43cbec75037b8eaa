"""Story: what the events and the open tasks of a job say about its attempts. Pure."""

import shlex
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

from msgspec import UNSET

from ..history.projection import OPEN_ATTEMPTS, AttemptView, JobProjection
from ..model import (
    AttemptState,
    AwaitBranches,
    AwaitChild,
    AwaitHuman,
    AwaitRetry,
    AwaitTask,
    AwaitTimer,
    AwaitVersion,
    Event,
    Job,
    JobStatus,
    Task,
)
from .jobs import Attempt, AttemptErrorView, Bill, ErrorView, JobObject, WaitingFor

#: Looked up once: a member through its class costs more than the question.
_FINISHED, _QUARANTINED, _CANCELLING = JobStatus.FINISHED, JobStatus.QUARANTINED, JobStatus.CANCELLING
_CLOSED = AttemptState.CLOSED
_NO_BILL = Bill(0.0, 0.0)

#: A time as it is shown; None stays None.
TimeFormat = Callable[[datetime | None], Any]


def as_stored(moment: datetime | None) -> Any:
    """Times in UTC, as they are stored."""
    return moment


def answer_commands(job_id: str, decisions: Iterable[str]) -> list[str]:
    """The command for each word that the job takes from a person."""
    own = ("approve", "reject")
    return [
        f"regista jobs {word} {job_id}"
        if word in own
        else f"regista jobs approve {job_id} --decision {shlex.quote(word)}"
        for word in sorted(decisions)
    ]


def job_view(
    job: Job,
    events: Iterable[Event] = (),
    tasks: Sequence[Task] = (),
    token: str | None = None,
    show: TimeFormat = as_stored,
) -> JobObject:
    """The job as its owner sees it. `token` lets an outsider answer for the person that it waits for."""
    attempts, bill = _attempts(job, events, tasks, show) if events or tasks else ([], _NO_BILL)
    created, updated, finished = job.created_at, job.updated_at, job.finished_at
    if show is not as_stored:
        created, updated, finished = show(created), show(updated), show(finished)
    status, error = job.status, job.error
    return JobObject(
        # The first without their names: a call with more than fifteen costs four times as much.
        job.id,
        job.blueprint,
        job.version,
        str(status),  # an exact str, and without the detour of `.value`
        job.state,
        job.input,
        data=job.data,
        result=job.result,
        error=None if error is None else ErrorView(error.code, error.message),
        progress=1.0 if status is _FINISHED else _progress(tasks) if tasks else None,
        waiting_for=None if status.terminal else _waiting_for(job, tasks, token, show),
        attempts=attempts,
        created_at=created,
        updated_at=updated,
        finished_at=finished,
        search_attributes=job.search_attributes,
        parent_id=job.parent_id,
        bill=bill,
    )


def _attempts(
    job: Job, events: Iterable[Event], tasks: Sequence[Task], show: TimeFormat
) -> tuple[list[Attempt], Bill]:
    projection = JobProjection(job.id)
    for event in events:
        projection.apply(event)
    ended = job.status.terminal
    found = [_shown(attempt, ended, show) for attempt in projection.attempts(tasks)]
    return found, Bill(*projection.bill())


def _shown(attempt: AttemptView, ended: bool, show: TimeFormat) -> Attempt:
    """The attempt as its owner sees it. One that was open when its job ended was cancelled with it."""
    name, state, error = attempt.id, attempt.state, None
    if attempt.code is not None:
        details = attempt.detail.get("error", UNSET)
        error = AttemptErrorView(attempt.code, attempt.message or "", details)
    return Attempt(
        task_id=name,
        worker_id=attempt.worker_id,
        state="cancelled" if ended and state in OPEN_ATTEMPTS else state,
        started_at=show(attempt.started_at),
        error=error,
        attempt_id=name,
        attempt=attempt.number,
        type=attempt.type,
    )


def _progress(tasks: Sequence[Task]) -> float | None:
    """0 to 1: of the open task, or the mean over the branches of a fan-out."""
    told = [1.0 if task.state is _CLOSED else task.progress for task in tasks]
    if all(value is None for value in told):
        return None
    return sum(value or 0.0 for value in told) / len(told)


def _waiting_for(job: Job, tasks: Sequence[Task], token: str | None, show: TimeFormat) -> WaitingFor | None:
    if job.status is _QUARANTINED:
        return WaitingFor("release", {}, show(job.waiting_since or job.updated_at))
    if job.status is _CANCELLING and job.cancel is not None:
        detail = {"reason": job.cancel.reason, "until": show(job.cancel.deadline)}
        return WaitingFor("cancel", detail, show(job.waiting_since))
    if job.wait is None:
        return None
    if not tasks and type(job.wait) is AwaitTask:  # as most that are just taken on
        kind, detail = "worker", {"task_id": job.wait.task_id}
    else:
        kind, detail = _detail(job, tasks, token, show)
    return WaitingFor(kind, detail, show(job.waiting_since))


def _detail(
    job: Job, tasks: Sequence[Task], token: str | None, show: TimeFormat
) -> tuple[str, dict[str, Any]]:
    match job.wait:
        case AwaitTask(task_id):
            found = next((task for task in tasks if task.id == task_id), None)
            if found is None:
                return "worker", {"task_id": task_id}
            queue = found.queue or found.type
            name = found.attempt_id
            return "worker", {"task_id": task_id, "attempt_id": name, "type": found.type, "queue": queue}
        case AwaitBranches(missing=version) if version:
            return "version", {"version": version, "reason": AwaitVersion(version).reason}
        case AwaitBranches(aggregator, total):
            left = sum(task.state is not _CLOSED for task in tasks)
            return "parallel", {"aggregator": aggregator, "total": total, "open": left if tasks else total}
        case AwaitHuman(message, transitions, integration):
            asked = {"message": message, "decisions": sorted(transitions), "integration": integration}
            return "human", asked | ({} if token is None else {"token": token})
        case AwaitChild(child_id, blueprint):
            return "child", {"child_id": child_id, "blueprint": blueprint}
        case AwaitTimer(until, then):
            return "timer", {"until": show(until), "then": then}
        case AwaitRetry(until, failures):
            return "retry", {"until": show(until), "failures": failures}
        case AwaitVersion(version, reason):
            return "version", {"version": version, "reason": reason}
        case None:
            raise AssertionError("asked only about a job that waits")
