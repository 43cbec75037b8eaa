"""JobProjection: what the events of a job add up to. Pure; the API, the command line and timelines use it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from ..clock import EPOCH
from ..model import AttemptState, Event, EventType, Task
from ..model.event import ATTEMPT_OUTCOMES, attempt_state_of
from .timeline import AttemptSpan, StateSpan, TaskSpan, Timeline, Wait

#: States of an attempt that has not ended.
OPEN_ATTEMPTS = frozenset({"queued", "offered", "started"})
_CLOSED = AttemptState.CLOSED
#: Members that most events meet: to find one through its class costs more than to compare it.
_RETRIED, _STARTED, _FINISHED = EventType.TASK_RETRIED, EventType.TASK_STARTED, EventType.TASK_FINISHED
_STATE_STARTED, _JOB_FINISHED = EventType.STATE_STARTED, EventType.JOB_FINISHED


def task_label(task_id: str, type: str, branches: int) -> str:
    """How a task is called wherever people see it: by its type, and among several branches with its number."""
    index = task_id.rpartition("_")[2]
    return f"{type} #{int(index) + 1}" if branches > 1 and index.isdecimal() else type


@dataclass(slots=True)
class AttemptView:
    """One attempt of a task."""

    task_id: str
    type: str
    number: int
    queued_at: datetime
    #: queued, offered, started; then finished, failed, lost, undelivered, timed_out or cancelled.
    state: str = "queued"
    worker_id: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    code: str | None = None
    message: str | None = None
    #: Further fields of the end's event.
    detail: dict[str, Any] = field(default_factory=dict)
    #: Seconds of pause before it may be given to a worker.
    pause_s: float = 0.0

    @property
    def id(self) -> str:
        """The id of the attempt."""
        return f"{self.task_id}-{self.number}"

    def apply(self, event: Event, state: str) -> None:
        """One more event of this attempt, and the state that it means."""
        self.state = state
        if event.type is _RETRIED:
            self.pause_s = float(event.detail.get("seconds", 0.0))
            return
        self.worker_id = event.worker_id or self.worker_id
        if event.type is _STARTED:
            self.started_at = event.at
        elif event.type in ATTEMPT_OUTCOMES:
            self.ended_at, self.code, self.message = event.at, event.code, event.message
            self.detail = event.detail

    def span(self) -> AttemptSpan:
        """The attempt as a part of a timeline."""
        return AttemptSpan(
            attempt=self.number,
            outcome=self.state,
            queued_at=self.queued_at,
            started_at=self.started_at,
            ended_at=self.ended_at,
            worker_id=self.worker_id,
            code=self.code,
            message=self.message,
        )

    def waits(self) -> list[Wait]:
        """The pause before the attempt, then the wait for a worker."""
        found: list[Wait] = []
        left_at = self.started_at or self.ended_at
        ready_at = self.queued_at + timedelta(seconds=self.pause_s)
        if self.pause_s:
            until = ready_at if left_at is None else min(ready_at, left_at)
            detail = {"seconds": self.pause_s}
            found.append(Wait(reason="retry", began_at=self.queued_at, ended_at=until, detail=detail))
        if left_at is None or left_at > ready_at:
            found.append(Wait(reason="worker", began_at=ready_at, ended_at=left_at))
        return found


@dataclass(slots=True)
class TaskView:
    """One task of a state, with its attempts."""

    task_id: str
    type: str
    queue: str
    began_at: datetime
    #: When the last event of it happened.
    changed_at: datetime
    #: How many branches were dispatched with it, itself among them.
    branches: int = 1
    attempts: dict[int, AttemptView] = field(default_factory=dict)
    #: 0 to 1, where the worker reports it.
    progress: float | None = None
    message: str = ""

    @property
    def label(self) -> str:
        """See `task_label`."""
        return task_label(self.task_id, self.type or "task", self.branches)

    @property
    def last(self) -> AttemptView:
        """The last attempt."""
        return next(reversed(self.attempts.values()))

    @property
    def never_claimed(self) -> bool:
        """No worker has taken it yet, and it is not tried again."""
        return len(self.attempts) == 1 and self.last.state == "queued"

    def span(self) -> TaskSpan:
        """The task as a part of a timeline."""
        attempts = list(self.attempts.values())
        return TaskSpan(
            task_id=self.task_id,
            type=self.type,
            queue=self.queue,
            began_at=self.began_at,
            outcome=self.last.state,
            ended_at=self.last.ended_at,
            attempts=[attempt.span() for attempt in attempts],
            waits=[wait for attempt in attempts for wait in attempt.waits()],
        )


@dataclass(slots=True)
class StateVisit:
    """One visit to a state."""

    state: str
    began_at: datetime
    ended_at: datetime | None = None
    next_state: str | None = None
    tasks: dict[str, TaskView] = field(default_factory=dict)
    waits: list[Wait] = field(default_factory=list)
    #: How often its handler failed.
    failures: int = 0
    #: What it waits for now.
    waiting: Wait | None = None

    def wait(self, reason: str, at: datetime, **detail: Any) -> None:
        """It waits for something from now on."""
        self.resume(at)
        given = {name: value for name, value in detail.items() if value is not None}
        self.waiting = Wait(reason=reason, began_at=at, detail=given)

    def resume(self, at: datetime) -> None:
        """What it waited for has come."""
        if self.waiting is not None:
            wait = self.waiting
            self.waits.append(
                Wait(reason=wait.reason, began_at=wait.began_at, ended_at=at, detail=wait.detail)
            )
            self.waiting = None

    def leave(self, at: datetime) -> None:
        """The job goes on to another state, or ends. Attempts that are still open are cancelled with it."""
        self.resume(at)
        self.ended_at = at
        for task in self.tasks.values():
            for attempt in task.attempts.values():
                if attempt.state in OPEN_ATTEMPTS:
                    attempt.state, attempt.ended_at = "cancelled", at

    def span(self) -> StateSpan:
        """The visit as a part of a timeline."""
        return StateSpan(
            state=self.state,
            began_at=self.began_at,
            ended_at=self.ended_at,
            next_state=self.next_state,
            tasks=[task.span() for task in self.tasks.values()],
            waits=[*self.waits, self.waiting] if self.waiting is not None else self.waits,
            failures=self.failures,
        )


class JobProjection:
    """The state of a job as its events tell it, in their order."""

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        self.blueprint = ""
        self.status = "pending"
        self.began_at: datetime | None = None
        self.ended_at: datetime | None = None
        self.states: list[StateVisit] = []
        #: Of all states: a late event of a task may come after its state was left.
        self.tasks: dict[str, TaskView] = {}
        #: The answers that a person may give, while one is asked.
        self.decisions: tuple[str, ...] = ()
        self._attempts: dict[str, AttemptView] = {}
        self._seconds = self._cost = 0.0
        self._seq = 0

    def apply(self, event: Event) -> None:
        """Take an event in. One with a seq that was applied before changes nothing."""
        if event.seq:
            if event.seq <= self._seq:
                return
            self._seq = event.seq
        self.began_at = self.began_at or event.at
        state = attempt_state_of(event)
        if state is not None and event.task_id is not None:
            self._apply_to_task(event, event.task_id, state)
        else:
            self._apply_to_job(event)

    def apply_progress(self, task_id: str, progress: float | None, message: str) -> None:
        """The worker of a task has reported progress."""
        task = self.tasks.get(task_id)
        if task is not None:
            task.progress = task.progress if progress is None else progress
            task.message = message or task.message

    @property
    def waiting(self) -> Wait | None:
        """What the job waits for now, where that is not a worker."""
        return self.states[-1].waiting if self.states else None

    @property
    def open_tasks(self) -> list[TaskView]:
        """The tasks of the state that the job is in."""
        return list(self.states[-1].tasks.values()) if self.states and self.ended_at is None else []

    def attempts(self, open_tasks: Sequence[Task] = ()) -> list[AttemptView]:
        """All attempts, in the order in which they began. `open_tasks` know more of theirs than the events do yet."""
        found = dict(self._attempts)
        for task in open_tasks:
            if task.state is not _CLOSED:
                known = found.get(task.attempt_id)
                if known is None:
                    queued_at = task.queued_at or task.offered_at or EPOCH
                    known = AttemptView(task.id, task.type, task.attempt, queued_at)
                found[task.attempt_id] = replace(
                    known,
                    type=task.type,
                    state=task.state.value,
                    worker_id=task.worker_id,
                    started_at=task.started_at or known.started_at,
                    ended_at=None,
                )
        return list(found.values())

    def bill(self) -> tuple[float, float]:
        """What all attempts took, in seconds and in cost."""
        return round(self._seconds, 6), round(self._cost, 9)

    def timeline(self, at: datetime, status: str = "", truncated: bool = False) -> Timeline:
        """The job's life in spans of time, as it looks at `at`; `status` is what the job is now."""
        return Timeline(
            job_id=self.job_id,
            blueprint=self.blueprint,
            status=status or (self.status if self.ended_at is not None else "running"),
            began_at=self.began_at or at,
            at=at,
            ended_at=self.ended_at,
            states=[state.span() for state in self.states],
            truncated=truncated,
        )

    # -- events ----------------------------------------------------------------------------------

    def _apply_to_task(self, event: Event, task_id: str, state: str) -> None:
        task = self.tasks.get(task_id)
        if task is None:
            task = self._new_task(event, task_id)
        number = event.attempt or 1
        attempt = task.attempts.get(number)
        if attempt is None:
            attempt = task.attempts[number] = AttemptView(task_id, task.type, number, event.at)
            self._attempts[attempt.id] = attempt
        attempt.apply(event, state)
        task.changed_at, task.message = event.at, event.message or ""
        if event.type is _FINISHED and state != "cancelled":
            task.progress = 1.0
        elif event.type is _RETRIED:
            task.progress = None
        if event.type in ATTEMPT_OUTCOMES:
            self._seconds += (event.duration_ms or 0.0) / 1000
            self._cost += event.detail.get("cost", 0.0) if event.detail else 0.0
        if self.ended_at is None and self.status != "cancelling":
            self.status = "running"

    def _new_task(self, event: Event, task_id: str) -> TaskView:
        detail = event.detail
        type = str(detail.get("type", ""))
        queue, branches = str(detail.get("queue", type)), int(detail.get("branches", 1))
        task = self.tasks[task_id] = TaskView(task_id, type, queue, event.at, event.at, branches)
        if self.states:
            self.states[-1].tasks[task_id] = task
        return task

    def _apply_to_job(self, event: Event) -> None:
        if event.type is EventType.JOB_CREATED:
            self.blueprint = str(event.detail.get("blueprint", ""))
        elif event.type is _STATE_STARTED:
            self.states.append(StateVisit(event.state or "", event.at))
            self.status = "running"
        elif self.states and event.type in _STATE_EVENTS:
            _STATE_EVENTS[event.type](self.states[-1], event)
            self.status = _STATUSES.get(event.type, "running")
        if event.type is EventType.APPROVAL_REQUESTED:
            self.decisions = tuple(event.detail.get("decisions", ()))
        elif event.type is _JOB_FINISHED:
            self.status, self.ended_at = event.status or "finished", event.at
            if self.states and self.states[-1].ended_at is None:
                self.states[-1].leave(event.at)


