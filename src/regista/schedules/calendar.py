"""Calendars: the ticks of a schedule, as whole seconds since 1970. Pure arithmetic.

Daylight saving. An interval counts seconds and knows nothing of zones. A cron line that names its hour and minute fires
once where the clocks go back (the first time) and at the end of the gap where they go forward (02:30 fires at 03:00), as
Debian's cron does. One whose hour or minute begins with `*` fires whenever the local time matches.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Protocol

from ..clock import EPOCH

#: Ticks that are looked at in one go.
MANY = 5000
#: Nothing ticks after this second: what comes next must be a date still, in every zone.
_END = (datetime(9000, 1, 1, tzinfo=UTC) - EPOCH) // timedelta(seconds=1)
#: What the shorthands mean.
NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MAX_LINE = 1000


class CronError(ValueError):
    """Not a cron line; the message says why."""


class Calendar(Protocol):
    """When a schedule ticks. Pure: the same questions have the same answers everywhere."""

    def between(self, after: datetime, upto: datetime, limit: int = MANY) -> Sequence[int]:
        """The ticks after `after` up to `upto`, in order. More than `limit` may be left out at the end."""
        ...

    def next(self, after: datetime) -> datetime | None:
        """The first tick after this moment; None when there is none."""
        ...


class IntervalCalendar:
    """A tick each `seconds`, counted from 1970 (in UTC), so that all instances agree."""

    def __init__(self, seconds: int, offset: int = 0) -> None:
        self._seconds = seconds
        self._offset = offset % seconds

    def between(self, after: datetime, upto: datetime, limit: int = MANY) -> Sequence[int]:
        """All of them, however many: a range costs nothing."""
        return range(self._first(after), _floor(upto) + 1, self._seconds)

    def next(self, after: datetime) -> datetime | None:
        """See `Calendar.next`."""
        first = self._first(after)
        return None if first > _END else moment(first)

    def _first(self, after: datetime) -> int:
        passed = (_floor(after) - self._offset) // self._seconds
        return (passed + 1) * self._seconds + self._offset


class CronCalendar:
    """Ticks whenever one of several cron lines does, by the local time of a zone."""

    def __init__(self, lines: Sequence[str], zone: tzinfo) -> None:
        """CronError for anything that is no line of five fields, and no nickname."""
        self._zone = zone
        self._lines = [_checked(line) for line in lines]

    def between(self, after: datetime, upto: datetime, limit: int = MANY) -> list[int]:
        """See `Calendar.between`. Each tick follows from the one before alone, so that a restart changes none."""
        found: list[int] = []
        last, tick = _floor(upto), self._following(_floor(after))
        while tick is not None and tick <= last and len(found) < limit:
            found.append(tick)
            tick = self._following(tick)
        return found

    def next(self, after: datetime) -> datetime | None:
        """See `Calendar.next`."""
        tick = self._following(_floor(after))
        return None if tick is None else moment(tick)

    def _following(self, after: int) -> int | None:
        ticks = (self._following_of(line, after) for line in self._lines)
        return min((tick for tick in ticks if tick is not None and tick <= _END), default=None)

    def _following_of(self, line: str, after: int) -> int | None:
        """The next tick of one line. Local times of an hour that comes twice may lead back before `after`."""
        from cronsim import CronSim  # starts without schedules need not load it

        for at in CronSim(line, moment(after).astimezone(self._zone)):
            tick = _floor(at)
            if tick > after:
                return tick
        return None


def _checked(line: str) -> str:
    text = line.strip()
    if text.startswith("@"):
        if text.lower() not in NICKNAMES:
            raise CronError(f"expected one of {', '.join(NICKNAMES)}, got {text!r}")
        return NICKNAMES[text.lower()]
    if len(text) > _MAX_LINE:
        raise CronError(f"expected at most {_MAX_LINE} characters, got {len(text)}")
    from cronsim import CronSim, CronSimError

    fields = len(text.split())
    if fields != 5:
        raise CronError(
            f"expected five fields (minute, hour, day of month, month, day of week), got {fields}"
        )
    try:
        CronSim(text, EPOCH)
    except CronSimError as error:
        raise CronError(str(error).replace("Bad", "wrong")) from None
    except ValueError:
        raise CronError("a number is too long") from None
    return text


def moment(tick: int) -> datetime:
    """A tick as a time of day."""
    return EPOCH + timedelta(seconds=tick)


def _floor(at: datetime) -> int:
    return (at.astimezone(UTC) - EPOCH) // timedelta(seconds=1)


def upcoming(calendar: Calendar, after: datetime, count: int) -> list[datetime]:
    """The next ticks, at most `count`."""
    found: list[datetime] = []
    tick = calendar.next(after)
    while tick is not None and len(found) < count:
        found.append(tick)
        tick = calendar.next(tick)
    return found
