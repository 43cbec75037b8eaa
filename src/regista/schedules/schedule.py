"""Schedule: what shall be started, when, and what to do when that does not fit. Checked whole."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from enum import StrEnum
from hashlib import blake2b
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

from ..errors import ScheduleInvalid
from .calendar import Calendar, CronCalendar, CronError, IntervalCalendar

Text = Annotated[str, Meta(min_length=1, max_length=1000)]
Positive = Annotated[float, Meta(gt=0)]
Whole = Annotated[int, Meta(ge=1, le=10 * 366 * 86_400)]

#: How a schedule may be called; it stands in paths and on command lines.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_TIME = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
#: Whatever comes at all comes within fifty years of any day.
_SOME_DAY = datetime(2026, 1, 1, tzinfo=UTC)
#: The kinds of triggers; a schedule has exactly one.
TRIGGERS = ("interval_seconds", "daily_at", "weekly_days", "monthly_dates", "cron")


class CatchUp(StrEnum):
    """What becomes of ticks that nobody was there for."""

    #: The newest one still fires if it is hardly late (`HARDLY_LATE_S`).
    NONE = "none"
    #: The newest one fires.
    LAST = "last"
    #: Each of them fires.
    ALL = "all"


class Overlap(StrEnum):
    """What happens to a tick while a job of an earlier one still runs."""

    ALLOW = "allow"
    SKIP = "skip"
    #: The earlier job is cancelled, and when it has stopped the new one starts.
    CANCEL_PREVIOUS = "cancel_previous"
    #: One tick waits for the end of the earlier job; further ones are skipped.
    BUFFER_ONE = "buffer_one"


class Schedule(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One table of `schedules.toml`, or one schedule that was made over the API. Both have these members."""

    blueprint: Text
    #: Exactly one of the next five says when. Intervals are counted from 1970, in UTC.
    interval_seconds: Whole | None = None
    #: "07:30", or several of them.
    daily_at: str | list[str] | None = None
    #: Three letters each: mon, tue … With `time`.
    weekly_days: Annotated[list[str], Meta(min_length=1)] | None = None
    #: Days of the month; -1 is the last one. With `time`.
    monthly_dates: Annotated[list[int], Meta(min_length=1)] | None = None
    #: Five fields, or @daily and its like.
    cron: str | None = None
    #: Belongs to `weekly_days` and `monthly_dates`.
    time: str | None = None
    #: Moves an interval's ticks.
    offset_seconds: Annotated[int, Meta(ge=0, le=10 * 366 * 86_400)] = 0
    #: Where the clock hangs; None: the orchestrator's `TZ`.
    timezone: str | None = None
    #: Each tick fires up to so much later, each by an amount of its own, and never later than the next one.
    jitter_seconds: Annotated[float, Meta(ge=0, le=86_400)] = 0.0
    catch_up: CatchUp = CatchUp.NONE
    #: Older ticks are never caught up with.
    catch_up_window_seconds: Positive = 86_400.0
    overlap: Overlap = Overlap.ALLOW
    #: Nothing fires until somebody resumes it.
    paused: bool = False
    input_data: dict[str, Any] = field(default_factory=dict)
    priority: float = 0.0
    dispatch_timeout: Positive | None = None
    result_timeout: Positive | None = None
    search_attributes: dict[str, Any] = field(default_factory=dict)
    #: Whose jobs they are.
    client: Text = "scheduler"
    description: str = ""
    #: Kept and shown; nothing acts on them.
    metadata: dict[str, Any] = field(default_factory=dict)
    security: dict[str, Any] = field(default_factory=dict)

    @property
    def trigger(self) -> str:
        """The name of the member that says when."""
        return next(name for name in TRIGGERS if getattr(self, name) is not None)

    def words(self) -> str:
        """When it ticks, for people."""
        value = getattr(self, self.trigger)
        if isinstance(value, list):
            value = ", ".join(map(str, value))
        match self.trigger:
            case "interval_seconds":
                return f"every {value} s"
            case "daily_at":
                return f"daily at {value}"
            case "cron":
                return f"cron {value}"
            case _:
                return f"{self.trigger.partition('_')[0]} on {value} at {self.time}"

    def fingerprint(self, tz: str) -> str:
        """What must be the same for a tick to be the same tick."""
        said = [getattr(self, name) for name in (*TRIGGERS, "time", "offset_seconds")]
        told = msgspec.json.encode([*said, self.timezone or tz])
        return blake2b(told, digest_size=8).hexdigest()