def _left(state: StateVisit, event: Event) -> None:
    state.next_state = event.next_state
    state.leave(event.at)


def _failed(state: StateVisit, event: Event) -> None:
    state.failures += 1
    state.wait("retry", event.at, code=event.code, message=event.message)


def _resumed(state: StateVisit, event: Event) -> None:
    state.resume(event.at)


#: What an event that names no task means for the state that the job is in.
_STATE_EVENTS: dict[EventType, Callable[[StateVisit, Event], None]] = {
    EventType.STATE_FINISHED: _left,
    EventType.STATE_FAILED: _failed,
    EventType.APPROVAL_REQUESTED: lambda state, event: state.wait("human", event.at, message=event.message),
    EventType.APPROVAL_GIVEN: _resumed,
    EventType.CHILD_STARTED: lambda state, event: state.wait("child", event.at, **event.detail),
    EventType.CHILD_FINISHED: _resumed,
    EventType.TIMER_STARTED: lambda state, event: state.wait("timer", event.at, **event.detail),
    EventType.TIMER_FIRED: _resumed,
    EventType.CANCEL_REQUESTED: lambda state, event: state.wait("cancel", event.at, message=event.message),
    EventType.JOB_QUARANTINED: lambda state, event: state.wait(
        "release", event.at, code=event.code, message=event.message
    ),
    EventType.JOB_RELEASED: _resumed,
}
#: The status that goes with it, where that is not running.
_STATUSES = {
    EventType.APPROVAL_REQUESTED: "waiting_for_human",
    EventType.CHILD_STARTED: "waiting_for_child",
    EventType.TIMER_STARTED: "waiting_for_timer",
    EventType.CANCEL_REQUESTED: "cancelling",
    EventType.JOB_QUARANTINED: "quarantined",
}
