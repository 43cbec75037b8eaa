"""The machine: job + decision → step. Pure: no clock, no chance, no I/O; the same input, the same step.

Every function takes the job as it is and a `Scene`, and returns the job as it shall be with all that
must be written beside it. The two rules it never breaks: a terminal job is never touched, and a job
moves only along edges of its graph.
"""

from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

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
from .decisions import (
    Action,
    AskHuman,
    Decision,
    Dispatch,
    Fail,
    FanOut,
    Finish,
    HandlerFailed,
    Order,
    RunChild,
    Sleep,
    Transition,
)
from .graph import FAILED_STATE
from .step import Scene, Step, retry_at

#: Members that every job meets: to find one through its class costs as much as a third of a record's copy.
_PENDING, _RUNNING = JobStatus.PENDING, JobStatus.RUNNING
_FINISHED, _FAILED = JobStatus.FINISHED, JobStatus.FAILED
_WAITING_FOR_WORKER = JobStatus.WAITING_FOR_WORKER
_JOB_CREATED, _JOB_FINISHED = EventType.JOB_CREATED, EventType.JOB_FINISHED
_STATE_STARTED, _STATE_FINISHED = EventType.STATE_STARTED, EventType.STATE_FINISHED
_TASK_DISPATCHED = EventType.TASK_DISPATCHED


def create(job: Job, scene: Scene) -> Step:
    """The first step of a new job, which was made standing at the start of its graph: its first visit begins."""
    created = Event(
        type=_JOB_CREATED,
        at=scene.now,
        state=job.state,
        status=_PENDING,
        detail={"blueprint": job.blueprint, "version": job.version, "client": job.client},
        actor=f"client:{job.client}" if job.client and job.parent_id is None else None,
    )
    return Step(job=job, events=(created, _started(job, scene)))


def decide(job: Job, decision: Decision, scene: Scene, tasks: tuple[Task, ...] = ()) -> Step:
    """What the handler of the job's state wished for. `tasks` are the branches an aggregator has seen."""
    data, result, found = decision.data, decision.result, decision.search_attributes
    if data or job.data or result is not UNSET or found or tasks or job.handler_failures:
        # Status and wait are the action's: whatever it is, it sets both.
        job = replace(
            job,
            data=data,
            handler_failures=0,
            result=job.result if result is UNSET else result,
            search_attributes={**job.search_attributes, **found} if found else job.search_attributes,
            finished_tasks=remember(job, tasks),
        )
    step = _act(job, decision.action, scene)
    return replace(step, drop_tasks=True) if tasks else step


def _act(job: Job, action: Action, scene: Scene) -> Step:
    # What almost every job does comes first, by its type: a case that does not fit is dear.
    if type(action) is Dispatch:
        return _dispatch(job, action.order, scene)
    if type(action) is Finish:
        return _finish(job, scene)
    if type(action) is Transition:
        return move(job, action.to, scene)
    return _act_seldom(job, action, scene)


def _act_seldom(job: Job, action: FanOut | AskHuman | RunChild | Sleep | Fail, scene: Scene) -> Step:
    match action:
        case FanOut(orders, aggregator):
            return _fan_out(job, orders, aggregator, scene)
        case AskHuman() as ask:
            asked = Event(
                type=EventType.APPROVAL_REQUESTED,
                at=scene.now,
                state=job.state,
                message=ask.message,
                detail={"decisions": sorted(ask.transitions)},
            )
            wait = AwaitHuman(ask.message, ask.transitions, ask.integration)
            return Step(job=park(job, JobStatus.WAITING_FOR_HUMAN, wait, scene), events=(asked,))
        case RunChild() as run:
            return _run_child(job, run, scene)
        case Sleep(seconds, then):
            until = add_seconds(scene.now, seconds)
            slept = Event(
                type=EventType.TIMER_STARTED, at=scene.now, state=job.state, detail={"seconds": seconds}
            )
            timer = AwaitTimer(until, then)
            return Step(job=park(job, JobStatus.WAITING_FOR_TIMER, timer, scene), events=(slept,))
        case Fail(reason, code):
            return fail(job, Fault(code, reason), scene)


def handler_failed(job: Job, failure: HandlerFailed, scene: Scene) -> Step:
    """The handler raised: run it again after a pause, or quarantine when that was often enough."""
    failures = job.handler_failures + 1
    failed = Event(
        type=EventType.STATE_FAILED,
        at=scene.now,
        state=job.state,
        attempt=failures,
        duration_ms=failure.duration_ms,
        code=failure.code,
        message=failure.message,
    )
    job = replace(job, handler_failures=failures, updated_at=scene.now)
    policy = scene.rules.handler_retry
    if failure.final or failures >= policy.max_attempts:
        step = quarantine(job, Fault(failure.code, f"state {job.state!r}: {failure.message}"), scene)
    else:
        until = retry_at(scene.now, policy, failures, scene.chance)
        step = Step(job=park(job, _RUNNING, AwaitRetry(until, failures), scene))
    return replace(step, events=(failed, *step.events))


