from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from regista import Config, OrchestratorEngine, trace_context
from regista.blueprint import ActionFactory, JobContext
from regista.trace_context import ActiveSpan
from tests.support import script

PARENT = f"00-{'a' * 32}-{'b' * 16}-01"


@pytest.fixture
def sent() -> Iterator[InMemorySpanExporter]:
    """Somebody traces, for the length of a test."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace_context.use_provider(provider)
    yield exporter
    trace_context.use_provider(None)
    provider.shutdown()


def begun(name: str, kind: str, parent: dict[str, str] | None = None, **more: str) -> ActiveSpan:
    span = trace_context.start_span(name, kind, parent, **more)
    assert span is not None
    return span


def test_a_traceparent_names_a_place() -> None:
    place = trace_context.span_in({"traceparent": PARENT})

    assert place == ("a" * 32, "b" * 16, "01")
    assert place is not None
    assert place.sampled
    assert place.header == PARENT


@pytest.mark.parametrize(
    "header",
    [
        "",
        "00-1",
        f"ff-{'a' * 32}-{'b' * 16}-01",
        f"00-{'0' * 32}-{'b' * 16}-01",
        f"00-{'a' * 32}-{'0' * 16}-01",
        f"00-{'A' * 32}-{'b' * 16}-01",
        f"{PARENT}x",
    ],
)
def test_what_is_no_traceparent_names_nothing_and_is_passed_on_as_it_is(header: str) -> None:
    context = {"traceparent": header}

    assert trace_context.span_in(context) is None
    assert trace_context.child_context(context, "job") == context
    assert trace_context.from_headers(context) == {}


@given(st.text())
def test_any_header_is_read_without_an_error(header: str) -> None:
    trace_context.from_headers({"traceparent": header})


def test_a_later_version_may_say_more() -> None:
    assert trace_context.span_in({"traceparent": f"01-{'a' * 32}-{'b' * 16}-01-more"}) is not None


def test_the_span_of_a_job_follows_from_its_name_and_stays_in_its_trace() -> None:
    context = {"traceparent": PARENT, "tracestate": "vendor=1"}

    once, again, other = (trace_context.child_context(context, name) for name in ("j-1", "j-1", "j-2"))

    assert once == again != other
    assert once["tracestate"] == "vendor=1"
    assert once["traceparent"].split("-")[1] == "a" * 32
    assert once["traceparent"].split("-")[2] == trace_context.span_id_of("j-1")


def test_a_request_brings_its_trace_along_and_no_endless_state() -> None:
    headers = {"traceparent": PARENT, "tracestate": "x=1", "cookie": "no"}

    assert trace_context.from_headers(headers) == {"traceparent": PARENT, "tracestate": "x=1"}
    assert trace_context.from_headers(headers | {"tracestate": "x" * 600}) == {"traceparent": PARENT}


def test_what_is_begun_now_belongs_to_the_request() -> None:
    token = trace_context.REQUEST_TRACE.set({"traceparent": PARENT})

    assert trace_context.current_context() == {"traceparent": PARENT}
    assert trace_context.trace_id() == "a" * 32

    trace_context.REQUEST_TRACE.reset(token)
    assert (trace_context.current_context(), trace_context.trace_id()) == ({}, "")


def test_nobody_traces_by_default() -> None:
    assert trace_context.tracer_provider() is None
    assert trace_context.start_span("anything", "client") is None


def test_a_span_is_current_while_it_is_entered_and_told_of_when_it_ends(sent: InMemorySpanExporter) -> None:
    with begun("outer", "server", {"traceparent": PARENT}, path="/x") as outer:
        inside = trace_context.current_context()
        with begun("inner", "client"):
            pass
        outer.note(status=202)

    inner, outer_span = sent.get_finished_spans()
    assert inside == outer.carrier()
    assert trace_context.current_context() == {}
    assert inner.parent is not None
    assert outer_span.context is not None
    assert outer_span.parent is not None
    assert inner.parent.span_id == outer_span.context.span_id
    assert f"{outer_span.parent.span_id:016x}" == "b" * 16
    assert outer_span.attributes == {"regista.path": "/x", "regista.status": 202}
    assert outer_span.status.is_unset


def test_a_span_that_an_error_leaves_failed(sent: InMemorySpanExporter) -> None:
    def fails() -> None:
        with begun("work", "consumer"):
            raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        fails()

    (span,) = sent.get_finished_spans()
    assert span.status.description == "ValueError: boom"


async def test_a_handler_is_about_its_job_in_a_thread_too_and_never_about_somebody_elses_request() -> None:
    seen: list[tuple[str, dict[str, str]]] = []

    def start(context: JobContext, actions: ActionFactory) -> None:
        about = trace_context.CURRENT_SUBJECT.get()
        assert about is not None
        seen.append((about.ids["job_id"], trace_context.current_context()))
        actions.transition_to("done")

    async with OrchestratorEngine("memory", Config()) as director:
        director.register_blueprint(script(start, "done", name="inline"))
        director.register_blueprint(script(start, "done", name="thread", blocking=True))
        token = trace_context.REQUEST_TRACE.set({"traceparent": PARENT})
        traced = [await director.run_job(name) for name in ("inline", "thread")]
        trace_context.REQUEST_TRACE.reset(token)
        untraced = await director.run_job("inline")

    assert seen == [*((job.id, job.trace) for job in traced), (untraced.id, {})]
    assert all(job.tracing_context == {"traceparent": PARENT} for job in traced)
    assert trace_context.CURRENT_SUBJECT.get() is None
