"""EventLines: events as plain lines, one by one. Pure."""

from datetime import datetime

from ..history.projection import task_label
from ..model import Event, EventType
from ..model.event import attempt_state_of
from ..schemas.jobs import Progress
from ..terminal import escape_control_chars

#: What goes without saying at the end of a task: its event has the same word, or its code says more.
_EXPECTED = (None, "success", "failure")
#: Seconds between two lines about the progress of one task.
_PROGRESS_EVERY_S = 1.0


class EventLines:
    """Writes the lines of a job's events, in their order."""

    def __init__(self) -> None:
        self._began: datetime | None = None
        #: Task → what it is called: only the first event of a task says that.
        self._labels: dict[str, str] = {}
        self._progress_told: dict[str, datetime] = {}
        #: Tasks of which a worker is known to have begun.
        self._begun: set[str] = set()
        #: Progress that overtook the start of its task: it does not wait for the store, as events do.
        self._early: dict[str, Progress] = {}

    def of(self, event: Event | Progress) -> list[str]:
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
        return escape_control_chars(line, one_line=True)

    def _words(self, event: Event | Progress) -> str:
        if isinstance(event, Progress):
            share = "" if event.progress is None else f"{event.progress:.0%}"
            return ", ".join(filter(None, (self._name(event.task_id), share, event.message)))
        if attempt_state_of(event) is not None:
            return self._task_words(event)
        # Whose job it is, its reader knows.
        actor = event.actor if event.type is not EventType.JOB_CREATED else None
        return ", ".join(filter(None, (told(event), f"by {actor}" if actor else "")))

    def _task_words(self, event: Event) -> str:
        task_id = event.task_id or ""
        if "type" in event.detail:
            branches = int(event.detail.get("branches", 1))
            self._labels[task_id] = task_label(task_id, str(event.detail["type"]), branches)
        words = [self._name(task_id), f"attempt {event.attempt}" if event.attempt else ""]
        words += [f"by {event.worker_id}" if event.worker_id else ""]
        words += [event.status if event.status not in _EXPECTED else "", _fault(event)]
        return ", ".join(filter(None, words))

    def _name(self, task_id: str) -> str:
        return self._labels.get(task_id, "task")


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
