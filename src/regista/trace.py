"""Trace: what the code that runs now is about, and how that travels (W3C traceparent).

Nothing here needs OpenTelemetry. Where a program has set it up, spans are begun through it; where it has not, a
trace that comes in is still carried along, from request to job to task to worker.
"""

import re
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

#: version - trace id - span id - flags. Later versions may have more behind it.
_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
#: What is kept of a `tracestate`; the standard asks for no more.
_MAX_STATE = 512


class About(Protocol):
    """A job, or an attempt, that code runs for."""

    @property
    def ids(self) -> Mapping[str, str]:
        """What every log line carries that is written meanwhile: job_id, task_id, attempt_id, worker_id."""
        ...

    @property
    def trace(self) -> dict[str, str]:
        """The trace that it belongs to."""
        ...


#: What the code that runs now is about. One variable for both: setting one is a third of what it all costs.
ABOUT: ContextVar[About | None] = ContextVar("regista_about", default=None)
#: The trace that came with the request that is being answered.
CARRIED: ContextVar[dict[str, str] | None] = ContextVar("regista_carried", default=None)

#: The tracer provider of this process, where one of our own parts has set it up.
_own: Any = None


class Place(NamedTuple):
    """One span in one trace, by ids."""

    trace_id: str
    span_id: str
    flags: str

    @property
    def sampled(self) -> bool:
        """Somebody wants to see it."""
        return bool(int(self.flags, 16) & 1)

    @property
    def header(self) -> str:
        """As a `traceparent`."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"


def place_of(context: Mapping[str, str]) -> Place | None:
    """The span that a context names; None when it names none."""
    found = _PARENT.fullmatch(context.get("traceparent", ""))
    return None if found is None else Place(*found.group(1, 2, 3))


def under(context: dict[str, str], name: str) -> dict[str, str]:
    """The context of the span that stands for `name` (a job, an attempt) in the same trace.

    Its id follows from the name, so that everybody knows it: who begins the job, who performs a task of it, and who
    tells of its end, whichever instance that is. What is no trace is left as it is.
    """
    place = place_of(context) if context else None
    if place is None:
        return context
    return {**context, "traceparent": place._replace(span_id=span_id_of(name)).header}


def span_id_of(name: str) -> str:
    """The id of the span that stands for `name`."""
    return blake2b(name.encode(), digest_size=8, person=b"regista-span").hexdigest()


def from_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The trace that a request comes with; empty when there is none, or nothing that is one."""
    parent = headers.get("traceparent")
    if parent is None or not _may_be_kept(parent) or place_of({"traceparent": parent}) is None:
        return {}
    state = headers.get("tracestate", "")
    return {"traceparent": parent, "tracestate": state} if _may_be_kept(state) else {"traceparent": parent}


def _may_be_kept(header: str) -> bool:
    """It is stored with the job: no more than that, and no bytes that are no text."""
    return 0 < len(header) <= _MAX_STATE and header.isascii()


def carried() -> dict[str, str]:
    """The trace that whatever is begun now belongs to: of the span that is open, else of the job or the request."""
    about = ABOUT.get()
    return current() or (CARRIED.get() or {} if about is None else about.trace)


# -- where OpenTelemetry is set up -----------------------------------------------------------------------


def use(provider: Any) -> None:
    """Begin spans through this tracer provider from now on; None: through the program's own, if it has one."""
    global _own
    _own = provider


def provider() -> Any:
    """The tracer provider to use; None when nobody traces."""
    if _own is not None:
        return _own
    otel = sys.modules.get("opentelemetry.trace")
    if otel is None:
        return None
    found = otel.get_tracer_provider()
    return None if isinstance(found, otel.ProxyTracerProvider | otel.NoOpTracerProvider) else found


def current() -> dict[str, str]:
    """The context of the span that is open here; empty when none is."""
    if provider() is None:
        return {}
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier


def trace_id() -> str:
    """The trace that this moment belongs to, or empty; for log lines."""
    place = place_of(carried())
    return "" if place is None else place.trace_id


class Live:
    """A span that is open. `enter` and `leave` say where it is the current one; `end` tells of it."""

    __slots__ = ("_context", "_span", "_token")

    def __init__(self, span: Any, context: Any) -> None:
        self._span = span
        self._context = context
        self._token: Any = None

    def __enter__(self) -> "Live":
        self.enter()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.leave()
        self.end(None if error is None else f"{type(error).__name__}: {error}")

    def enter(self) -> None:
        """What begins from here on is below it."""
        from opentelemetry import context

        self._token = context.attach(self._context)

    def leave(self) -> None:
        """No longer."""
        from opentelemetry import context

        if self._token is not None:
            token, self._token = self._token, None
            context.detach(token)

    def carrier(self) -> dict[str, str]:
        """Its context, to be carried elsewhere."""
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        carrier: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(carrier, self._context)
        return carrier

    def note(self, **attributes: str | int | float | bool) -> None:
        """Say more about it."""
        self._span.set_attributes({f"regista.{name}": value for name, value in attributes.items()})

    def end(self, error: str | None = None) -> None:
        """It is over; with an error, it failed."""
        from opentelemetry.trace import Status, StatusCode

        if error is not None:
            self._span.set_status(Status(StatusCode.ERROR, error))
        self._span.end()


def begin(
    name: str, kind: str, parent: Mapping[str, str] | None = None, **attributes: str | int | float | bool
) -> Live | None:
    """Open a span of a kind (client, server, producer, consumer), below `parent` or whatever is open here.

    None when nobody traces.
    """
    found = provider()
    if found is None:
        return None
    from opentelemetry.trace import SpanKind, set_span_in_context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    above = TraceContextTextMapPropagator().extract(parent) if parent else None
    tracer = found.get_tracer("regista")
    named = {f"regista.{key}": value for key, value in attributes.items()}
    span = tracer.start_span(name, context=above, kind=SpanKind[kind.upper()], attributes=named)
    return Live(span, set_span_in_context(span, above))
