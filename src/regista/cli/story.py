"""Story: what the events of a job add up to, for whoever watches. Pure; drawing is done elsewhere."""

from dataclasses import dataclass, field
from datetime import datetime

from ..model import Event, EventType
from ..wire.jobs import Progress
from .output import visible

#: What an event makes of the task that it names.
_TASK_STATES = {
    EventType.TASK_DISPATCHED: "waits for a worker",
    EventType.TASK_STARTED: "runs",
    EventType.TASK_FINISHED: "done",
    EventType.TASK_FAILED: "failed",
    EventType.TASK_LOST: "lost its worker",
    EventType.TASK_UNDELIVERED: "did not reach its worker",
    EventType.TASK_TIMED_OUT: "timed out",
    EventType.TASK_RETRIED: "is tried again",
}


#: How often plain lines tell of the progress of one task.
_PROGRESS_EVERY_S = 1.0


@dataclass(slots=True)
class Stay:
    """One visit to a state."""

    state: str
    began: datetime
    ended: datetime | None = None


@dataclass(slots=True)
class Piece:
    """One task, as far as it has come."""

    type: str
    attempt: int = 1
    worker: str = ""
    state: str = ""
    progress: float | None = None
    message: str = ""

    @property
    def over(self) -> bool:
        """Nothing more is expected of it."""
        return self.state in {"done", "failed", "timed out"}


@dataclass(slots=True)
class Story:
    """Listens to a job's events and knows where it stands."""

    job_id: str
    blueprint: str = ""
    status: str = "pending"
    began: datetime | None = None
    ended: datetime | None = None
    #: What a person should know right now.
    waits: str = ""
    stays: list[Stay] = field(default_factory=list)
    pieces: dict[str, Piece] = field(default_factory=dict)

    def hear(self, event: Event | Progress) -> None:
        """Take in what happened."""
        if isinstance(event, Progress):
            self._hear_progress(event)
            return
        self.began = self.began or event.at
        if event.type in _TASK_STATES and event.task_id:
            self._hear_task(event, event.task_id)
        else:
            self._hear_job(event)

    def _hear_progress(self, event: Progress) -> None:
        # A stream names the attempt (`…-2`), history the task.
        piece = self.pieces.get(event.task_id) or self.pieces.get(event.task_id.rpartition("-")[0])
        if piece is not None:
            piece.progress = event.progress if event.progress is not None else piece.progress
            piece.message = event.message or piece.message

    def _hear_task(self, event: Event, task_id: str) -> None:
        piece = self.pieces.get(task_id)
        if piece is None:
            piece = self.pieces[task_id] = Piece(str(event.detail.get("type", "task")))
        piece.attempt = event.attempt or piece.attempt
        piece.worker = event.worker_id or piece.worker
        piece.state = _TASK_STATES[event.type]
        piece.message = event.message or ""
        if event.type is EventType.TASK_FINISHED:
            piece.progress = 1.0
        elif event.type is EventType.TASK_RETRIED:
            piece.progress = None
        self.status = "running"

    def _hear_job(self, event: Event) -> None:
        self.waits = ""
        match event.type:
            case EventType.JOB_CREATED:
                self.blueprint = str(event.detail.get("blueprint", ""))
            case EventType.STATE_STARTED:
                self.stays.append(Stay(event.state or "", event.at))
                self.pieces.clear()
                self.status = "running"
            case EventType.STATE_FINISHED if self.stays:
                self.stays[-1].ended = event.at
            case EventType.STATE_FAILED:
                self.waits = f"its handler raised: {event.message}"
            case EventType.APPROVAL_REQUESTED:
                self.status, self.waits = "waiting_for_human", event.message or "a decision"
            case EventType.CHILD_STARTED:
                self.status, self.waits = "waiting_for_child", str(event.detail.get("child_id", ""))
            case EventType.TIMER_STARTED:
                self.status, self.waits = (
                    "waiting_for_timer",
                    f"{round(float(event.detail.get('seconds', 0)), 3)} s",
                )
            case EventType.CANCEL_REQUESTED:
                self.status, self.waits = "cancelling", event.message or ""
            case EventType.JOB_QUARANTINED:
                self.status, self.waits = "quarantined", event.message or event.code or ""
            case EventType.JOB_FINISHED:
                self.status, self.ended = event.status or "finished", event.at


class Teller:
    """Tells events as plain lines, one by one; it remembers what it has told."""

    def __init__(self) -> None:
        self._began: datetime | None = None
        #: Task → its type: only the first event of a task names it.
        self._types: dict[str, str] = {}
        self._progress_told: dict[str, datetime] = {}

    def line(self, event: Event | Progress) -> str:
        """An event as one line: seconds since the first, what it is, and what is special about it.

        Empty for progress that comes too soon after the last of its task: lines are not a bar.
        """
        self._began = self._began or event.at
        if isinstance(event, Progress):
            last = self._progress_told.get(event.task_id)
            if last is not None and (event.at - last).total_seconds() < _PROGRESS_EVERY_S:
                return ""
            self._progress_told[event.task_id] = event.at
        since = (event.at - self._began).total_seconds()
        line = f"{since:8.3f} s  {event.type:<18}  {self._words(event)}".rstrip()
        return visible(line, one_line=True)

    def _words(self, event: Event | Progress) -> str:
        if isinstance(event, Progress):
            share = "" if event.progress is None else f"{event.progress:.0%}"
            name = self._types.get(event.task_id.rpartition("-")[0], "")
            return ", ".join(filter(None, (name, share, event.message)))
        if event.type in _TASK_STATES:
            return self._task_words(event)
        # Whose job it is, its reader knows.
        actor = event.actor if event.type is not EventType.JOB_CREATED else None
        return ", ".join(filter(None, (told(event), f"by {actor}" if actor else "")))

    def _task_words(self, event: Event) -> str:
        task_id = event.task_id or ""
        if "type" in event.detail:
            self._types[task_id] = str(event.detail["type"])
        name = self._types.get(task_id, "task")
        words = [f"{name}, attempt {event.attempt}" if event.attempt else name]
        words += [f"by {event.worker_id}"] if event.worker_id else []
        words += [f"{event.code}: {event.message}" if event.message else event.code] if event.code else []
        return ", ".join(words)


def told(event: Event) -> str:
    """The part of an event that tells it from the others of its kind."""
    match event.type:
        case EventType.STATE_STARTED:
            return event.state or ""
        case EventType.STATE_FINISHED:
            return f"{event.state} → {event.next_state or 'the end'}"
        case EventType.JOB_CREATED:
            return str(event.detail.get("blueprint", ""))
        case EventType.CHILD_STARTED | EventType.CHILD_FINISHED:
            return f"{event.detail.get('child_id', '')} {event.status or ''}".strip()
        case EventType.APPROVAL_GIVEN:
            return f"{event.code or ''} {event.message or ''}".strip()
        case _:
            return " ".join(filter(None, (event.status, event.code, event.message)))
