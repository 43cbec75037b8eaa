"""Story: what the events of a job add up to, for whoever watches. Pure; drawing is done elsewhere."""

from dataclasses import dataclass, field
from datetime import datetime

from ..model import Event, EventType
from ..schemas.jobs import Progress
from .output import visible

_WAITS = "waits for a worker"
#: What an event makes of the task that it names.
_TASK_STATES = {
    EventType.TASK_DISPATCHED: _WAITS,
    EventType.TASK_STARTED: "runs",
    EventType.TASK_FINISHED: "done",
    EventType.TASK_FAILED: "failed",
    EventType.TASK_LOST: "lost its worker",
    EventType.TASK_UNDELIVERED: "did not reach its worker",
    EventType.TASK_TIMED_OUT: "timed out",
    EventType.TASK_RETRIED: "is tried again",
}


#: What goes without saying at the end of a task: its event has the same word, or its code says more.
_EXPECTED = (None, "success", "failure")
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
    #: When the last was heard of it.
    at: datetime
    attempt: int = 1
    worker: str = ""
    state: str = ""
    progress: float | None = None
    message: str = ""

    @property
    def over(self) -> bool:
        """Nothing more is expected of it."""
        return self.state in {"done", "cancelled", "failed", "timed out"}


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
    #: The words that a person may answer with, while one is asked.
    decisions: tuple[str, ...] = ()
    stays: list[Stay] = field(default_factory=list)
    pieces: dict[str, Piece] = field(default_factory=dict)

    @property
    def unclaimed(self) -> datetime | None:
        """Since when a task waits that no worker has taken; None when there is none."""
        return min((piece.at for piece in self.pieces.values() if piece.state == _WAITS), default=None)

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
        piece = self.pieces.get(event.task_id)
        if piece is not None:
            piece.progress = event.progress if event.progress is not None else piece.progress
            piece.message = event.message or piece.message

    def _hear_task(self, event: Event, task_id: str) -> None:
        piece = self.pieces.get(task_id)
        if piece is None:
            piece = self.pieces[task_id] = Piece(str(event.detail.get("type", "task")), event.at)
        piece.at = event.at
        piece.attempt = event.attempt or piece.attempt
        piece.worker = event.worker_id or piece.worker
        piece.state = _TASK_STATES[event.type]
        piece.message = event.message or ""
        if event.status == "cancelled":
            piece.state = "cancelled"
        elif event.type is EventType.TASK_FINISHED:
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
                self.decisions = tuple(event.detail.get("decisions", ()))
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
                self.pieces.clear()
                self.status, self.ended = event.status or "finished", event.at


class Teller:
    """Tells events as plain lines, one by one; it remembers what it has told."""

    def __init__(self) -> None:
        self._began: datetime | None = None
        #: Task → its type: only the first event of a task names it.
        self._types: dict[str, str] = {}
        self._progress_told: dict[str, datetime] = {}
        #: Tasks of which a worker is known to have begun.
        self._begun: set[str] = set()
        #: Progress that overtook the start of its task: it does not wait for the store, as events do.
        self._early: dict[str, Progress] = {}
        #: What the ids of the branches of a fan-out begin with.
        self._fans: set[str] = set()

    def lines(self, event: Event | Progress) -> list[str]:
        """What is to be told now, in the order in which it happened.

        Nothing for progress that comes too soon after the last of its task: lines are not a bar.
        """
        self._began = self._began or event.at
        if isinstance(event, Progress):
            return self._progress(event)
        told, task_id = [self._line(event)], event.task_id
        if task_id is not None:
            early = self._early.pop(task_id, None)
            if event.type is EventType.TASK_STARTED:
                self._begun.add(task_id)
                told += [] if early is None else self._progress(early)
            elif event.type is not EventType.TASK_DISPATCHED:
                self._begun.discard(task_id)
        return told

    def _progress(self, event: Progress) -> list[str]:
        if event.task_id not in self._begun:
            self._early[event.task_id] = event
            return []
        last = self._progress_told.get(event.task_id)
        if last is not None and (event.at - last).total_seconds() < _PROGRESS_EVERY_S:
            return []
        self._progress_told[event.task_id] = event.at
        return [self._line(event)]

    def _line(self, event: Event | Progress) -> str:
        """One line: seconds since the first event, what it is, and what is special about it."""
        since = (event.at - (self._began or event.at)).total_seconds()
        line = f"{since:8.3f} s  {event.type:<18}  {self._words(event)}".rstrip()
        return visible(line, one_line=True)

    def _words(self, event: Event | Progress) -> str:
        if isinstance(event, Progress):
            share = "" if event.progress is None else f"{event.progress:.0%}"
            return ", ".join(filter(None, (self._name(event.task_id), share, event.message)))
        if event.type in _TASK_STATES:
            return self._task_words(event)
        # Whose job it is, its reader knows.
        actor = event.actor if event.type is not EventType.JOB_CREATED else None
        return ", ".join(filter(None, (told(event), f"by {actor}" if actor else "")))

    def _task_words(self, event: Event) -> str:
        task_id = event.task_id or ""
        if "type" in event.detail:
            self._types[task_id] = str(event.detail["type"])
        words = [self._name(task_id), f"attempt {event.attempt}" if event.attempt else ""]
        words += [f"by {event.worker_id}" if event.worker_id else ""]
        words += [event.status if event.status not in _EXPECTED else "", _fault(event)]
        return ", ".join(filter(None, words))

    def _name(self, task_id: str) -> str:
        """What the task does; a branch of a fan-out has its number, once a second one is known."""
        fan, _, index = task_id.rpartition("_")
        if index.isdecimal() and index != "0":
            self._fans.add(fan)
        name = self._types.get(task_id, "task")
        return f"{name} #{int(index) + 1}" if fan in self._fans and index.isdecimal() else name


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
        case EventType.JOB_QUARANTINED:
            return _fault(event)
        case EventType.JOB_FINISHED if event.code == event.status:  # cancelled, and why
            return _fault(event)
        case _:
            return ", ".join(filter(None, (event.status, _fault(event))))


def _fault(event: Event) -> str:
    """The code and what was said to it; either may be missing."""
    return ": ".join(filter(None, (event.code, event.message)))