# -- moving ------------------------------------------------------------------------------------------


def move(job: Job, to: str, scene: Scene, *, drop_tasks: bool = False) -> Step:
    """Leave the state and enter another; its handler can run at once."""
    return follow(job, to, scene, job.data, job.finished_tasks, job.error, drop_tasks=drop_tasks)


def follow(
    job: Job,
    to: str,
    scene: Scene,
    data: dict[str, Any],
    finished_tasks: tuple[FinishedTasks, ...],
    error: Fault | None,
    *,
    drop_tasks: bool = False,
) -> Step:
    """The same, with what a worker's result makes of the job."""
    entered = replace(
        job,
        status=_RUNNING,
        state=to,
        visit=job.visit + 1,
        entered_at=scene.now,
        data=data,
        error=error,
        wait=None,
        waiting_since=None,
        handler_failures=0,
        finished_tasks=finished_tasks,
        updated_at=scene.now,
    )
    started = _started(entered, scene, previous=job.state)
    return Step(job=entered, drop_tasks=drop_tasks, events=(_left(job, scene, to), started))


def park(job: Job, status: JobStatus, wait: Wait, scene: Scene) -> Job:
    """The job waits for `wait`."""
    return replace(job, status=status, wait=wait, waiting_since=scene.now, updated_at=scene.now)


def fail(job: Job, fault: Fault, scene: Scene, failed_state: str | None = None) -> Step:
    """Through the state `failed` where the blueprint has one (its handler runs), else straight to the end."""
    if failed_state is None and scene.graph is not None:
        failed_state = scene.graph.failed_state
    job = replace(job, error=fault)
    if failed_state is not None and job.state != failed_state:
        return move(job, failed_state, scene, drop_tasks=True)
    return end(job, _FAILED, scene)


def quarantine(job: Job, fault: Fault, scene: Scene) -> Step:
    """Settled, not terminal: everything stays as it is until a person decides."""
    settled = replace(
        job,
        status=JobStatus.QUARANTINED,
        error=fault,
        wait=None,
        waiting_since=scene.now,
        updated_at=scene.now,
    )
    event = Event(
        type=EventType.JOB_QUARANTINED,
        at=scene.now,
        state=job.state,
        status=JobStatus.QUARANTINED,
        code=fault.code,
        message=fault.message,
    )
    return Step(job=settled, events=(event,))


def end(job: Job, status: JobStatus, scene: Scene, *, unconfirmed: bool = False) -> Step:
    """The end of a job, and the word of it to its parent."""
    ended = replace(
        job,
        status=status,
        wait=None,
        waiting_since=None,
        finished_at=scene.now,
        updated_at=scene.now,
        unconfirmed=unconfirmed,
    )
    finished = Event(
        type=_JOB_FINISHED,
        at=scene.now,
        state=job.state,
        status=status,
        duration_ms=elapsed_ms(job.created_at, scene.now),
        code=job.error.code if job.error else None,
        message=job.error.message if job.error else None,
        detail={"unconfirmed": True} if unconfirmed else {},
    )
    return Step(
        job=ended, drop_tasks=True, messages=_tell_parent(ended), events=(_left(job, scene, None), finished)
    )


def remember(job: Job, tasks: tuple[Task, ...]) -> tuple[FinishedTasks, ...]:
    """The job's waves with one more: these tasks are over, and their results may be sent again."""
    if not tasks:
        return job.finished_tasks
    odd = {}
    for task in tasks:
        if task.accepted_attempts != (1,):
            odd[task.index] = task.accepted_attempts
    return with_wave(job, tasks[0].id, len(tasks), odd)


def with_wave(
    job: Job, task_id: str, size: int, odd: dict[int, tuple[int, ...]]
) -> tuple[FinishedTasks, ...]:
    """The same for as many tasks, of which this is one; `odd` are those of whom not just the first attempt was heard."""
    visit = int(task_id.rsplit("_", 2)[1])
    return (*job.finished_tasks, FinishedTasks(visit, size, odd))[-FINISHED_TASKS_KEPT:]


# -- the single actions ------------------------------------------------------------------------------


def _dispatch(job: Job, order: Order, scene: Scene) -> Step:
    task = _task(job, order, 0, scene)
    unhandled = scene.graph.failed_state if scene.graph is not None else None
    parked = park(job, _WAITING_FOR_WORKER, AwaitTask(task.id, unhandled), scene)
    return Step(job=parked, tasks=(TaskWrite(task),), events=(_dispatched(job, task, scene),))


