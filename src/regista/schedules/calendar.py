"""Calendar: the ticks of a schedule, as whole seconds since 1970. Pure arithmetic.

Daylight saving. An interval counts seconds and knows nothing of zones. A time of day that is named fires once on
every day that it is meant for, on those of 23 and of 25 hours as well: one that the change leaves out is moved by as much
(02:30 becomes 03:30), one that comes twice fires the first time. A cron line whose hour is `*` names no hour: it fires
whenever the clock on the wall shows one of its minutes, in every hour that there is.
"""

from bisect import bisect_right
from calendar import monthrange
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from typing import Protocol

from ..clock import EPOCH
from .cron import LAST_DAY, Cron

#: Days after which a time that has not come never will: the 29th of February may be eight years away.
_HORIZON_DAYS = 366 * 9
#: Ticks that are looked at in one go.
MANY = 5000
_DAY = timedelta(days=1)
#: Nothing ticks after this second: what comes next must be a date still, in every zone.
_END = (datetime(9000, 1, 1, tzinfo=UTC) - EPOCH) // timedelta(seconds=1)


class Calendar(Protocol):
    """When a schedule ticks. Pure: the same questions have the same answers everywhere."""

    def between(self, after: datetime, upto: datetime, limit: int = MANY) -> Sequence[int]:
        """The ticks after `after` up to `upto`, in order. More than `limit` may be left out at the end."""
        ...

    def next(self, after: datetime) -> datetime | None:
        """The first tick after this moment; None when there is none."""
        ...


class Every:
    """A tick each `seconds`, counted from 1970 (in UTC), so that everybody agrees without being told."""

    def __init__(self, seconds: int, offset: int = 0) -> None:
        self._seconds = seconds
        self._offset = offset % seconds

    def between(self, after: datetime, upto: datetime, limit: int = MANY) -> Sequence[int]:
        """All of them, however many: a range costs nothing."""
        return range(self._first(after), _floor(upto) + 1, self._seconds)

    def next(self, after: datetime) -> datetime | None:
        first = self._first(after)
        return None if first > _END else moment(first)

    def _first(self, after: datetime) -> int:
        passed = (_floor(after) - self._offset) // self._seconds
        return (passed + 1) * self._seconds + self._offset


class OnTheWall:
    """Ticks at times of the clock on the wall, in a zone."""

    def __init__(self, cron: Cron, zone: tzinfo, wall: Sequence[time] | None = None) -> None:
        """At the hours and minutes of the cron, or at the times of `wall`; the cron says on which days."""
        self._cron = cron
        self._zone = zone
        self._wall = wall or [time(hour, minute) for hour in cron.hours for minute in cron.minutes]
        self._every_hour = wall is None and len(cron.hours) == 24
        # A day is asked for again and again while it lasts.
        self._ticks_of = lru_cache(maxsize=8)(self._day)

    def between(self, after: datetime, upto: datetime, limit: int = MANY) -> Sequence[int]:
        found: list[int] = []
        last = _floor(upto)
        tick = self._following(_floor(after), upto)
        while tick is not None and tick <= last and len(found) < limit:
            found.append(tick)
            tick = self._following(tick, upto)
        return found

    def next(self, after: datetime) -> datetime | None:
        tick = self._following(_floor(after), None)
        return None if tick is None else moment(tick)

    def _following(self, after: int, upto: datetime | None) -> int | None:
        """The first tick after a second; None when there is none before the end of the next day after `upto`."""
        # A time that a change moved may fall on the day after its own, so the day before is looked at too.
        day = moment(after).astimezone(self._zone).date() - _DAY
        last = day + timedelta(days=_HORIZON_DAYS)
        if upto is not None:
            last = min(last, upto.astimezone(self._zone).date() + _DAY)
        while day <= last:
            found = self._after(day, after)
            if found is not None:
                rival = self._after(day + _DAY, after)
                return found if rival is None else min(found, rival)
            day += _DAY
        return None

    def _after(self, day: date, after: int) -> int | None:
        if not self._fits(day):
            return None
        ticks = self._ticks_of(day)
        place = bisect_right(ticks, after)
        return ticks[place] if place < len(ticks) else None

    def _fits(self, day: date) -> bool:
        cron = self._cron
        if day.month not in cron.months:
            return False
        last = LAST_DAY in cron.days and day.day == monthrange(day.year, day.month)[1]
        by_date = last or day.day in cron.days
        by_name = day.weekday() in cron.weekdays
        return by_date or by_name if cron.either_day else by_date and by_name

    def _day(self, day: date) -> list[int]:
        """The ticks of a day that fits. A set, since a change may move one time onto another."""
        ticks: set[int] = set()
        for wall in self._wall:
            first = datetime.combine(day, wall, self._zone)
            if not self._every_hour:
                ticks.add(_floor(first))
                continue
            for local in (first, first.replace(fold=1)):
                # What does not exist comes back as another time.
                shown = local.astimezone(UTC).astimezone(self._zone)
                if (shown.date(), shown.time()) == (day, wall):
                    ticks.add(_floor(local))
        return sorted(ticks)


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
