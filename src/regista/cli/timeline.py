"""`regista jobs show --timeline`: a job's life, drawn as bars."""

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from ..history.timeline import AttemptSpan, StateSpan, TaskSpan, Timeline, Wait
from ..terminal import escape_control_chars
from .output import Output, span

#: How a bar is drawn, by what it tells. A wait is thin.
_FULL, _THIN, _OPEN = "█", "░", "▶"
_STYLES = {
    "state": "cyan",
    "finished": "green",
    "started": "blue",
    "queued": "dim",
    "wait": "yellow",
    "failed": "red",
    "lost": "red",
    "undelivered": "red",
    "timed_out": "red",
    "cancelled": "magenta",
}
#: Columns of the bars where nobody says how wide the screen is, and at least.
_PLAIN, _LEAST = 48, 16
#: Columns of the words, at most: a bar needs room, too.
_WORDS = 44


class Row(NamedTuple):
    """One bar, and the words beside it."""

    words: str
    began_at: datetime
    ended_at: datetime | None
    kind: str
    note: str = ""


def rows_of(told: Timeline) -> list[Row]:
    """The bars, from top to bottom: each state, below it what it waited for and its tasks."""
    return [row for state in told.states for row in _state(state)]


def _state(state: StateSpan) -> Iterator[Row]:
    yield Row(state.state, state.began_at, state.ended_at, "state", _failures(state))
    for wait in state.waits:
        yield _wait(wait, "  ")
    for task in state.tasks:
        yield from _task(task)


def _failures(state: StateSpan) -> str:
    return f"its handler raised {state.failures}x" if state.failures else ""


def _task(task: TaskSpan) -> Iterator[Row]:
    waits = list(task.waits)
    for attempt in task.attempts:
        while waits and waits[0].began_at <= attempt.queued_at:
            yield _wait(waits.pop(0), f"  {task.type}: ")
        following = attempt.started_at or attempt.ended_at
        while waits and (following is None or waits[0].began_at < following):
            yield _wait(waits.pop(0), f"  {task.type}: ")
        if attempt.started_at is not None:
            yield _attempt(task, attempt, attempt.started_at)
        elif attempt.ended_at is not None:
            yield _attempt(task, attempt, attempt.ended_at)


def _attempt(task: TaskSpan, attempt: AttemptSpan, since: datetime) -> Row:
    number = f" #{attempt.attempt}" if len(task.attempts) > 1 else ""
    by = f" by {attempt.worker_id}" if attempt.worker_id else ""
    words = "" if attempt.outcome in ("finished", "started") else attempt.outcome
    fault = ": ".join(filter(None, (words, attempt.code)))
    return Row(f"  {task.type}{number}{by}", since, attempt.ended_at, attempt.outcome, fault)


def _wait(wait: Wait, before: str) -> Row:
    told = wait.detail.get("message") or wait.detail.get("child_id") or wait.detail.get("code") or ""
    return Row(f"{before}waits for {_REASONS[wait.reason]}", wait.began_at, wait.ended_at, "wait", str(told))


_REASONS = {
    "worker": "a worker",
    "retry": "another try",
    "human": "a person",
    "child": "its child",
    "timer": "a timer",
    "release": "a mending hand",
    "cancel": "the stop",
}


def bar(row: Row, begin: datetime, end: datetime, width: int) -> str:
    """The row's stretch of time on a line of `width` columns; one that goes on ends in an arrow."""
    whole_s = max((end - begin).total_seconds(), 1e-9)

    def column(at: datetime) -> int:
        return min(width, max(0, round((at - begin).total_seconds() / whole_s * width)))

    first, last = column(row.began_at), column(row.ended_at or end)
    first, last = min(first, width - 1), max(last, min(first, width - 1) + 1)
    mark = _THIN if row.kind == "wait" else _FULL
    drawn = mark * (last - first)
    if row.ended_at is None:
        drawn = drawn[:-1] + _OPEN
    return (" " * first + drawn).ljust(width)


def draw(output: Output, told: Timeline) -> None:
    """All bars under one scale: in colour for a person, as text for a pipe."""
    rows = rows_of(told)
    end = told.ended_at or told.at
    names = [escape_control_chars(row.words, one_line=True) for row in rows]
    names = [name if len(name) <= _WORDS else name[: _WORDS - 1] + "…" for name in names]
    words = max(map(len, names), default=0)
    room = output.console().width - words - 30 if output.live else _PLAIN
    width = max(_LEAST, min(100, room))
    output.line(
        f"{told.job_id}  {told.blueprint}  {told.status}  {span((end - told.began_at).total_seconds())}"
    )
    for name, row in zip(names, rows, strict=True):
        took = span(((row.ended_at or end) - row.began_at).total_seconds())
        line = bar(row, told.began_at, end, width)
        note = escape_control_chars(row.note, one_line=True)
        if output.live:
            _drawn(output, name.ljust(words), line, row.kind, f"{took:>8}  {note}")
        else:
            output.line(f"{name.ljust(words)}  |{line}| {took:>8}  {note}".rstrip())
    if told.truncated:
        output.notice("there is more; `regista jobs history` has every event")


def _drawn(output: Output, name: str, line: str, kind: str, rest: str) -> None:
    from rich.text import Text

    style = _STYLES.get(kind, "")
    heading = "bold" if kind == "state" else ""
    text = Text.assemble((name, heading), "  ", (line, style), " ", rest)
    output.console().print(text, no_wrap=True, overflow="ellipsis")