def _fan_out(job: Job, orders: tuple[Order, ...], aggregator: str, scene: Scene) -> Step:
    tasks = [_task(job, order, index, scene, branch=True) for index, order in enumerate(orders)]
    parked = park(job, JobStatus.WAITING_FOR_PARALLEL, AwaitBranches(aggregator, len(tasks)), scene)
    return Step(
        job=parked,
        tasks=tuple(TaskWrite(task) for task in tasks),
        opens_branches=len(tasks),
        events=tuple(_dispatched(job, task, scene) for task in tasks),
    )


def _task(job: Job, order: Order, index: int, scene: Scene, branch: bool = False) -> Task:
    rules, now = scene.rules, scene.now
    # A call with more than fifteen names costs four times as much: what few ask for is added where it is.
    task = Task(
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
        queued_at=now,
    )
    dispatch_s = order.dispatch_timeout_s or job.dispatch_timeout_s
    result_s = order.result_timeout_s or job.result_timeout_s
    if dispatch_s or result_s:
        dispatch_by = add_seconds(now, dispatch_s) if dispatch_s else None
        result_by = add_seconds(now, result_s) if result_s else None
        task = replace(task, dispatch_by=dispatch_by, result_by=result_by)
    if order.heartbeat_timeout_s or order.strategy or order.max_cost is not None:
        task = replace(
            task,
            heartbeat_timeout_s=order.heartbeat_timeout_s,
            strategy=order.strategy,
            max_cost=order.max_cost,
        )
    return task


def _run_child(job: Job, run: RunChild, scene: Scene) -> Step:
    graph = scene.find(run.blueprint)
    if graph is None:
        return quarantine(job, Fault("blueprint_not_found", f"no blueprint named {run.blueprint!r}"), scene)
    if job.depth >= scene.rules.max_depth:
        message = f"expected at most {scene.rules.max_depth} nested jobs, {run.blueprint!r} would be one more"
        return quarantine(job, Fault("too_deep", message), scene)
    child_id = derived_id("child", job.id, str(job.visit))
    born = Job(
        id=child_id,
        blueprint=graph.blueprint,
        version=graph.version,
        state=graph.start,
        created_at=scene.now,
        updated_at=scene.now,
        client=job.client,
        revision=1,
        input=run.input,
        priority=job.priority,
        # What needs a person is told by the child itself; its end is not (notices.py).
        webhook_url=job.webhook_url,
        parent_id=job.id,
        depth=job.depth + 1,
        tracing_context=job.trace,
    )
    first = create(replace(born, visit=1, entered_at=scene.now), scene)
    child = ChildJob(first.job, first.events)
    unhandled = scene.graph.failed_state if scene.graph is not None else None
    wait = AwaitChild(child_id, run.blueprint, run.transitions, unhandled)
    event = Event(
        type=EventType.CHILD_STARTED,
        at=scene.now,
        state=job.state,
        detail={"child_id": child_id, "blueprint": run.blueprint},
    )
    return Step(job=park(job, JobStatus.WAITING_FOR_CHILD, wait, scene), children=(child,), events=(event,))


def _finish(job: Job, scene: Scene) -> Step:
    info = scene.graph.states.get(job.state) if scene.graph is not None else None
    failed = info is not None and info.outcome == FAILED_STATE
    if failed and job.error is None:
        job = replace(job, error=Fault("ended_as_failed", f"the job ended in state {job.state!r}"))
    return end(job, _FAILED if failed else _FINISHED, scene)


# -- events ------------------------------------------------------------------------------------------


def _started(job: Job, scene: Scene, previous: str | None = None) -> Event:
    return Event(
        type=_STATE_STARTED,
        at=scene.now,
        state=job.state,
        previous_state=previous,
        snapshot=job.data,
    )


def _left(job: Job, scene: Scene, to: str | None) -> Event:
    return Event(
        type=_STATE_FINISHED,
        at=scene.now,
        state=job.state,
        next_state=to,
        duration_ms=elapsed_ms(job.entered_at or job.created_at, scene.now),
    )


def _dispatched(job: Job, task: Task, scene: Scene) -> Event:
    return Event(
        type=_TASK_DISPATCHED,
        at=scene.now,
        state=job.state,
        task_id=task.id,
        attempt=task.attempt,
        detail={"type": task.type, "queue": task.queue or task.type},
    )


def _tell_parent(job: Job) -> tuple[JobMessage, ...]:
    if job.parent_id is None:
        return ()
    body = {
        "status": job.status.value,
        "state": job.state,
        "result": job.result,
        "error": {"code": job.error.code, "message": job.error.message} if job.error else None,
    }
    return (JobMessage(f"ended:{job.id}", JobMessageKind.CHILD_ENDED, job.parent_id, job.id, body),)
