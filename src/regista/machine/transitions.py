"""Transitions: job + decision → step. Pure: the same input gives the same step.

Every function takes the current job and a `DecisionContext` and returns the next job with everything that must be
written with it. Two rules always hold: a terminal job is never changed, and a job moves only along edges of its graph.
"""

from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from ..blueprint.decisions import (
    Action,
    AskHuman,
    Decision,
    Dispatch,
    Fail,
    FanOut,
    Finish,
    HandlerFailed,
    RunChild,
    Sleep,
    TaskOrder,
    Transition,
)
from ..blueprint.graph import FAILED_STATE
from ..clock import add_seconds, derived_id, elapsed_ms
from ..model import (
    FINISHED_TASKS_KEPT,
    AwaitBranches,
    AwaitChild,
    AwaitHuman,
    AwaitRetry,
    AwaitTask,
    AwaitTimer,
    ChildJob,
    Event,
    EventType,
    Fault,
    FinishedTasks,
    Job,
    JobMessage,
    JobMessageKind,
    JobStatus,
    Task,
    TaskWrite,
    Wait,
)
from .step import DecisionContext, Step, retry_at


def create(job: Job, context: DecisionContext) -> Step:
    """The first step of a new job, which is in the start state of its graph. Its first visit begins."""
    created = Event(
        type=EventType.JOB_CREATED,
        at=context.now,
        state=job.state,
        status=JobStatus.PENDING,
        detail={"blueprint": job.blueprint, "version": job.version, "client": job.client},
        actor=f"client:{job.client}" if job.client and job.parent_id is None else None,
    )
    return Step(job=job, events=(created, _started(job, context)))


def decide(job: Job, decision: Decision, context: DecisionContext, tasks: tuple[Task, ...] = ()) -> Step:
    """Applies the decision of the handler of the job's state. `tasks` are the branches that an aggregator has read."""
    data, result, found = decision.data, decision.result, decision.search_attributes
    if data or job.data or result is not UNSET or found or tasks or job.handler_failures:
        # Every action sets status and wait.
        job = replace(
            job,
            data=data,
            handler_failures=0,
            result=job.result if result is UNSET else result,
            search_attributes={**job.search_attributes, **found} if found else job.search_attributes,
            finished_tasks=with_finished_tasks(job, tasks),
        )
    step = _apply_action(job, decision.action, context)
    return replace(step, drop_tasks=True) if tasks else step


def _apply_action(job: Job, action: Action, context: DecisionContext) -> Step:
    match action:
        case Dispatch(order):
            return _dispatch(job, order, context)
        case Finish():
            return _finish(job, context)
        case Transition(to):
            return move(job, to, context)
        case FanOut(orders, aggregator):
            return _fan_out(job, orders, aggregator, context)
        case AskHuman() as ask:
            asked = Event(
                type=EventType.APPROVAL_REQUESTED,
                at=context.now,
                state=job.state,
                message=ask.message,
                detail={"decisions": sorted(ask.transitions)},
            )
            wait = AwaitHuman(ask.message, ask.transitions, ask.integration)
            return Step(job=wait_for(job, JobStatus.WAITING_FOR_HUMAN, wait, context), events=(asked,))
        case RunChild() as run:
            return _run_child(job, run, context)
        case Sleep(seconds, then):
            until = add_seconds(context.now, seconds)
            slept = Event(
                type=EventType.TIMER_STARTED, at=context.now, state=job.state, detail={"seconds": seconds}
            )
            timer = AwaitTimer(until, then)
            return Step(job=wait_for(job, JobStatus.WAITING_FOR_TIMER, timer, context), events=(slept,))
        case Fail(reason, code):
            return fail(job, Fault(code, reason), context)


def handler_failed(job: Job, failure: HandlerFailed, context: DecisionContext) -> Step:
    """The handler raised: runs it again after a pause, or quarantines the job after the last retry."""
    failures = job.handler_failures + 1
    failed = Event(
        type=EventType.STATE_FAILED,
        at=context.now,
        state=job.state,
        attempt=failures,
        duration_ms=failure.duration_ms,
        code=failure.code,
        message=failure.message,
    )
    job = replace(job, handler_failures=failures, updated_at=context.now)
    policy = context.settings.handler_retry
    if failure.final or failures >= policy.max_attempts:
        step = quarantine(job, Fault(failure.code, f"state {job.state!r}: {failure.message}"), context)
    else:
        until = retry_at(context.now, policy, failures, context.random)
        step = Step(job=wait_for(job, JobStatus.RUNNING, AwaitRetry(until, failures), context))
    return replace(step, events=(failed, *step.events))


# -- moving ------------------------------------------------------------------------------------------


def move(job: Job, to: str, context: DecisionContext, *, drop_tasks: bool = False) -> Step:
    """Leaves the state and enters another, whose handler can run at once."""
    return enter_after_result(
        job, to, context, job.data, job.finished_tasks, job.error, drop_tasks=drop_tasks
    )


