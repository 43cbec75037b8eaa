"""Story: what the events and the open tasks of a job say about its attempts. Pure."""

import shlex
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

from msgspec import UNSET

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
    EventType,
    Job,
    JobStatus,
    Task,
)
from .jobs import Attempt, AttemptErrorView, Bill, ErrorView, JobObject, WaitingFor

#: What an event makes of the attempt that it names.
_STATES = {
    EventType.TASK_DISPATCHED: "queued",
    EventType.TASK_RETRIED: "queued",
    EventType.TASK_STARTED: "started",
    EventType.TASK_FINISHED: "finished",
    EventType.TASK_FAILED: "failed",
    EventType.TASK_LOST: "lost",
    EventType.TASK_UNDELIVERED: "undelivered",
    EventType.TASK_TIMED_OUT: "timed_out",
}
_OPEN = frozenset({"queued", "offered", "started"})
#: Looked up once: a member through its class costs more than the question.
_FINISHED, _QUARANTINED, _CANCELLING = JobStatus.FINISHED, JobStatus.QUARANTINED, JobStatus.CANCELLING
_CLOSED, _DISPATCHED = AttemptState.CLOSED, EventType.TASK_DISPATCHED
_NO_BILL = Bill(0.0, 0.0)

#: A time as it is shown; None stays None.
TimeFormat = Callable[[datetime | None], Any]


def as_stored(moment: datetime | None) -> Any:
    """Times in UTC, as they are stored."""
    return moment


class _Try:
    """An attempt while its events are read."""

    __slots__ = ("attempt", "error", "started_at", "state", "task_id", "worker_id")

    def __init__(self, task_id: str, attempt: int) -> None:
        #: Stable over attempts.
        self.task_id = task_id
        self.attempt = attempt
        self.state = "queued"
        self.worker_id: str | None = None
        self.started_at: datetime | None = None
        self.error: AttemptErrorView | None = None

    def hear(self, event: Event, state: str) -> None:
        """One more event of this attempt, and the state that it means."""
        self.state = "cancelled" if event.status == "cancelled" else state
        self.worker_id = event.worker_id or self.worker_id
        if state == "started":
            self.started_at = event.at
        elif state not in _OPEN and event.code is not None:
            details = event.detail.get("error", UNSET)
            self.error = AttemptErrorView(event.code, event.message or "", details)

    def shown(self, name: str, kind: str, show: TimeFormat) -> Attempt:
        """The attempt as its owner sees it."""
        return Attempt(
            task_id=name,
            worker_id=self.worker_id,
            state=self.state,
            started_at=show(self.started_at),
            error=self.error,
            attempt_id=name,
            attempt=self.attempt,
            type=kind,
        )


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
    tries: dict[str, _Try] = {}
    types: dict[str, str] = {}
    seconds = cost = 0.0
    for event in events:
        state = _STATES.get(event.type)
        if state is None:
            continue
        name = f"{event.task_id}-{event.attempt}"
        one = tries.get(name)
        if one is None:
            one = tries[name] = _Try(event.task_id or "", event.attempt or 0)
        one.hear(event, state)
        if event.type is _DISPATCHED:
            types[one.task_id] = event.detail.get("type", "")
        elif state not in _OPEN:
            seconds += (event.duration_ms or 0.0) / 1000
            cost += event.detail.get("cost", 0.0) if event.detail else 0.0
    _overlay(tries, types, tasks)
    if job.status.terminal:
        for one in tries.values():
            # Called off with its job: nobody said how it went, and nobody waits for it any more.
            one.state = "cancelled" if one.state in _OPEN else one.state
    found = [one.shown(name, types.get(one.task_id, ""), show) for name, one in tries.items()]
    return found, Bill(round(seconds, 6), round(cost, 9))


def _overlay(tries: dict[str, _Try], types: dict[str, str], tasks: Sequence[Task]) -> None:
    """What is open right now: events tell of an offer and of a start only later."""
    for task in tasks:
        if task.state is not _CLOSED:
            types[task.id] = task.type
            one = tries.setdefault(task.attempt_id, _Try(task.id, task.attempt))
            one.state = task.state.value
            one.worker_id = task.worker_id
            one.started_at = task.started_at or one.started_at


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
