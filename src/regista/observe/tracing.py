"""Tracing: spans of this process on their way to an OTLP receiver. The one file that sets up OpenTelemetry's tracer."""

import asyncio
import logging
import random
from datetime import UTC, datetime
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import trace as otel
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from .. import __version__, trace_context
from ..model import Job
from ..trace_context import SpanReference
from .spans import SpanRecord

log = logging.getLogger("regista.observe")

#: How long the last spans may take to get out when a process ends.
FLUSH_S = 3.0
_SCOPE = InstrumentationScope("regista")


class Tracing:
    """Sends spans in batches from a thread of its own; what cannot be sent is dropped and never holds up a job."""

    def __init__(self, endpoint: str, service: str, instance: str = "") -> None:
        named = {"service.name": service, "service.version": __version__}
        if instance:
            named["service.instance.id"] = instance
        self._resource = Resource.create(named)
        self._processor = BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint))
        #: For spans that are begun and ended in one process, ours and the user's.
        self.provider = TracerProvider(resource=self._resource, shutdown_on_exit=False)
        self.provider.add_span_processor(self._processor)

    def start(self, *, everywhere: bool = False) -> None:
        """Trace from now on. `everywhere`: what user code begins through OpenTelemetry goes the same way."""
        trace_context.use_provider(self.provider)
        if everywhere and isinstance(otel.get_tracer_provider(), otel.ProxyTracerProvider):
            otel.set_tracer_provider(self.provider)

    async def stop(self) -> None:
        """Send what is left, for a moment, and end. Twice is fine."""
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """The same, blocking."""
        if trace_context.tracer_provider() is self.provider:
            trace_context.use_provider(None)
        if not self._processor.force_flush(int(FLUSH_S * 1000)):
            log.warning("not all spans could be sent", extra={"action": "telemetry"})
        self.provider.shutdown()

    def emit(self, record: SpanRecord) -> None:
        """Send a span that is over."""
        status = Status(StatusCode.UNSET) if record.error is None else Status(StatusCode.ERROR, record.error)
        self._processor.on_end(
            ReadableSpan(
                name=record.name,
                context=_context(record.place),
                parent=_context(record.place._replace(span_id=record.parent_id)),
                resource=self._resource,
                attributes=record.attributes,
                kind=SpanKind[record.kind.upper()],
                status=status,
                start_time=_ns(record.start),
                end_time=_ns(record.end),
                instrumentation_scope=_SCOPE,
            )
        )

    def handler(self, job: Job) -> "HandlerSpan | None":
        """A handler of this job begins here; None when nobody traces the job."""
        above = trace_context.span_in(job.tracing_context) if job.tracing_context else None
        return None if above is None or not above.sampled else HandlerSpan(self, job, above)


class HandlerSpan:
    """One run of a handler. Spans that the handler begins by itself are below it."""

    def __init__(self, tracing: Tracing, job: Job, above: SpanReference) -> None:
        self._tracing = tracing
        self._job = job
        self._began = datetime.now(UTC)
        self._place = above._replace(span_id=f"{random.getrandbits(64) | 1:016x}")
        span = NonRecordingSpan(_context(self._place))
        self._token: Any = otel_context.attach(otel.set_span_in_context(span))

    def off(self) -> None:
        """What runs from here on is somebody else's."""
        otel_context.detach(self._token)

    def done(self, error: str | None) -> None:
        """It has decided, or failed."""
        job = self._job
        told: dict[str, str | int | float | bool] = {"regista.job_id": job.id, "regista.state": job.state}
        self._tracing.emit(
            SpanRecord(
                name=f"handler {job.state}",
                place=self._place,
                parent_id=trace_context.span_id_of(job.id),
                start=self._began,
                end=datetime.now(UTC),
                attributes={**told, "regista.blueprint": job.blueprint},
                error=error,
            )
        )


def _context(place: SpanReference) -> SpanContext:
    flags = TraceFlags(int(place.flags, 16))
    return SpanContext(int(place.trace_id, 16), int(place.span_id, 16), is_remote=False, trace_flags=flags)


def _ns(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000_000) * 1000
