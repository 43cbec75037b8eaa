"""Literals: times and lengths of time, as people and Temporal write them."""

import re
from datetime import UTC, datetime, timedelta, tzinfo

from ...clock import EPOCH

#: Microseconds of a unit.
_UNITS = {
    "ns": 0.001,
    "us": 1,
    "µs": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
_PART = r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h|d)"
#: No longer span is asked about: a hundred years.
_LONGEST = 100 * 366 * _UNITS["d"]


def moment_of(value: str | int, zone: tzinfo) -> datetime | None:
    """An instant: RFC 3339, a date, or nanoseconds since 1970. Without a zone of its own it is in `zone`."""
    try:
        if isinstance(value, int):
            return EPOCH + timedelta(microseconds=value // 1000)
        if not re.match(r"\d{4}-\d\d-\d\d", value):
            return None
        # More digits than a microsecond has are cut, not refused.
        found = datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", value.strip()))
        aware = found if found.tzinfo is not None else found.replace(tzinfo=zone)
        return aware.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def span_of(value: str | int) -> int | None:
    """A length of time in microseconds: `1h30m`, `90s`, `250ms`, `00:01:30`, or nanoseconds."""
    found: float | None
    if isinstance(value, int):
        found = value // 1000
    elif clock := re.fullmatch(r"(\d{1,6}):([0-5]?\d):([0-5]?\d(?:\.\d+)?)", value.strip()):
        found = (int(clock[1]) * 3600 + int(clock[2]) * 60 + float(clock[3])) * 1_000_000
    elif re.fullmatch(rf"(?:{_PART}\s*)+", value.strip()):
        found = sum(float(number) * _UNITS[unit] for number, unit in re.findall(_PART, value))
    else:
        return None
    return round(found) if abs(found) <= _LONGEST else None