def check(schedule: Schedule, tz: str) -> Calendar:
    """The calendar of a sound schedule; ScheduleInvalid names the member that is wrong, and why."""
    given = [name for name in TRIGGERS if getattr(schedule, name) is not None]
    if len(given) != 1:
        expected = f"exactly one of {', '.join(TRIGGERS)}"
        raise ScheduleInvalid(given[-1] if given else "", expected, " and ".join(given) or "none of them")
    if (schedule.time is not None) != (given[0] in ("weekly_days", "monthly_dates")):
        if schedule.time is None:
            raise ScheduleInvalid(given[0], 'a time = "HH:MM" beside it', "none")
        raise ScheduleInvalid("time", "weekly_days or monthly_dates beside it", given[0])
    if schedule.offset_seconds and given[0] != "interval_seconds":
        raise ScheduleInvalid("offset_seconds", "interval_seconds beside it", given[0])
    calendar = _BUILDERS[given[0]](schedule, _zone(schedule.timezone or tz))
    if calendar.next(_SOME_DAY) is None:
        raise ScheduleInvalid(given[0], "a day that some year has", getattr(schedule, given[0]))
    return calendar


def _every(schedule: Schedule, zone: tzinfo) -> Calendar:
    return IntervalCalendar(schedule.interval_seconds or 1, schedule.offset_seconds)


def _daily(schedule: Schedule, zone: tzinfo) -> Calendar:
    named = schedule.daily_at
    times = [named] if isinstance(named, str) else named or []
    if not times:
        raise ScheduleInvalid("daily_at", 'a time like "07:30"', named)
    return CronCalendar([f"{_time('daily_at', text)} * * *" for text in times], zone)


def _weekly(schedule: Schedule, zone: tzinfo) -> Calendar:
    days = [name.lower() for name in schedule.weekly_days or ()]
    for name, day in zip(schedule.weekly_days or (), days, strict=True):
        if day not in _WEEKDAYS:
            raise ScheduleInvalid("weekly_days", f"days out of {', '.join(_WEEKDAYS)}", name)
    return CronCalendar([f"{_time('time', schedule.time or '')} * * {','.join(days)}"], zone)


def _monthly(schedule: Schedule, zone: tzinfo) -> Calendar:
    dates = schedule.monthly_dates or []
    wrong = [number for number in dates if number != -1 and not 1 <= number <= 31]
    if wrong:
        raise ScheduleInvalid("monthly_dates", "days from 1 to 31, or -1 for the last one", wrong[0])
    days = ",".join("L" if number == -1 else str(number) for number in dict.fromkeys(dates))
    try:
        return CronCalendar([f"{_time('time', schedule.time or '')} {days} * *"], zone)
    except CronError as error:
        raise ScheduleInvalid("monthly_dates", "days that some month has", dates, str(error)) from None


def _cron(schedule: Schedule, zone: tzinfo) -> Calendar:
    try:
        return CronCalendar([schedule.cron or ""], zone)
    except CronError as error:
        raise ScheduleInvalid("cron", "a cron line", schedule.cron, str(error)) from None


def _time(member: str, text: str) -> str:
    """The minute and the hour, as a cron line begins."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise ScheduleInvalid(member, 'a time like "07:30"', text)
    return f"{int(found[2])} {int(found[1])}"


def _zone(name: str) -> tzinfo:
    if name == "UTC":  # known even on a machine without time zone data
        return UTC
    from zoneinfo import ZoneInfo  # a few milliseconds that starts without schedules can save

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ScheduleInvalid("timezone", "the name of a time zone, like Europe/Madrid", name) from None


_BUILDERS: dict[str, Callable[[Schedule, tzinfo], Calendar]] = {
    "interval_seconds": _every,
    "daily_at": _daily,
    "weekly_days": _weekly,
    "monthly_dates": _monthly,
    "cron": _cron,
}
