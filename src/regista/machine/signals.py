"""Signals as steps: a timer, a person's decision, the end of a child job, a cancel. Pure."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from ..blueprint.graph import Graph
from ..clock import add_seconds
from ..errors import ApprovalConflict, JobAlreadyTerminal, NotQuarantined
from ..model import (
    APPROVALS_KEPT,
    HELD_STATES,
    OPEN_STATES,
    Approval,
    AttemptState,
    AwaitBranches,
    AwaitChild,
    AwaitHuman,
    AwaitRetry,
    AwaitTimer,
    AwaitVersion,
    Cancellation,
    Event,
    EventType,
    Fault,
    Job,
    JobMessage,
    JobMessageKind,
    JobStatus,
    Task,
    TaskResult,
    TaskWrite,
)
from .step import DecisionContext, Step
from .transitions import end, fail, move, with_finished_tasks

#: What a child's end is called in `transitions` when its end state is not named there.
_CHILD_KEYS = {
    JobStatus.FINISHED.value: "success",
    JobStatus.FAILED.value: "failure",
    JobStatus.CANCELLED.value: "cancelled",
}


def due(job: Job, tasks: list[Task], context: DecisionContext) -> Step | None:
    """The deadline of the job has passed. None when nothing has to change."""
    if job.deadline is None or job.deadline > context.now:
        return None
    if job.status is JobStatus.CANCELLING:
        return cancelled(job, tasks, context)
    match job.wait:
        case AwaitTimer(_, then):
            fired = Event(type=EventType.TIMER_FIRED, at=context.now, state=job.state)
            step = move(job, then, context)
            return replace(step, events=(fired, *step.events))
        case AwaitRetry():
            return Step(job=replace(job, wait=None, waiting_since=None, updated_at=context.now))
        case _:
            return None


def aggregate(job: Job, context: DecisionContext) -> Step:
    """All branches are over: enters the aggregator's state. The branches stay stored until it has decided."""
    assert isinstance(job.wait, AwaitBranches)
    return move(job, job.wait.aggregator, context)


def approve(
    job: Job,
    decision: str,
    context: DecisionContext,
    comment: str = "",
    data: dict[str, Any] | None = None,
    visit: int | None = None,
) -> Step | None:
    """Applies a person's decision. None when the same decision was accepted before; ApprovalConflict.

    With `visit` the decision answers the question of that visit only. Without it, it answers the open
    question where that one knows the decision; otherwise it may repeat any earlier answer.
    """
    wait = job.wait if job.status is JobStatus.WAITING_FOR_HUMAN else None
    question = wait if isinstance(wait, AwaitHuman) and visit in (None, job.visit) else None
    to = None if question is None else question.transitions.get(decision)
    if to is None:
        earlier = [given for given in job.approvals if visit in (None, given.visit)]
        if any(given.decision == decision for given in earlier):
            return None
        if question is not None:
            known = ", ".join(sorted(question.transitions))
            raise ApprovalConflict(job.id, job.status, f"expected one of {known}; got {decision!r}")
        raise ApprovalConflict(job.id, job.status, f"{decision!r} came too late or was not asked for")
    given = Event(
        type=EventType.APPROVAL_GIVEN,
        at=context.now,
        state=job.state,
        code=decision,
        message=comment or None,
        detail=data or {},
    )
    approvals = (*job.approvals, Approval(job.visit, decision, job.state))[-APPROVALS_KEPT:]
    job = replace(job, approvals=approvals, data={**job.data, **(data or {})})
    step = move(job, to, context)
    return replace(step, events=(given, *step.events))


def child_ended(job: Job, message: JobMessage, context: DecisionContext) -> Step | None:
    """A child job has ended. None when the parent does not wait for this child any more."""
    if not isinstance(job.wait, AwaitChild) or job.wait.child_id != message.from_job:
        return None
    body = message.body
    finished = Event(
        type=EventType.CHILD_FINISHED,
        at=context.now,
        state=job.state,
        status=body["status"],
        detail={"child_id": message.from_job, "child_state": body["state"]},
    )
    if job.status is JobStatus.CANCELLING:
        step = end(job, JobStatus.CANCELLED, context)
        return replace(step, events=(finished, *step.events))
    outcome = {
        "child_id": message.from_job,
        "outcome": _CHILD_KEYS[body["status"]],
        "final_state": body["state"],
        "result": body["result"],
        "error": body["error"],
    }
    wait = job.wait
    job = replace(job, data={**job.data, f"child_{wait.blueprint}": outcome})
    to = wait.transitions.get(body["state"]) or wait.transitions.get(_CHILD_KEYS[body["status"]])
    if to is not None:
        step = move(job, to, context)
    else:
        fault = Fault("child_" + body["status"], f"child job {message.from_job} ended as {body['status']}")
        step = fail(job, fault, context, failed_state=wait.unhandled)
    return replace(step, events=(finished, *step.events))


# -- cancel ------------------------------------------------------------------------------------------


def request_cancel(job: Job, tasks: list[Task], context: DecisionContext, reason: str = "") -> Step | None:
    """Requests a cancel, which wins over later results. None when it was requested before; JobAlreadyTerminal."""
    if job.status.terminal:
        raise JobAlreadyTerminal(job.id, job.status)
    if job.status is JobStatus.CANCELLING:
        return None
    requested = Event(
        type=EventType.CANCEL_REQUESTED, at=context.now, state=job.state, message=reason or None
    )
    cancellation = Cancellation(
        context.now, add_seconds(context.now, context.settings.cancel_grace_s), reason
    )
    job = replace(job, cancel=cancellation, error=Fault("cancelled", reason) if reason else job.error)
    step = _stop_work(job, tasks, context)
    return replace(step, events=(requested, *step.events))


