"""The metrics as Prometheus scrapes them: prometheus_client writes the text, from a registry of this orchestrator."""

from collections.abc import Iterable, Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from .meters import Counter, Gauge, Histogram


class _MeterCollector(Collector):
    """Reads the meters at each scrape. Only looks at memory."""

    def __init__(self, meters: Iterable[Counter | Gauge | Histogram]) -> None:
        self._meters = meters

    def collect(self) -> Iterator[Metric]:
        """The metrics that have a value, in the order in which they are declared."""
        for meter in self._meters:
            if not meter.values:
                continue
            if isinstance(meter, Histogram):
                yield _histogram(meter)
                continue
            kind = CounterMetricFamily if isinstance(meter, Counter) else GaugeMetricFamily
            family = kind(meter.name, meter.help, labels=meter.labels)
            for labels, value in meter.values.items():
                family.add_metric(labels, value)
            yield family


def _histogram(meter: Histogram) -> Metric:
    family = HistogramMetricFamily(meter.name, meter.help, labels=meter.labels)
    bounds = [*(repr(float(bound)) for bound in meter.bounds), "+Inf"]
    for labels, series in meter.values.items():
        buckets = list(zip(bounds, map(float, accumulate(series.counts)), strict=True))
        family.add_metric(labels, buckets, series.total)
    return family


def prometheus_page(meters: Iterable[Counter | Gauge | Histogram]) -> bytes:
    """The whole page, in the exposition format 0.0.4."""
    registry = CollectorRegistry()
    registry.register(_MeterCollector(meters))
    return generate_latest(registry)
