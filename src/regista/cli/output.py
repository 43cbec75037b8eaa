"""Where a command's words go: data to standard output, notices to standard error.

On a terminal tables and live views are drawn; anywhere else every line is plain text without colour, and
with `--json` standard output carries JSON and nothing else. Whatever workers, blueprints and clients wrote is
text from strangers: it is shown (`visible`), and never obeyed by a terminal.
"""

import argparse
import re
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
#: Characters that do something instead of being seen: C0 but tab and line feed, DEL and C1, what turns the
#: direction of text, breaks or hides it, and lone surrogates, which no stream can encode. Joiners (U+200C, U+200D) are
#: not among them: Persian and emoji are written with them, and they move nothing.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
_BREAKS = {ord("\n"): "\\n", ord("\t"): "\\t"}


def visible(text: str, *, one_line: bool = False) -> str:
    """The text with every character that a terminal would obey written out, as Python writes it.

    Line feeds and tabs stay, unless it must be one line: a cell of a table must not make up a row. A second call
    changes nothing.
    """
    seen = _UNSEEN.sub(lambda found: _written(found[0]), text)
    return seen.translate(_BREAKS) if one_line else seen


def _written(character: str) -> str:
    return character.encode("unicode_escape").decode()


def visible_json(text: str) -> str:
    """The same for JSON, as JSON writes it: the document means what it meant before."""
    return _UNSEEN.sub(lambda found: _written_in_json(found[0]), text)


def _written_in_json(character: str) -> str:
    # Outside of strings JSON has none of them; inside, each may be written by its UTF-16 units.
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


class Screen:
    """The two streams of a command, and how to speak on them."""

    def __init__(self, *, json: bool) -> None:
        self.json = json
        #: A person is looking.
        self.live = not json and sys.stdout.isatty()

    def say(self, text: str = "") -> None:
        """One line of what was asked for."""
        print(visible(text), flush=True)  # noqa: T201

    def note(self, text: str) -> None:
        """One line beside it: never mixed into data."""
        print(visible(text), file=sys.stderr, flush=True)  # noqa: T201

    def document(self, value: Any) -> None:
        """The one JSON document of a command."""
        self._emit(msgspec.json.encode(value), indent=2)

    def record(self, value: Any) -> None:
        """One line of a stream of JSON documents."""
        self._emit(msgspec.json.encode(value))

    def _emit(self, body: bytes, indent: int | None = None) -> None:
        """JSON: for a terminal indented and without anything that it would obey, for a program as it is."""
        if sys.stdout.isatty():
            body = body if indent is None else msgspec.json.format(body, indent=indent)
            print(visible_json(body.decode()), flush=True)  # noqa: T201
        else:
            print(body.decode(), flush=True)  # noqa: T201

    def mark(self, good: bool | None, text: str) -> None:
        """The line of a check that has passed or failed; None: there was nothing to check."""
        if not self.live:
            self.say(f"{ {True: 'ok', False: 'FAIL', None: '--'}[good]:<4} {text}")
            return
        from rich.text import Text

        mark = {True: ("✓    ", "green"), False: ("✗    ", "red"), None: ("-    ", "dim")}[good]
        self.console().print(Text.assemble(mark, visible(text)), soft_wrap=True)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]], nothing: str = "") -> None:
        """Rows under headings: drawn for a person, aligned text for a pipe.

        `nothing` is said instead of a table without rows: on a terminal in its place, elsewhere on standard error.
        """
        if nothing and not rows:
            (self.say if self.live else self.note)(nothing)
            if self.live:
                return
        rows = [[visible(cell, one_line=True) for cell in row] for row in rows]
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
    """A value as one line of JSON, for people."""
    return visible_json(msgspec.json.encode(value).decode())


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