def _stop_work(job: Job, tasks: list[Task], context: DecisionContext) -> Step:
    held = [task for task in tasks if task.state in HELD_STATES]
    queued = [task for task in tasks if task.state is AttemptState.QUEUED]
    # Queued tasks are closed at once; held tasks are asked back, and the job waits for their workers.
    closed = tuple(TaskWrite(_cancelled_task(task), task.attempt, (AttemptState.QUEUED,)) for task in queued)
    # Fenced by the state that was read: a start that was written meanwhile must not be undone.
    asked = tuple(
        TaskWrite(replace(task, cancel_requested=True), task.attempt, (task.state,)) for task in held
    )
    child = job.wait.child_id if isinstance(job.wait, AwaitChild) else None
    if not held and child is None:
        # The fences stay in the change: a task that was offered meanwhile makes it stale.
        job = replace(job, finished_tasks=with_finished_tasks(job, tuple(tasks)))
        step = end(job, JobStatus.CANCELLED, context)
        return replace(step, tasks=closed)
    parked = replace(job, status=JobStatus.CANCELLING, waiting_since=context.now, updated_at=context.now)
    messages: tuple[JobMessage, ...] = ()
    if child is not None:
        messages = (JobMessage(f"cancel:{child}", JobMessageKind.CANCEL, child, job.id),)
    branches = sum(task.branch for task in queued)
    return Step(job=parked, tasks=closed + asked, closes_branches=branches, messages=messages)


def _cancelled_task(task: Task) -> Task:
    result = TaskResult(task_id=task.attempt_id, job_id=task.job_id, status="cancelled")
    return replace(task, state=AttemptState.CLOSED, result=result)


def cancelled(job: Job, tasks: list[Task], context: DecisionContext) -> Step:
    """Ends a cancelling job: no worker holds a task any more, or the grace period is over."""
    open_tasks = [task for task in tasks if task.state in OPEN_STATES]
    unconfirmed = bool(open_tasks) or isinstance(job.wait, AwaitChild)
    job = replace(job, finished_tasks=with_finished_tasks(job, tuple(tasks)))
    return end(job, JobStatus.CANCELLED, context, unconfirmed=unconfirmed)


# -- by hand -----------------------------------------------------------------------------------------


def release(job: Job, context: DecisionContext, data: dict[str, Any] | None = None) -> Step:
    """Releases a quarantined job: its state's handler runs again, with `data` merged in first. NotQuarantined."""
    if job.status is not JobStatus.QUARANTINED:
        raise NotQuarantined(job.id, job.status)
    running = replace(
        job,
        status=JobStatus.RUNNING,
        data={**job.data, **(data or {})},
        error=None,
        wait=None,
        waiting_since=None,
        handler_failures=0,
        visit=job.visit + 1,
        entered_at=context.now,
        updated_at=context.now,
    )
    released = Event(
        type=EventType.JOB_RELEASED,
        at=context.now,
        state=job.state,
        status=JobStatus.RUNNING,
        detail=data or {},
        snapshot=running.data,
    )
    return Step(job=running, events=(released,))


def fail_quarantined(
    job: Job, context: DecisionContext, reason: str = "", tasks: Sequence[Task] = ()
) -> Step:
    """Ends a quarantined job as failed. NotQuarantined."""
    if job.status is not JobStatus.QUARANTINED:
        raise NotQuarantined(job.id, job.status)
    fault = Fault("failed_by_hand", reason) if reason or job.error is None else job.error
    job = replace(job, error=fault, finished_tasks=with_finished_tasks(job, tuple(tasks)))
    return end(job, JobStatus.FAILED, context)


# -- versions ----------------------------------------------------------------------------------------


def migrate(job: Job, newest: Graph | None, context: DecisionContext) -> Step | None:
    """No instance has the job's version any more: continues with the newest, or names the missing version. FENCES 20."""
    needed = {job.state}
    if isinstance(job.wait, AwaitBranches):
        needed.add(job.wait.aggregator)
    if newest is not None and newest.version != job.version and needed <= newest.states.keys():
        wait = None if isinstance(job.wait, AwaitVersion) else job.wait
        wait = replace(wait, missing="") if isinstance(wait, AwaitBranches) else wait
        moved = Event(
            type=EventType.JOB_MIGRATED,
            at=context.now,
            state=job.state,
            detail={"from": job.version, "to": newest.version},
        )
        migrated = replace(job, version=newest.version, wait=wait, updated_at=context.now)
        return Step(job=migrated, events=(moved,))
    named = _version_wait(job)
    if named is None:
        return None
    return Step(job=replace(job, wait=named, waiting_since=context.now, updated_at=context.now))


def _version_wait(job: Job) -> AwaitVersion | AwaitBranches | None:
    """The wait that names the missing version; None where it names it already or is settled."""
    match job.wait:
        case None if not job.status.settled:
            return AwaitVersion(job.version)
        case AwaitBranches(missing="") as wait if job.status is JobStatus.WAITING_FOR_PARALLEL:
            return replace(wait, missing=job.version)  # it is still the aggregator that runs next
        case _:
            return None
