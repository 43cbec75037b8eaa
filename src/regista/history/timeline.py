"""A job's events become spans of time. Pure: the same events, the same timeline."""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

from ..model import Event, EventType
from ..model.timeline import AttemptSpan, StateSpan, TaskSpan, Timeline, Wait

#: What ends an attempt, and what that makes of it.
_ENDS = {
    EventType.TASK_FINISHED: "finished",
    EventType.TASK_FAILED: "failed",
    EventType.TASK_LOST: "lost",
    EventType.TASK_UNDELIVERED: "undelivered",
    EventType.TASK_TIMED_OUT: "timed_out",
}
_OPEN = frozenset({"queued", "started"})


def timeline_of(
    job_id: str, events: Iterable[Event], at: datetime, *, status: str = "", truncated: bool = False
) -> Timeline:
    """The life that these events tell, as it looks at `at`. What has no end yet has none here.

    `status` is what the job is now; without it, what the events say.
    """
    teller = _Teller(job_id)
    for event in events:
        teller.hear(event)
    return teller.timeline(at, status, truncated)


class _Attempt:
    """An attempt while its events are read."""

    def __init__(self, number: int, queued_at: datetime) -> None:
        self.number = number
        self.queued_at = queued_at
        self.started_at: datetime | None = None
        self.ended_at: datetime | None = None
        self.outcome = "queued"
        self.worker_id: str | None = None
        self.code: str | None = None
        self.message: str | None = None
        #: Seconds for which nobody was to have it, before another try.
        self.pause_s = 0.0

    def span(self) -> AttemptSpan:
        return AttemptSpan(
            attempt=self.number,
            outcome=self.outcome,
            queued_at=self.queued_at,
            started_at=self.started_at,
            ended_at=self.ended_at,
            worker_id=self.worker_id,
            code=self.code,
            message=self.message,
        )

    def waits(self) -> list[Wait]:
        """First for its time to come, then for a worker."""
        found: list[Wait] = []
        left_at = self.started_at or self.ended_at
        ripe_at = self.queued_at + timedelta(seconds=self.pause_s)
        if self.pause_s:
            until = ripe_at if left_at is None else min(ripe_at, left_at)
            found.append(
                Wait(
                    reason="retry", began_at=self.queued_at, ended_at=until, detail={"seconds": self.pause_s}
                )
            )
        if left_at is None or left_at > ripe_at:
            found.append(Wait(reason="worker", began_at=ripe_at, ended_at=left_at))
        return found


class _Task:
    def __init__(self, task_id: str, kind: str, queue: str, began_at: datetime) -> None:
        self.task_id = task_id
        self.kind = kind
        self.queue = queue
        self.began_at = began_at
        self.attempts: dict[int, _Attempt] = {}

    def attempt(self, number: int, at: datetime) -> _Attempt:
        return self.attempts.setdefault(number, _Attempt(number, at))

    def span(self) -> TaskSpan:
        tries = list(self.attempts.values())
        last = tries[-1] if tries else None
        return TaskSpan(
            task_id=self.task_id,
            type=self.kind,
            queue=self.queue,
            began_at=self.began_at,
            outcome="queued" if last is None else last.outcome,
            ended_at=None if last is None else last.ended_at,
            attempts=[one.span() for one in tries],
            waits=[wait for one in tries for wait in one.waits()],
        )


class _State:
    def __init__(self, state: str, began_at: datetime) -> None:
        self.state = state
        self.began_at = began_at
        self.ended_at: datetime | None = None
        self.next_state: str | None = None
        self.tasks: dict[str, _Task] = {}
        self.waits: list[Wait] = []
        self.failures = 0
        #: What it waits for right now.
        self.waiting: Wait | None = None

    def wait(self, reason: str, at: datetime, **detail: Any) -> None:
        self.go_on(at)
        told = {name: value for name, value in detail.items() if value is not None}
        self.waiting = Wait(reason=reason, began_at=at, detail=told)

    def go_on(self, at: datetime) -> None:
        """Whatever it waited for has come."""
        if self.waiting is not None:
            ended = Wait(
                reason=self.waiting.reason,
                began_at=self.waiting.began_at,
                ended_at=at,
                detail=self.waiting.detail,
            )
            self.waits.append(ended)
            self.waiting = None

    def leave(self, at: datetime) -> None:
        self.go_on(at)
        self.ended_at = at
        for task in self.tasks.values():
            for attempt in task.attempts.values():
                if attempt.outcome in _OPEN:  # called off with its job, or overtaken
                    attempt.outcome, attempt.ended_at = "cancelled", at

    def span(self) -> StateSpan:
        return StateSpan(
            state=self.state,
            began_at=self.began_at,
            ended_at=self.ended_at,
            next_state=self.next_state,
            tasks=[task.span() for task in self.tasks.values()],
            waits=[*self.waits, self.waiting] if self.waiting is not None else self.waits,
            failures=self.failures,
        )


