"""Meters: counters, gauges and histograms that cost a dictionary look-up on the path of a job.

The instruments of the OpenTelemetry SDK take 9 µs for a count and 14 for a histogram; a job has several of both.
Those of prometheus_client take 1.5 to 4.6. So these are plain numbers; `prometheus.py` and `otlp_metrics.py` read them.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Literal

#: Series of one metric at most. Names that users choose (queues, blueprints) must not fill the memory.
MAX_SERIES = 500
#: What stands in every label of the series that takes the rest.
OTHER = "other"

Labels = tuple[str, ...]
Kind = Literal["counter", "gauge", "histogram"]


class Meter:
    """What all metrics have: a name, a meaning, and the names of their labels."""

    kind: Kind

    def __init__(self, name: str, help: str, labels: Sequence[str] = ()) -> None:
        self.name = name
        self.help = help
        self.labels = tuple(labels)

    def _place(self, labels: Labels, known: int) -> Labels:
        """Where a new series goes: into a row of its own, or with the rest when there are too many."""
        if len(labels) != len(self.labels):
            raise ValueError(f"{self.name}: expected the labels {self.labels}, got {labels}")
        return labels if known < MAX_SERIES else (OTHER,) * len(labels)


class Counter(Meter):
    """Only ever grows."""

    kind = "counter"

    def __init__(self, name: str, help: str, labels: Sequence[str] = ()) -> None:
        super().__init__(name, help, labels)
        self.values: dict[Labels, float] = {} if labels else {(): 0}

    def add(self, labels: Labels = (), amount: float = 1) -> None:
        """So many more."""
        try:
            self.values[labels] += amount
        except KeyError:
            place = self._place(labels, len(self.values))
            self.values[place] = self.values.get(place, 0) + amount


class Gauge(Meter):
    """The newest value. `fill` replaces all of them, so that what is gone is not told for ever."""

    kind = "gauge"

    def __init__(self, name: str, help: str, labels: Sequence[str] = ()) -> None:
        super().__init__(name, help, labels)
        self.values: dict[Labels, float] = {}

    def set(self, value: float, labels: Labels = ()) -> None:
        """It is so now."""
        place = labels if labels in self.values else self._place(labels, len(self.values))
        self.values[place] = value

    def fill(self, values: dict[Labels, float]) -> None:
        """It is so now, and nothing else is."""
        self.values = {}
        for labels, value in values.items():
            self.set(value, labels)


class Series:
    """How one histogram's values of one row of labels fell."""

    __slots__ = ("counts", "largest", "smallest", "total")

    def __init__(self, buckets: int) -> None:
        self.counts = [0] * buckets
        self.total = 0.0
        self.smallest = float("inf")
        self.largest = float("-inf")


class Histogram(Meter):
    """How values fall. A value lies in the first bucket whose bound is not below it."""

    kind = "histogram"

    def __init__(
        self, name: str, help: str, labels: Sequence[str] = (), bounds: Sequence[float] = ()
    ) -> None:
        super().__init__(name, help, labels)
        self.bounds = tuple(bounds)
        self.values: dict[Labels, Series] = {}

    def observe(self, value: float, labels: Labels = ()) -> None:
        """One more value."""
        series = self.values.get(labels) or self._new_series(labels)
        series.counts[bisect_left(self.bounds, value)] += 1
        series.total += value
        if value < series.smallest:
            series.smallest = value
        if value > series.largest:
            series.largest = value

    def observe_all(self, values: Sequence[float], labels: Labels = ()) -> None:
        """More values, at least one."""
        if len(values) == 1:
            self.observe(values[0], labels)
            return
        series = self.values.get(labels) or self._new_series(labels)
        counts, bounds = series.counts, self.bounds
        for value in values:
            counts[bisect_left(bounds, value)] += 1
        series.total += sum(values)
        series.smallest = min(series.smallest, *values)
        series.largest = max(series.largest, *values)

    def _new_series(self, labels: Labels) -> Series:
        place = self._place(labels, len(self.values))
        return self.values.setdefault(place, Series(len(self.bounds) + 1))


class Meters:
    """All metrics of one orchestrator, by name."""

    def __init__(self) -> None:
        self._known: dict[str, Counter | Gauge | Histogram] = {}

    def __iter__(self) -> Iterator[Counter | Gauge | Histogram]:
        return iter(self._known.values())

    def counter(self, name: str, help: str, *labels: str) -> Counter:
        """A new counter."""
        made = Counter(name, help, labels)
        self._add(made)
        return made

    def gauge(self, name: str, help: str, *labels: str) -> Gauge:
        """A new gauge."""
        made = Gauge(name, help, labels)
        self._add(made)
        return made

    def histogram(self, name: str, help: str, *labels: str, bounds: Sequence[float]) -> Histogram:
        """A new histogram."""
        made = Histogram(name, help, labels, bounds)
        self._add(made)
        return made

    def _add(self, meter: Counter | Gauge | Histogram) -> None:
        if meter.name in self._known:
            raise ValueError(f"{meter.name} is there already")
        self._known[meter.name] = meter
