"""Prometheus: OpenTelemetry's records as the text that Prometheus scrapes (exposition format 0.0.4).

The SDK's own exporter is a beta that hangs on a registry of the process; two orchestrators in one program would
share it. What we need of it is this page.
"""

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any

from opentelemetry.sdk.metrics.export import Gauge, Histogram, HistogramDataPoint, Metric, MetricsData


def render(data: MetricsData) -> str:
    """The whole page, in the order of the records."""
    lines: list[str] = []
    for resource in data.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                lines += _lines(metric)
    return "\n".join(lines) + "\n"


def _lines(metric: Metric) -> Iterator[str]:
    yield f"# HELP {metric.name} {_words(metric.description)}"
    if isinstance(metric.data, Histogram):
        yield f"# TYPE {metric.name} histogram"
        for fall in metric.data.data_points:
            assert isinstance(fall, HistogramDataPoint)
            yield from _fall(metric.name, fall)
        return
    yield f"# TYPE {metric.name} {'gauge' if isinstance(metric.data, Gauge) else 'counter'}"
    for point in metric.data.data_points:
        yield f"{metric.name}{_labels(point.attributes)} {_number(getattr(point, 'value', 0))}"


def _fall(name: str, point: HistogramDataPoint) -> Iterator[str]:
    bounds = [_number(bound) for bound in point.explicit_bounds] + ["+Inf"]
    for bound, count in zip(bounds, accumulate(point.bucket_counts), strict=True):
        yield f"{name}_bucket{_labels(point.attributes, le=bound)} {count}"
    yield f"{name}_sum{_labels(point.attributes)} {_number(point.sum)}"
    yield f"{name}_count{_labels(point.attributes)} {point.count}"


def _labels(attributes: Mapping[str, Any] | None, **more: str) -> str:
    pairs = [f'{name}="{_quoted(str(value))}"' for name, value in {**(attributes or {}), **more}.items()]
    return f"{{{','.join(pairs)}}}" if pairs else ""


def _quoted(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _words(text: str | None) -> str:
    return (text or "").replace("\\", r"\\").replace("\n", r"\n")


def _number(value: float) -> str:
    """Whole numbers without a point: Prometheus does not mind, and people read them."""
    return repr(int(value)) if float(value).is_integer() else repr(float(value))