class _Teller:
    """Hears events in their order, and knows the spans that they make."""

    def __init__(self, job_id: str) -> None:
        self._job_id = job_id
        self._blueprint = ""
        self._status = ""
        self._began_at: datetime | None = None
        self._ended_at: datetime | None = None
        self._states: list[_State] = []
        #: Of all states: a late word about a task may come after its state was left.
        self._tasks: dict[str, _Task] = {}

    def hear(self, event: Event) -> None:
        self._began_at = self._began_at or event.at
        if event.type is EventType.JOB_CREATED:
            self._blueprint = str(event.detail.get("blueprint", ""))
        elif event.type is EventType.STATE_STARTED:
            self._states.append(_State(event.state or "", event.at))
        elif event.task_id is not None:
            self._hear_task(event, event.task_id)
        elif self._states:
            _STATE_WORDS.get(event.type, _nothing)(self._states[-1], event)
        if event.type is EventType.JOB_FINISHED:
            self._status, self._ended_at = event.status or "", event.at
            if self._states and self._states[-1].ended_at is None:
                self._states[-1].leave(event.at)

    def _hear_task(self, event: Event, task_id: str) -> None:
        task = self._tasks.get(task_id)
        if task is None:
            detail = event.detail
            kind = str(detail.get("type", ""))
            task = self._tasks[task_id] = _Task(task_id, kind, str(detail.get("queue", kind)), event.at)
            if self._states:
                self._states[-1].tasks[task_id] = task
        attempt = task.attempt(event.attempt or 1, event.at)
        attempt.worker_id = event.worker_id or attempt.worker_id
        if event.type is EventType.TASK_RETRIED:
            attempt.pause_s = float(event.detail.get("seconds", 0.0))
            attempt.worker_id = None
        elif event.type is EventType.TASK_STARTED:
            attempt.outcome, attempt.started_at = "started", event.at
        elif event.type in _ENDS:
            attempt.outcome = "cancelled" if event.status == "cancelled" else _ENDS[event.type]
            attempt.ended_at, attempt.code, attempt.message = event.at, event.code, event.message

    def timeline(self, at: datetime, status: str, truncated: bool) -> Timeline:
        return Timeline(
            job_id=self._job_id,
            blueprint=self._blueprint,
            status=status or self._status or "running",
            began_at=self._began_at or at,
            at=at,
            ended_at=self._ended_at,
            states=[state.span() for state in self._states],
            truncated=truncated,
        )


def _nothing(state: _State, event: Event) -> None:
    return None


def _left(state: _State, event: Event) -> None:
    state.next_state = event.next_state
    state.leave(event.at)


def _failed(state: _State, event: Event) -> None:
    state.failures += 1
    state.wait("retry", event.at, code=event.code, message=event.message)


def _went_on(state: _State, event: Event) -> None:
    state.go_on(event.at)


#: What an event that names no task means for the state that the job is in.
_STATE_WORDS: dict[EventType, Callable[[_State, Event], None]] = {
    EventType.STATE_FINISHED: _left,
    EventType.STATE_FAILED: _failed,
    EventType.APPROVAL_REQUESTED: lambda state, event: state.wait("human", event.at, message=event.message),
    EventType.APPROVAL_GIVEN: _went_on,
    EventType.CHILD_STARTED: lambda state, event: state.wait("child", event.at, **event.detail),
    EventType.CHILD_FINISHED: _went_on,
    EventType.TIMER_STARTED: lambda state, event: state.wait("timer", event.at, **event.detail),
    EventType.TIMER_FIRED: _went_on,
    EventType.CANCEL_REQUESTED: lambda state, event: state.wait("cancel", event.at, message=event.message),
    EventType.JOB_QUARANTINED: lambda state, event: state.wait(
        "release", event.at, code=event.code, message=event.message
    ),
    EventType.JOB_RELEASED: _went_on,
}