def enter_after_result(
    job: Job,
    to: str,
    context: DecisionContext,
    data: dict[str, Any],
    finished_tasks: tuple[FinishedTasks, ...],
    error: Fault | None,
    *,
    drop_tasks: bool = False,
) -> Step:
    """Enters a state with the data, finished tasks and error that a task result leaves."""
    entered = replace(
        job,
        status=JobStatus.RUNNING,
        state=to,
        visit=job.visit + 1,
        entered_at=context.now,
        data=data,
        error=error,
        wait=None,
        waiting_since=None,
        handler_failures=0,
        finished_tasks=finished_tasks,
        updated_at=context.now,
    )
    started = _started(entered, context, previous=job.state)
    return Step(job=entered, drop_tasks=drop_tasks, events=(_left(job, context, to), started))


def wait_for(job: Job, status: JobStatus, wait: Wait, context: DecisionContext) -> Job:
    """The job with this status, waiting for `wait`."""
    return replace(job, status=status, wait=wait, waiting_since=context.now, updated_at=context.now)


def fail(job: Job, fault: Fault, context: DecisionContext, failed_state: str | None = None) -> Step:
    """Enters the state `failed` where the blueprint has one, else ends the job as failed."""
    if failed_state is None and context.graph is not None:
        failed_state = context.graph.failed_state
    job = replace(job, error=fault)
    if failed_state is not None and job.state != failed_state:
        return move(job, failed_state, context, drop_tasks=True)
    return end(job, JobStatus.FAILED, context)


def quarantine(job: Job, fault: Fault, context: DecisionContext) -> Step:
    """Quarantines the job: settled, not terminal, unchanged until a person decides."""
    settled = replace(
        job,
        status=JobStatus.QUARANTINED,
        error=fault,
        wait=None,
        waiting_since=context.now,
        updated_at=context.now,
    )
    event = Event(
        type=EventType.JOB_QUARANTINED,
        at=context.now,
        state=job.state,
        status=JobStatus.QUARANTINED,
        code=fault.code,
        message=fault.message,
    )
    return Step(job=settled, events=(event,))


def end(job: Job, status: JobStatus, context: DecisionContext, *, unconfirmed: bool = False) -> Step:
    """Ends the job and sends its parent a message. The only function that makes a job terminal."""
    ended = replace(
        job,
        status=status,
        wait=None,
        waiting_since=None,
        finished_at=context.now,
        updated_at=context.now,
        unconfirmed=unconfirmed,
    )
    finished = Event(
        type=EventType.JOB_FINISHED,
        at=context.now,
        state=job.state,
        status=status,
        duration_ms=elapsed_ms(job.created_at, context.now),
        code=job.error.code if job.error else None,
        message=job.error.message if job.error else None,
        detail={"unconfirmed": True} if unconfirmed else {},
    )
    return Step(
        job=ended,
        drop_tasks=True,
        messages=_child_ended_message(ended),
        events=(_left(job, context, None), finished),
    )


def with_finished_tasks(job: Job, tasks: tuple[Task, ...]) -> tuple[FinishedTasks, ...]:
    """The job's finished tasks with these added, so that a result that is sent again is recognised."""
    if not tasks:
        return job.finished_tasks
    odd = {}
    for task in tasks:
        if task.accepted_attempts != (1,):
            odd[task.index] = task.accepted_attempts
    return add_finished_tasks(job, tasks[0].id, len(tasks), odd)


def add_finished_tasks(
    job: Job, task_id: str, size: int, odd: dict[int, tuple[int, ...]]
) -> tuple[FinishedTasks, ...]:
    """The same for `size` tasks of which this is one. `odd` names those where not just the first attempt was accepted."""
    visit = int(task_id.rsplit("_", 2)[1])
    return (*job.finished_tasks, FinishedTasks(visit, size, odd))[-FINISHED_TASKS_KEPT:]


# -- the single actions ------------------------------------------------------------------------------


def _dispatch(job: Job, order: TaskOrder, context: DecisionContext) -> Step:
    task = _task(job, order, 0, context)
    unhandled = context.graph.failed_state if context.graph is not None else None
    parked = wait_for(job, JobStatus.WAITING_FOR_WORKER, AwaitTask(task.id, unhandled), context)
    return Step(job=parked, tasks=(TaskWrite(task),), events=(_dispatched(job, task, context),))


def _fan_out(job: Job, orders: tuple[TaskOrder, ...], aggregator: str, context: DecisionContext) -> Step:
    tasks = [_task(job, order, index, context, branch=True) for index, order in enumerate(orders)]
    parked = wait_for(job, JobStatus.WAITING_FOR_PARALLEL, AwaitBranches(aggregator, len(tasks)), context)
    return Step(
        job=parked,
        tasks=tuple(TaskWrite(task) for task in tasks),
        opens_branches=len(tasks),
        events=tuple(_dispatched(job, task, context, len(tasks)) for task in tasks),
    )


