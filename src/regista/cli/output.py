"""Where a command's words go: data to standard output, notices to standard error.

On a terminal tables and live views are drawn; anywhere else every line is plain text without colour, and
with `--json` standard output carries JSON and nothing else.
"""

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from ..config import Connection

if TYPE_CHECKING:
    from rich.console import Console

#: How statuses look on a terminal.
STYLES = {
    "finished": "green",
    "failed": "red",
    "quarantined": "magenta",
    "cancelled": "yellow",
    "cancelling": "yellow",
    "waiting_for_human": "cyan",
}


class Screen:
    """The two streams of a command, and how to speak on them."""

    def __init__(self, *, json: bool) -> None:
        self.json = json
        #: A person is looking.
        self.live = not json and sys.stdout.isatty()

    def say(self, text: str = "") -> None:
        """One line of what was asked for."""
        print(text, flush=True)  # noqa: T201

    def note(self, text: str) -> None:
        """One line beside it: never mixed into data."""
        print(text, file=sys.stderr, flush=True)  # noqa: T201

    def document(self, value: Any) -> None:
        """The one JSON document of a command."""
        body = msgspec.json.encode(value)
        self.say((msgspec.json.format(body, indent=2) if sys.stdout.isatty() else body).decode())

    def record(self, value: Any) -> None:
        """One line of a stream of JSON documents."""
        self.say(msgspec.json.encode(value).decode())

    def mark(self, good: bool, text: str) -> None:
        """One line that is good news or bad."""
        if not self.live:
            self.say(f"{'ok  ' if good else 'BAD '} {text}")
            return
        from rich.text import Text

        mark = ("✓    ", "green") if good else ("✗    ", "red")
        self.console().print(Text.assemble(mark, text), soft_wrap=True)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]], nothing: str = "") -> None:
        """Rows under headings: drawn for a person, aligned text for a pipe.

        `nothing` is what a person is told instead of a table without rows.
        """
        if self.live and nothing and not rows:
            self.say(nothing)
            return
        if self.live:
            self._draw(columns, rows)
            return
        widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
        for row in ([name.upper() for name in columns], *rows):
            self.say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())

    def console(self) -> "Console":
        """The terminal, for whoever draws."""
        from rich.console import Console

        return Console(highlight=False)

    def _draw(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, header_style="bold", pad_edge=False)
        for name in columns:
            # An id that is cut cannot be copied.
            table.add_column(name, no_wrap=name in {"id", "job", "worker"}, overflow="fold")
        for row in rows:
            table.add_row(*(Text(cell, STYLES.get(cell, "")) for cell in row))
        self.console().print(table)


def screen_for(asked: argparse.Namespace) -> Screen:
    """The screen that the flags and the environment ask for."""
    return Screen(json=Connection.from_env(json=getattr(asked, "json", None)).json)


def shown(value: Any) -> str:
    """A value as one line of JSON."""
    return msgspec.json.encode(value).decode()


def age(since: datetime | None, now: datetime | None = None) -> str:
    """How long ago, in the unit that fits."""
    if since is None:
        return "-"
    return span(((now or datetime.now(UTC)) - since).total_seconds())


def span(seconds: float) -> str:
    """A length of time, in the unit that fits."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    if seconds < 1:
        return f"{max(0.0, seconds) * 1000:.0f} ms"
    return f"{seconds:.1f} s"
