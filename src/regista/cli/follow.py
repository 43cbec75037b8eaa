"""Following a job to its end: drawn live for a person, as plain lines for everybody else."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ..client import Client
from ..model import Event, EventType
from ..schemas.job_view import answer_commands
from ..schemas.jobs import JobObject, Progress
from .output import STYLES, Screen, span, visible
from .story import Piece, Stay, Story, Teller

if TYPE_CHECKING:
    from rich.console import RenderableType

#: How many visits to states are drawn; a loop may make many more.
_STAYS_DRAWN = 12
_PIECES_DRAWN = 16
_SETTLING = (EventType.JOB_FINISHED, EventType.JOB_QUARANTINED)
#: A task that no worker has taken for so long makes people wonder.
_WONDER_S = 5.0


async def follow(
    client: Client, screen: Screen, job_id: str, timeout_s: float | None, tell: Callable[[str], None]
) -> JobObject:
    """Show what happens until the job has settled or the time is up; the job as it is then.

    `tell` takes the plain lines, where nothing can be drawn.
    """
    try:
        async with asyncio.timeout(timeout_s):
            await _follow(client, screen, job_id, tell)
    except TimeoutError:
        pass
    except asyncio.CancelledError:
        screen.note(f"the job goes on; `regista jobs watch {job_id}` follows it")
        raise
    return await client.get(job_id)


async def _follow(client: Client, screen: Screen, job_id: str, tell: Callable[[str], None]) -> None:
    story, teller = Story(job_id), Teller()
    wonder = _Wonder(screen, story)
    try:
        with _shown(screen, story):
            async for event in client.events(job_id):
                story.hear(event)
                wonder.heard()
                for line in [] if screen.live else teller.lines(event):
                    tell(line)
                if event.type in _SETTLING and await _has_settled(client, event):
                    return
    finally:
        wonder.stop()


class _Wonder:
    """Where nothing is drawn: says once, in a silence, that no worker comes."""

    def __init__(self, screen: Screen, story: Story) -> None:
        self._screen = screen
        self._story = story
        self._timer: asyncio.TimerHandle | None = None
        self._said = screen.live

    def heard(self) -> None:
        """Something has happened: the silence begins anew."""
        self.stop()
        if not self._said:
            self._timer = asyncio.get_running_loop().call_later(_WONDER_S, self._say)

    def _say(self) -> None:
        if self._story.unclaimed is not None:
            self._said = True
            self._screen.note(_unclaimed(self._story))

    def stop(self) -> None:
        """Nothing more is to be said."""
        if self._timer is not None:
            self._timer.cancel()


def _unclaimed(story: Story) -> str:
    return f"no worker has taken it yet; `regista jobs explain {story.job_id}` says why"


async def _has_settled(client: Client, event: Event | Progress) -> bool:
    """An old quarantine that a person has ended is not the end of the story."""
    if event.type is EventType.JOB_FINISHED:
        return True
    return (await client.get(event.job_id)).status == "quarantined"


async def stream(client: Client, screen: Screen, job_id: str, timeout_s: float | None) -> JobObject:
    """The same as JSON lines, one event each."""
    try:
        async with asyncio.timeout(timeout_s):
            async for event in client.events(job_id):
                screen.record(event)
                if event.type in _SETTLING and await _has_settled(client, event):
                    break
    except TimeoutError:
        pass
    return await client.get(job_id)


@contextmanager
def _shown(screen: Screen, story: Story) -> Iterator[None]:
    if not screen.live:
        yield
        return
    from rich.live import Live

    # Drawn again eight times a second, so that clocks and bars move while nothing happens.
    with Live(get_renderable=lambda: drawing(story), refresh_per_second=8, console=screen.console()):
        yield


def drawing(story: Story, now: datetime | None = None) -> "RenderableType":
    """The story on a terminal: where it was, where it is, and its tasks."""
    from rich.console import Group
    from rich.text import Text

    now = now or datetime.now(UTC)
    head = Text.assemble((visible(story.blueprint or "job"), "bold"), f" {visible(story.job_id)}  ")
    head.append(visible(story.status), STYLES.get(story.status, "blue"))
    lines: list[Any] = [head]
    if len(story.stays) > _STAYS_DRAWN:
        lines.append(Text(f"  … {len(story.stays) - _STAYS_DRAWN} states before", "dim"))
    lines += [_draw_stay(stay, story, now) for stay in story.stays[-_STAYS_DRAWN:]]
    if story.status == "waiting_for_human":
        lines.append(Text(f"    {visible(story.waits)}", "cyan"))
        ways = answer_commands(story.job_id, story.decisions or ("approve",))
        lines += [Text(f"    answer with: {visible(way, one_line=True)}", "dim") for way in ways]
    elif story.waits:
        lines.append(Text(f"    {visible(story.waits)}", "dim"))
    if story.ended is None and story.pieces:
        lines.append(_draw_pieces(list(story.pieces.values())))
    if story.unclaimed is not None and (now - story.unclaimed).total_seconds() >= _WONDER_S:
        lines.append(Text(f"    {visible(_unclaimed(story))}", "dim"))
    return Group(*lines)


def _draw_stay(stay: Stay, story: Story, now: datetime) -> "RenderableType":
    from rich.text import Text

    done = stay.ended is not None or story.ended is not None
    mark = ("✓", "green") if done else ("●", "blue")
    if story.status == "failed" and stay is story.stays[-1]:
        mark = ("✗", "red")
    spent = ((stay.ended or story.ended or now) - stay.began).total_seconds()
    return Text.assemble("  ", mark, f" {visible(stay.state):<24}", (span(spent), "dim"))


def _draw_pieces(pieces: list[Piece]) -> "RenderableType":
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    # What still moves comes first: a fan-out of hundreds does not fit.
    for piece in sorted(pieces, key=lambda piece: piece.over)[:_PIECES_DRAWN]:
        total = 1.0 if piece.over or piece.progress is not None else None
        bar = ProgressBar(total=total, completed=piece.progress or 0.0, width=20, pulse=total is None)
        again = f"attempt {piece.attempt}" if piece.attempt > 1 else ""
        # As Text: a plain string would be read as markup, and what is told may have brackets.
        worker, message = Text(visible(piece.worker)), Text(visible(piece.message, one_line=True))
        table.add_row("   ", Text(visible(piece.type)), bar, piece.state, again, worker, message)
    if len(pieces) > _PIECES_DRAWN:
        table.add_row("   ", f"… {len(pieces) - _PIECES_DRAWN} more")
    return table
