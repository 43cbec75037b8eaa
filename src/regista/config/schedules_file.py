"""`schedules.toml`: what shall be started, and when. Read strictly: a mistake stops the start and names its line."""

import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from ..errors import ConfigError, ScheduleInvalid
from ..schedules.schedule import NAME, CatchUp, Overlap, Schedule, check
from .people import _File

_KEYS = tuple(Schedule.__struct_fields__)
_CHOICES: dict[str | None, type[StrEnum]] = {"catch_up": CatchUp, "overlap": Overlap}
#: How msgspec says where in a table a mistake is.
_WHERE = re.compile(r"(?P<words>.*?)(?: - at `\$\.(?P<key>\w+).*`)?", re.DOTALL)


class ScheduleFile:
    """The schedules of one file, and where each of them stands."""

    def __init__(self, path: str | Path, tz: str) -> None:
        self._file = _File(Path(path))
        self.schedules: Mapping[str, Schedule] = {
            name: self._read(name, table, tz) for name, table in self._file.tables.items()
        }

    def require(self, blueprints: Collection[str]) -> None:
        """ConfigError unless every schedule names a blueprint that is known."""
        for name, schedule in self.schedules.items():
            if schedule.blueprint not in blueprints:
                known = ", ".join(sorted(blueprints)) or "none"
                expected = f"a registered blueprint ({known})"
                raise self._file.wrong(name, "blueprint", expected, schedule.blueprint)

    def _read(self, name: str, table: Any, tz: str) -> Schedule:
        if not isinstance(table, dict):
            raise self._file.wrong(name, None, "a table [name] with its schedule", table)
        if NAME.fullmatch(name) is None:
            raise self._file.wrong(name, None, "a name of letters, digits, '.', '_' and '-'", name)
        for key in table:
            if key not in _KEYS:
                near = get_close_matches(key, _KEYS, n=1)
                raise self._file.wrong(name, key, near[0] if near else f"one of {', '.join(_KEYS)}", key)
        schedule = self._converted(name, table)
        try:
            check(schedule, tz)
        except ScheduleInvalid as error:
            expected = f"{error.expected} ({error.why})" if error.why else error.expected
            raise self._file.wrong(name, error.member or None, expected, error.got) from None
        return schedule

    def _converted(self, name: str, table: dict[str, Any]) -> Schedule:
        try:
            return msgspec.convert(table, Schedule)
        except msgspec.ValidationError as error:
            raise self._refusal(name, table, str(error)) from None

    def _refusal(self, name: str, table: dict[str, Any], words: str) -> ConfigError:
        if "blueprint" not in table:
            return self._file.wrong(name, None, "blueprint = and the name of one", "none")
        found = _WHERE.fullmatch(words)
        key = found["key"] if found is not None else None
        said = found["words"] if found is not None else words
        expected = re.sub(r", got `.*`$", "", said).removeprefix("Expected ").replace("`", "")
        if key in _CHOICES:
            expected = f"one of {', '.join(_CHOICES[key])}"
        return self._file.wrong(name, key, expected, table.get(key, "nothing") if key else "something else")


def read_schedules(path: str | Path, tz: str) -> Mapping[str, Schedule]:
    """The schedules of a file; those without a zone of their own are in `tz`."""
    return ScheduleFile(path, tz).schedules
