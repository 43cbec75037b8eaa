"""Measure: one row of the table, what it must reach, and which raw figure it stands beside."""

from enum import StrEnum

from msgspec import Struct, field

from .raw import Raw


class Better(StrEnum):
    """Which way a figure should move."""

    HIGHER = "≥"
    LOWER = "≤"


class Beside(StrEnum):
    """The raw figure that a measure is divided by."""

    COMMITS = "one-row commits"
    ROWS = "rows in 100-row commits"
    NOTHING = ""


class Measure(Struct, frozen=True):
    """A figure of a bench. Rates are in 1/s; durations in s or ms."""

    name: str
    unit: str
    better: Better
    must: float | None = None
    beside: Beside = Beside.NOTHING
    #: How many raw writes a duration is compared with.
    writes: int = 1

    def met(self, value: float) -> bool | None:
        """Whether the value is what it must be; None where nothing is asked."""
        if self.must is None:
            return None
        return value >= self.must if self.better is Better.HIGHER else value <= self.must

    def ratio(self, value: float, raw: Raw) -> float | None:
        """Rate ÷ raw rate, or duration ÷ the time that raw SQLite needs for the same number of writes."""
        if self.beside is Beside.NOTHING:
            return None
        rate = raw.commits_s if self.beside is Beside.COMMITS else raw.rows_s
        if self.unit.endswith("/s"):
            return value / rate
        seconds = value / 1000 if self.unit.startswith("ms") else value
        return seconds * rate / self.writes


class Sample(Struct):
    """What one run of a bench found: a value per measure, and what else is worth knowing."""

    values: dict[str, float]
    notes: dict[str, float | str] = field(default_factory=dict)
    raw: Raw | None = None
    loop: str = ""
    #: Set where the bench cannot run: why.
    missing: str = ""
    #: It should have run: that is a bug, not a missing part.
    failed: bool = False
