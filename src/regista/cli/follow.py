"""Following a job to its end: drawn live for a person, as plain lines for everybody else."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ..client import Client
from ..history.projection import JobProjection, StateVisit, TaskView
from ..model import Event, EventType
from ..schemas.job_view import answer_commands
from ..schemas.jobs import JobObject, Progress
from ..terminal import escape_control_chars
from .output import STYLES, Output, span
from .story import EventLines

if TYPE_CHECKING:
    from rich.console import RenderableType

#: How many visits to states are drawn; a loop may make many more.
_STATES_DRAWN = 12
_TASKS_DRAWN = 16
_SETTLING = (EventType.JOB_FINISHED, EventType.JOB_QUARANTINED)
#: A task that no worker has taken for so long makes people wonder.
_WONDER_S = 5.0


async def follow(
    client: Client, output: Output, job_id: str, timeout_s: float | None, tell: Callable[[str], None]
) -> JobObject:
    """Show what happens until the job has settled or the time is up; the job as it is then.

    `tell` takes the plain lines, where nothing can be drawn.
    """
    try:
        async with asyncio.timeout(timeout_s):
            await _follow(client, output, job_id, tell)
    except TimeoutError:
        pass
    except asyncio.CancelledError:
        output.notice(f"the job goes on; `regista jobs watch {job_id}` follows it")
        raise
    return await client.get(job_id)


async def _follow(client: Client, output: Output, job_id: str, tell: Callable[[str], None]) -> None:
    projection, lines = JobProjection(job_id), EventLines()
    wonder = _Wonder(output, projection)
    try:
        with _shown(output, projection):
            async for event in client.events(job_id):
                apply(projection, event)
                wonder.heard()
                for line in [] if output.live else lines.of(event):
                    tell(line)
                if event.type in _SETTLING and await _has_settled(client, event):
                    return
    finally:
        wonder.stop()


class _Wonder:
    """Where nothing is drawn: says once, in a silence, that no worker comes."""

    def __init__(self, output: Output, projection: JobProjection) -> None:
        self._screen = output
        self._projection = projection
        self._timer: asyncio.TimerHandle | None = None
        self._said = output.live

    def heard(self) -> None:
        """Something has happened: the silence begins anew."""
        self.stop()
        if not self._said:
            self._timer = asyncio.get_running_loop().call_later(_WONDER_S, self._say)

    def _say(self) -> None:
        if unclaimed_since(self._projection) is not None:
            self._said = True
            self._screen.notice(_unclaimed(self._projection))

    def stop(self) -> None:
        """Nothing more is to be said."""
        if self._timer is not None:
            self._timer.cancel()


def apply(projection: JobProjection, event: Event | Progress) -> None:
    """Take an event in, or the progress of a task."""
    if isinstance(event, Progress):
        projection.apply_progress(event.task_id, event.progress, event.message or "")
    else:
        projection.apply(event)


def unclaimed_since(projection: JobProjection) -> datetime | None:
    """Since when a task waits that no worker has taken; None when there is none."""
    waiting = (task.changed_at for task in projection.open_tasks if task.never_claimed)
    return min(waiting, default=None)


def _unclaimed(projection: JobProjection) -> str:
    return f"No worker has taken the task yet. Reason: regista jobs explain {projection.job_id}"


async def _has_settled(client: Client, event: Event | Progress) -> bool:
    """An old quarantine that a person has ended is not the end of the story."""
    if event.type is EventType.JOB_FINISHED:
        return True
    return (await client.get(event.job_id)).status == "quarantined"


async def stream(client: Client, output: Output, job_id: str, timeout_s: float | None) -> JobObject:
    """The same as JSON lines, one event each."""
    try:
        async with asyncio.timeout(timeout_s):
            async for event in client.events(job_id):
                output.json_line(event)
                if event.type in _SETTLING and await _has_settled(client, event):
                    break
    except TimeoutError:
        pass
    return await client.get(job_id)


@contextmanager
def _shown(output: Output, projection: JobProjection) -> Iterator[None]:
    if not output.live:
        yield
        return
    from rich.live import Live

    # Drawn again eight times a second, so that clocks and bars move while nothing happens.
    with Live(get_renderable=lambda: drawing(projection), refresh_per_second=8, console=output.console()):
        yield


def drawing(projection: JobProjection, now: datetime | None = None) -> "RenderableType":
    """The job on a terminal: the states that it visited, and the tasks of the last one."""
    from rich.console import Group
    from rich.text import Text

    now = now or datetime.now(UTC)
    head = Text.assemble(
        (escape_control_chars(projection.blueprint or "job"), "bold"),
        f" {escape_control_chars(projection.job_id)}  ",
    )
    head.append(escape_control_chars(projection.status), STYLES.get(projection.status, "blue"))
    lines: list[Any] = [head]
    if len(projection.states) > _STATES_DRAWN:
        lines.append(Text(f"  … {len(projection.states) - _STATES_DRAWN} states before", "dim"))
    lines += [_draw_state(state, projection, now) for state in projection.states[-_STATES_DRAWN:]]
    waiting = waiting_text(projection)
    if projection.status == "waiting_for_human":
        lines.append(Text(f"    {escape_control_chars(waiting)}", "cyan"))
        ways = answer_commands(projection.job_id, projection.decisions or ("approve",))
        lines += [Text(f"    answer with: {escape_control_chars(way, one_line=True)}", "dim") for way in ways]
    elif waiting:
        lines.append(Text(f"    {escape_control_chars(waiting)}", "dim"))
    if projection.open_tasks:
        lines.append(_draw_tasks(projection.open_tasks))
    since = unclaimed_since(projection)
    if since is not None and (now - since).total_seconds() >= _WONDER_S:
        lines.append(Text(f"    {escape_control_chars(_unclaimed(projection))}", "dim"))
    return Group(*lines)


def waiting_text(projection: JobProjection) -> str:
    """What a person should know about what the job waits for."""
    wait = projection.waiting
    if wait is None:
        return ""
    message = str(wait.detail.get("message", ""))
    match wait.reason:
        case "retry":
            return f"handler failed: {message}"
        case "human":
            return message or "a decision"
        case "child":
            return str(wait.detail.get("child_id", ""))
        case "timer":
            return f"{round(float(wait.detail.get('seconds', 0)), 3)} s"
        case "release":
            return message or str(wait.detail.get("code", ""))
    return message


def _draw_state(state: StateVisit, projection: JobProjection, now: datetime) -> "RenderableType":
    from rich.text import Text

    ended_at = state.ended_at or projection.ended_at
    mark = ("●", "blue") if ended_at is None else ("✓", "green")
    if projection.status == "failed" and state is projection.states[-1]:
        mark = ("✗", "red")
    spent = ((ended_at or now) - state.began_at).total_seconds()
    return Text.assemble("  ", mark, f" {escape_control_chars(state.state):<24}", (span(spent), "dim"))


#: What is shown for the state of an attempt.
_TASK_WORDS = {
    "started": "running",
    "finished": "done",
    "lost": "worker lost",
    "undelivered": "not delivered",
    "timed_out": "timed out",
}
#: Nothing more is expected of a task in one of these.
_OVER = frozenset({"finished", "cancelled", "failed", "timed_out"})


def _draw_tasks(tasks: list[TaskView]) -> "RenderableType":
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    # What still moves comes first: a fan-out of hundreds does not fit.
    for task in sorted(tasks, key=lambda task: task.last.state in _OVER)[:_TASKS_DRAWN]:
        last = task.last
        over, retried = last.state in _OVER, last.number > 1
        total = 1.0 if over or task.progress is not None else None
        bar = ProgressBar(total=total, completed=task.progress or 0.0, width=20, pulse=total is None)
        state = "retrying" if retried and last.state == "queued" else _TASK_WORDS.get(last.state, last.state)
        again = f"attempt {last.number}" if retried else ""
        # As Text: a plain string would be read as markup, and names and messages may have brackets.
        worker, message = (
            Text(escape_control_chars(last.worker_id or "")),
            Text(escape_control_chars(task.message, one_line=True)),
        )
        table.add_row("   ", Text(escape_control_chars(task.label)), bar, state, again, worker, message)
    if len(tasks) > _TASKS_DRAWN:
        table.add_row("   ", f"… {len(tasks) - _TASKS_DRAWN} more")
    return table
