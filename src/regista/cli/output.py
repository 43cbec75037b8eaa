"""Where a command's words go: data to standard output, notices to standard error.

On a terminal tables and live views are drawn; anywhere else every line is plain text without colour, and
with `--json` standard output carries JSON and nothing else. Whatever workers, blueprints and clients wrote is
text from strangers: it is shown (`visible`), and never obeyed by a terminal.
"""

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from ..config import Connection
from ..terminal import escape_control_chars, escape_json

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


class Output:
    """The two streams of a command, and how to speak on them."""

    def __init__(self, *, json: bool) -> None:
        self.json = json
        #: A person is looking.
        self.live = not json and sys.stdout.isatty()

    def line(self, text: str = "") -> None:
        """One line of what was asked for."""
        print(escape_control_chars(text), flush=True)  # noqa: T201

    def notice(self, text: str) -> None:
        """One line beside it: never mixed into data."""
        print(escape_control_chars(text), file=sys.stderr, flush=True)  # noqa: T201

    def json_document(self, value: Any) -> None:
        """The one JSON document of a command."""
        self._emit(msgspec.json.encode(value), indent=2)

    def json_line(self, value: Any) -> None:
        """One line of a stream of JSON documents."""
        self._emit(msgspec.json.encode(value))

    def _emit(self, body: bytes, indent: int | None = None) -> None:
        """JSON: for a terminal indented and without anything that it would obey, for a program as it is."""
        if sys.stdout.isatty():
            body = body if indent is None else msgspec.json.format(body, indent=indent)
            print(escape_json(body.decode()), flush=True)  # noqa: T201
        else:
            print(body.decode(), flush=True)  # noqa: T201

    def check_line(self, good: bool | None, text: str) -> None:
        """The line of a check that has passed or failed; None: there was nothing to check."""
        if not self.live:
            self.line(f"{ {True: 'ok', False: 'FAIL', None: '--'}[good]:<4} {text}")
            return
        from rich.text import Text

        mark = {True: ("✓    ", "green"), False: ("✗    ", "red"), None: ("-    ", "dim")}[good]
        self.console().print(Text.assemble(mark, escape_control_chars(text)), soft_wrap=True)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]], nothing: str = "") -> None:
        """Rows under headings: drawn for a person, aligned text for a pipe.

        `nothing` is said instead of a table without rows: on a terminal in its place, elsewhere on standard error.
        """
        if nothing and not rows:
            (self.line if self.live else self.notice)(nothing)
            if self.live:
                return
        rows = [[escape_control_chars(cell, one_line=True) for cell in row] for row in rows]
        if self.live:
            self._draw(columns, rows)
            return
        widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
        for row in ([name.upper() for name in columns], *rows):
            self.line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())

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


def output_for(args: argparse.Namespace) -> Output:
    """The screen that the flags and the environment ask for."""
    return Output(json=Connection.from_env(json=getattr(args, "json", None)).json)


def shown(value: Any) -> str:
    """A value as one line of JSON, for people."""
    return escape_json(msgspec.json.encode(value).decode())


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
