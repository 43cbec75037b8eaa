"""Trace context: the job that the running code works for, and how it is passed on (W3C traceparent).

Nothing here needs OpenTelemetry. If a program has set it up, spans are started through it. If not, an incoming trace
is still passed on from the request to the job, its tasks and the workers.
"""

import re
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

#: version - trace id - span id - flags. Later versions may append more fields.
_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
#: The longest `tracestate` that is kept; the standard requires no more.
_MAX_STATE = 512


class TraceSubject(Protocol):
    """The job or the attempt that code runs for."""

    @property
    def ids(self) -> Mapping[str, str]:
        """Fields of every log line written meanwhile: job_id, task_id, attempt_id, worker_id."""
        ...

    @property
    def trace(self) -> dict[str, str]:
        """The context of its trace."""
        ...


#: The job or attempt that the running code works for.
CURRENT_SUBJECT: ContextVar[TraceSubject | None] = ContextVar("regista_about", default=None)
#: The trace context of the request that is being handled.
REQUEST_TRACE: ContextVar[dict[str, str] | None] = ContextVar("regista_carried", default=None)

#: The tracer provider that Regista itself has set up in this process, if any.
_own: Any = None


class SpanReference(NamedTuple):
    """The ids of a span and of its trace."""

    trace_id: str
    span_id: str
    flags: str

    @property
    def sampled(self) -> bool:
        """The trace is recorded."""
        return bool(int(self.flags, 16) & 1)

    @property
    def header(self) -> str:
        """The value of the header `traceparent`."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"


def span_in(context: Mapping[str, str]) -> SpanReference | None:
    """The span of a context; None if it has none."""
    found = _PARENT.fullmatch(context.get("traceparent", ""))
    return None if found is None else SpanReference(*found.group(1, 2, 3))


def child_context(context: dict[str, str], name: str) -> dict[str, str]:
    """The context of the span of `name` (a job id or an attempt id) in the same trace.

    The span id follows from the name, so that every instance and every worker computes the same one. A context
    without a trace is returned unchanged.
    """
    place = span_in(context) if context else None
    if place is None:
        return context
    return {**context, "traceparent": place._replace(span_id=span_id_of(name)).header}


def span_id_of(name: str) -> str:
    """The id of the span of a job or an attempt."""
    return blake2b(name.encode(), digest_size=8, person=b"regista-span").hexdigest()


def from_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The trace context of a request; empty if it has none or an invalid one."""
    parent = headers.get("traceparent")
    if parent is None or not _may_be_kept(parent) or span_in({"traceparent": parent}) is None:
        return {}
    state = headers.get("tracestate", "")
    return {"traceparent": parent, "tracestate": state} if _may_be_kept(state) else {"traceparent": parent}


def _may_be_kept(header: str) -> bool:
    """The header is short enough to be stored with the job, and ASCII."""
    return 0 < len(header) <= _MAX_STATE and header.isascii()


def current_context() -> dict[str, str]:
    """The context for what starts now: of the open span, else of the job, else of the request."""
    about = CURRENT_SUBJECT.get()
    return open_span_context() or (REQUEST_TRACE.get() or {} if about is None else about.trace)


# -- where OpenTelemetry is set up -----------------------------------------------------------------------


def use_provider(tracer_provider: Any) -> None:
    """Start spans through this tracer provider; None: through the program's own, if it has one."""
    global _own
    _own = tracer_provider


def tracer_provider() -> Any:
    """The tracer provider to use; None if tracing is not set up."""
    if _own is not None:
        return _own
    otel = sys.modules.get("opentelemetry.trace")
    if otel is None:
        return None
    found = otel.get_tracer_provider()
    return None if isinstance(found, otel.ProxyTracerProvider | otel.NoOpTracerProvider) else found


def open_span_context() -> dict[str, str]:
    """The context of the open span; empty without one."""
    if tracer_provider() is None:
        return {}
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier


def trace_id() -> str:
    """The current trace id for log lines, or an empty string."""
    place = span_in(current_context())
    return "" if place is None else place.trace_id


class ActiveSpan:
    """An open span. Between `enter` and `leave` it is the current one; `end` records it."""

    __slots__ = ("_context", "_span", "_token")

    def __init__(self, span: Any, context: Any) -> None:
        self._span = span
        self._context = context
        self._token: Any = None

    def __enter__(self) -> "ActiveSpan":
        self.enter()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.leave()
        self.end(None if error is None else f"{type(error).__name__}: {error}")

    def enter(self) -> None:
        """Make it the parent of spans that start from now on."""
        from opentelemetry import context

        self._token = context.attach(self._context)

    def leave(self) -> None:
        """Restore the previous current span."""
        from opentelemetry import context

        if self._token is not None:
            token, self._token = self._token, None
            context.detach(token)

    def carrier(self) -> dict[str, str]:
        """Its context, to be passed on."""
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        carrier: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(carrier, self._context)
        return carrier

    def note(self, **attributes: str | int | float | bool) -> None:
        """Set attributes, with the prefix `regista.`."""
        self._span.set_attributes({f"regista.{name}": value for name, value in attributes.items()})

    def end(self, error: str | None = None) -> None:
        """End the span, as failed if there is an error."""
        from opentelemetry.trace import Status, StatusCode

        if error is not None:
            self._span.set_status(Status(StatusCode.ERROR, error))
        self._span.end()


def start_span(
    name: str, kind: str, parent: Mapping[str, str] | None = None, **attributes: str | int | float | bool
) -> ActiveSpan | None:
    """Start a span of a kind (client, server, producer, consumer) below `parent`, else below the open span.

    Returns None if tracing is not set up.
    """
    found = tracer_provider()
    if found is None:
        return None
    from opentelemetry.trace import SpanKind, set_span_in_context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    above = TraceContextTextMapPropagator().extract(parent) if parent else None
    tracer = found.get_tracer("regista")
    named = {f"regista.{key}": value for key, value in attributes.items()}
    span = tracer.start_span(name, context=above, kind=SpanKind[kind.upper()], attributes=named)
    return ActiveSpan(span, set_span_in_context(span, above))