def _task(job: Job, order: TaskOrder, index: int, context: DecisionContext, branch: bool = False) -> Task:
    rules, now = context.settings, context.now
    dispatch_s = order.dispatch_timeout_s or job.dispatch_timeout_s
    result_s = order.result_timeout_s or job.result_timeout_s
    return Task(
        id=f"{job.id}_{job.visit}_{index}",
        job_id=job.id,
        type=order.task_type,
        index=index,
        branch=branch,
        params=order.params,
        transitions=order.transitions,
        queue=order.queue or "",
        client=job.client,
        priority=job.priority if order.priority is None else order.priority,
        requirements=order.requirements,
        retry=order.retry or rules.task_retry,
        tracing_context=job.tracing_context,
        attempt_timeout_s=order.attempt_timeout_s or rules.attempt_timeout_s,
        heartbeat_timeout_s=order.heartbeat_timeout_s,
        strategy=order.strategy,
        max_cost=order.max_cost,
        queued_at=now,
        dispatch_by=add_seconds(now, dispatch_s) if dispatch_s else None,
        result_by=add_seconds(now, result_s) if result_s else None,
    )


def _run_child(job: Job, run: RunChild, context: DecisionContext) -> Step:
    graph = context.find_graph(run.blueprint)
    if graph is None:
        return quarantine(job, Fault("blueprint_not_found", f"no blueprint named {run.blueprint!r}"), context)
    if job.depth >= context.settings.max_depth:
        message = (
            f"expected at most {context.settings.max_depth} nested jobs, {run.blueprint!r} would be one more"
        )
        return quarantine(job, Fault("too_deep", message), context)
    child_id = derived_id("child", job.id, str(job.visit))
    child = Job(
        id=child_id,
        blueprint=graph.blueprint,
        version=graph.version,
        state=graph.start,
        created_at=context.now,
        updated_at=context.now,
        client=job.client,
        revision=1,
        input=run.input,
        priority=job.priority,
        # A child sends deliveries about approvals and quarantine, not about its end.
        webhook_url=job.webhook_url,
        parent_id=job.id,
        depth=job.depth + 1,
        tracing_context=job.trace,
        visit=1,
        entered_at=context.now,
    )
    first = create(child, context)
    created = ChildJob(first.job, first.events)
    unhandled = context.graph.failed_state if context.graph is not None else None
    wait = AwaitChild(child_id, run.blueprint, run.transitions, unhandled)
    event = Event(
        type=EventType.CHILD_STARTED,
        at=context.now,
        state=job.state,
        detail={"child_id": child_id, "blueprint": run.blueprint},
    )
    return Step(
        job=wait_for(job, JobStatus.WAITING_FOR_CHILD, wait, context), children=(created,), events=(event,)
    )


def _finish(job: Job, context: DecisionContext) -> Step:
    info = context.graph.states.get(job.state) if context.graph is not None else None
    failed = info is not None and info.outcome == FAILED_STATE
    if failed and job.error is None:
        job = replace(job, error=Fault("ended_as_failed", f"the job ended in state {job.state!r}"))
    return end(job, JobStatus.FAILED if failed else JobStatus.FINISHED, context)


# -- events ------------------------------------------------------------------------------------------


def _started(job: Job, context: DecisionContext, previous: str | None = None) -> Event:
    return Event(
        type=EventType.STATE_STARTED,
        at=context.now,
        state=job.state,
        previous_state=previous,
        snapshot=job.data,
    )


def _left(job: Job, context: DecisionContext, to: str | None) -> Event:
    return Event(
        type=EventType.STATE_FINISHED,
        at=context.now,
        state=job.state,
        next_state=to,
        duration_ms=elapsed_ms(job.entered_at or job.created_at, context.now),
    )


def _dispatched(job: Job, task: Task, context: DecisionContext, branches: int = 1) -> Event:
    detail: dict[str, Any] = {"type": task.type, "queue": task.queue or task.type}
    if branches > 1:
        detail["branches"] = branches  # so that a branch is called the same from its first event on
    return Event(
        type=EventType.TASK_DISPATCHED,
        at=context.now,
        state=job.state,
        task_id=task.id,
        attempt=task.attempt,
        detail=detail,
    )


def _child_ended_message(job: Job) -> tuple[JobMessage, ...]:
    if job.parent_id is None:
        return ()
    body = {
        "status": job.status.value,
        "state": job.state,
        "result": job.result,
        "error": {"code": job.error.code, "message": job.error.message} if job.error else None,
    }
    return (JobMessage(f"ended:{job.id}", JobMessageKind.CHILD_ENDED, job.parent_id, job.id, body),)
