"""Log lines: pretty for a person at a terminal, JSON for everybody else. Always to standard error."""

import json
import logging
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, tzinfo
from typing import Any

from ..terminal import escape_control_chars, escape_json
from .log_context import IDS
from .redaction import Redaction

#: What every record has; whatever else it carries was said on purpose (`action`, `job_id`, …).
_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_COLOURS = {"WARNING": "\033[33m", "ERROR": "\033[31m", "CRITICAL": "\033[1;31m", "DEBUG": "\033[2m"}
_PLAIN = "\033[0m"
#: What a person at a terminal knows, or cannot use.
_UNSHOWN = frozenset({"action", "instance", "trace_id"})


def set_up(
    level: str, tz: str = "UTC", *, as_json: bool | None = None, secrets: Iterable[str] = ()
) -> Redaction:
    """Send what is logged from now on to standard error, in the form that its reader wants, and without secrets."""
    if as_json is None:
        as_json = not sys.stderr.isatty()
    handler = logging.StreamHandler(sys.stderr)
    redaction = Redaction(secrets)
    lines = JsonLines(zone(tz)) if as_json else PrettyLines(zone(tz), sys.stderr.isatty())
    lines.hide = redaction.hide
    handler.setFormatter(lines)
    handler.addFilter(IDS)
    handler.addFilter(redaction)
    logging.basicConfig(level=level, handlers=[handler], force=True)
    return redaction


def zone(name: str) -> tzinfo:
    """The zone in which times are shown."""
    if name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo

    return ZoneInfo(name)


def said(record: logging.LogRecord) -> dict[str, Any]:
    """The fields that a line carries beyond its words."""
    return {name: value for name, value in vars(record).items() if name not in _USUAL}


class Lines(logging.Formatter):
    """What both forms share: traces are shown without secrets, too."""

    #: Set by `set_up`; on its own a form hides nothing.
    hide: Callable[[str], str] = staticmethod(str)

    def formatException(self, ei: Any) -> str:  # logging's own name
        """The trace of an error."""
        return self.hide(super().formatException(ei))


class JsonLines(Lines):
    """One JSON object per line: at, level, logger, message, the line's own fields, and an error's trace."""

    def __init__(self, tz: tzinfo) -> None:
        super().__init__()
        self._tz = tz

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line = {
            "at": datetime.fromtimestamp(record.created, self._tz).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **said(record),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return escape_json(json.dumps(line, default=str, ensure_ascii=False))


class PrettyLines(Lines):
    """Time, words, and the line's own fields behind them."""

    def __init__(self, tz: tzinfo, colour: bool) -> None:
        super().__init__()
        self._tz = tz
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        """The line, and an error's trace below it."""
        at = datetime.fromtimestamp(record.created, self._tz).strftime("%H:%M:%S")
        told = said(record)
        if "attempt_id" in told:  # it begins with the id of its task
            told.pop("task_id", None)
        fields = "".join(f" {name}={value}" for name, value in told.items() if name not in _UNSHOWN)
        line = escape_control_chars(f"{at} {record.levelname.lower():<8} {record.getMessage()}{fields}")
        if self._colour and record.levelname in _COLOURS:
            line = f"{_COLOURS[record.levelname]}{line}{_PLAIN}"
        return (
            f"{line}\n{escape_control_chars(self.formatException(record.exc_info))}"
            if record.exc_info
            else line
        )
