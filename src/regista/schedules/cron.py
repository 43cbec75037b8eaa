"""Cron: five fields of text become sets of numbers. Mistakes are named by their field."""

import re
from typing import NamedTuple

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
#: The last day of a month, whichever number it has.
LAST_DAY = 0

#: In English, wherever we run.
_MONTHS = {
    name: number
    for number, name in enumerate(
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], 1
    )
}
#: Sunday is 0, and 7 as well.
WEEKDAYS = {name: number for number, name in enumerate(["sun", "mon", "tue", "wed", "thu", "fri", "sat"])}
#: Digits of a number, at most.
_MOST_DIGITS = 9
_PART = re.compile(r"(?P<from>\*|[0-9A-Za-z]+)(?:-(?P<to>[0-9A-Za-z]+))?(?:/(?P<step>[0-9]+))?")


class CronError(ValueError):
    """Not a cron line. The message says which field, what was expected and what was found."""


class _Field(NamedTuple):
    name: str
    least: int
    most: int
    names: dict[str, int]


_FIELDS = (
    _Field("minute", 0, 59, {}),
    _Field("hour", 0, 23, {}),
    _Field("day of month", 1, 31, {}),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of week", 0, 7, WEEKDAYS),
)


class Cron(NamedTuple):
    """The five fields, as numbers. Days of the week count from Monday, 0, as Python's do."""

    minutes: frozenset[int]
    hours: frozenset[int]
    #: `LAST_DAY` stands for the last one of the month.
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    #: Both kinds of days are restricted: then either is enough, as every cron has it.
    either_day: bool


def parse(line: str) -> Cron:
    """The numbers that a cron line stands for; CronError for anything else."""
    text = line.strip()
    if text.startswith("@"):
        if text.lower() not in NICKNAMES:
            raise CronError(f"expected one of {', '.join(NICKNAMES)}, got {text!r}")
        text = NICKNAMES[text.lower()]
    words = text.split()
    if len(words) != len(_FIELDS):
        expected = "five fields (minute, hour, day of month, month, day of week)"
        raise CronError(f"expected {expected}, got {len(words)}: {line!r}")
    minutes, hours, days, months, weekdays = (
        _numbers(field, word) for field, word in zip(_FIELDS, words, strict=True)
    )
    return Cron(
        minutes,
        hours,
        days,
        months,
        frozenset((day - 1) % 7 for day in weekdays),
        not words[2].startswith("*") and not words[4].startswith("*"),
    )


def _numbers(field: _Field, word: str) -> frozenset[int]:
    found: set[int] = set()
    for part in word.split(","):
        found |= _part(field, part)
    return frozenset(found)


def _part(field: _Field, part: str) -> set[int]:
    if part.upper() == "L" and field.name == "day of month":
        return {LAST_DAY}
    match = _PART.fullmatch(part)
    if match is None:
        raise _wrong(field, part)
    first, last, step = match["from"], match["to"], match["step"]
    if first == "*":
        if last is not None:
            raise _wrong(field, part)
        low, high = field.least, field.most
    else:
        low = _number(field, first, part)
        high = low if last is None else _number(field, last, part)
        if last is not None and high == 0 < low and field.names is WEEKDAYS:
            high = 7  # fri-sun
        if step is not None and last is None:
            raise CronError(
                f"{field.name}: expected a range before /{step}, like {first}-{field.most}/{step}, got {part!r}"
            )
    if low > high:
        raise CronError(f"{field.name}: expected a range that goes upwards, got {part!r}")
    return set(range(low, high + 1, 1 if step is None else _step(field, step, part)))


def _step(field: _Field, step: str, part: str) -> int:
    if len(step) > _MOST_DIGITS:  # Python itself refuses some thousands of them
        raise CronError(f"{field.name}: expected a step of at most {_MOST_DIGITS} digits, got {len(step)}")
    if int(step) < 1:
        raise CronError(f"{field.name}: expected a step of 1 or more, got {part!r}")
    return int(step)


def _number(field: _Field, word: str, part: str) -> int:
    named = field.names.get(word.lower())
    if named is not None:
        return named
    if not word.isdigit() or len(word) > _MOST_DIGITS or not field.least <= int(word) <= field.most:
        raise _wrong(field, part)
    return int(word)


def _wrong(field: _Field, part: str) -> CronError:
    names = f" or {next(iter(field.names))} … " if field.names else ""
    expected = f"{field.least} to {field.most}{names.rstrip()}, a range, a list, or * with a step"
    return CronError(f"{field.name}: expected {expected}, got {part!r}")
