"""Exporting: the meters as OpenTelemetry's own records, for a scrape and for whoever wants them pushed."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import export
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from .meters import Counter, Gauge, Histogram, Meters

log = logging.getLogger("regista.observe")

#: How often metrics are pushed, where somebody wants them so.
PUSH_S = 15.0
#: How long a receiver may take, and be waited for.
TIMEOUT_S = 3.0
_CUMULATIVE = AggregationTemporality.CUMULATIVE


class OtlpRecords:
    """Reads meters into the SDK's records. Only looks at memory."""

    def __init__(self, meters: Meters, resource: dict[str, str]) -> None:
        self._meters = meters
        self._resource = Resource.create(dict(resource))
        self._since_ns = time.time_ns()

    def collect(self) -> MetricsData:
        """Everything that was measured so far."""
        now_ns = time.time_ns()
        metrics = [self._metric(meter, now_ns) for meter in self._meters if meter.values]
        scope = ScopeMetrics(InstrumentationScope("regista"), metrics, "")
        return MetricsData([ResourceMetrics(self._resource, [scope], "")])

    def _metric(self, meter: Counter | Gauge | Histogram, now_ns: int) -> Metric:
        data: export.Sum | export.Gauge | export.Histogram
        if isinstance(meter, Histogram):
            data = export.Histogram(self._falls(meter, now_ns), _CUMULATIVE)
        elif isinstance(meter, Gauge):
            data = export.Gauge(self._numbers(meter, now_ns))
        else:
            data = export.Sum(self._numbers(meter, now_ns), _CUMULATIVE, is_monotonic=True)
        unit = "s" if "_seconds" in meter.name else "1"
        return Metric(meter.name, meter.help, unit, data)

    def _numbers(self, meter: Counter | Gauge, now_ns: int) -> Sequence[NumberDataPoint]:
        return [
            NumberDataPoint(dict(zip(meter.labels, labels, strict=True)), self._since_ns, now_ns, value)
            for labels, value in meter.values.items()
        ]

    def _falls(self, meter: Histogram, now_ns: int) -> Sequence[HistogramDataPoint]:
        return [
            HistogramDataPoint(
                attributes=dict(zip(meter.labels, labels, strict=True)),
                start_time_unix_nano=self._since_ns,
                time_unix_nano=now_ns,
                count=sum(series.counts),
                sum=series.total,
                bucket_counts=list(series.counts),
                explicit_bounds=meter.bounds,
                min=series.smallest,
                max=series.largest,
            )
            for labels, series in meter.values.items()
        ]


class MetricsPusher:
    """Sends the metrics to an OTLP receiver now and then. One that is away costs a line in the log, once."""

    def __init__(
        self,
        collect: Callable[[], MetricsData],
        endpoint: str,
        interval_s: float = PUSH_S,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._collect = collect
        self._exporter = OTLPMetricExporter(endpoint=endpoint, timeout=timeout_s)
        self._timeout_s = timeout_s
        self._interval_s = interval_s
        self._task: asyncio.Task[None] | None = None
        self._failing = False

    def start(self) -> None:
        """Begin. Twice is fine."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="metrics-push")

    async def stop(self) -> None:
        """Push once more, and end. Twice is fine."""
        if self._task is not None:
            task, self._task = self._task, None
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            try:
                await self.push()
            except Exception:  # the rest of the orchestrator has to stop, too
                log.exception("the last metrics were not sent", extra={"action": "telemetry"})
            await asyncio.to_thread(self._exporter.shutdown, self._timeout_s * 1000)

    async def push(self) -> bool:
        """Send everything now; False when it did not arrive."""
        data = self._collect()
        done = await asyncio.to_thread(self._exporter.export, data, self._timeout_s * 1000)
        sent = done is MetricExportResult.SUCCESS
        if not sent and not self._failing:
            log.warning("metrics could not be sent; they are tried again", extra={"action": "telemetry"})
        self._failing = not sent
        return sent

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                await self.push()
            except Exception:
                log.exception("pushing metrics failed; the next try follows", extra={"action": "telemetry"})
