from opentelemetry import trace as otel

from regista import trace_context
from regista.observe.spans import SpanRecord
from regista.observe.tracing import Tracing
from regista.trace_context import SpanReference
from tests.otlp_receiver import Receiver
from tests.ports import free_port
from tests.unit.observe.test_commit_metrics import NOW, job
from tests.unit.observe.test_spans import PARENT, UNSAMPLED


def test_a_span_that_is_over_arrives_with_the_ids_that_it_was_given() -> None:
    with Receiver() as receiver:
        tracing = Tracing(f"{receiver.url}/v1/traces", "regista", "one")
        place = SpanReference("a" * 32, "c" * 16, "01")
        tracing.emit(
            SpanRecord(
                name="job b",
                place=place,
                parent_id="b" * 16,
                start=NOW,
                end=NOW,
                attributes={"regista.job_id": "j"},
                error="no",
            )
        )
        tracing.close()

    (span,) = receiver.spans
    assert (span.service, span.name, span.trace_id) == ("regista", "job b", "a" * 32)
    assert (span.span_id, span.parent_id, span.failed) == ("c" * 16, "b" * 16, True)
    assert span.start_ns == NOW.timestamp() * 1e9
    assert span.attributes == {"regista.job_id": "j"}


def test_what_a_handler_traces_is_below_its_span_and_that_is_below_the_job() -> None:
    with Receiver() as receiver:
        tracing = Tracing(f"{receiver.url}/v1/traces", "regista", "one")
        tracing.start()
        span = tracing.handler(job(tracing_context=PARENT))
        assert span is not None
        tracing.provider.get_tracer("user").start_span("own").end()
        span.off()
        span.done(None)
        outside = otel.get_current_span().get_span_context().is_valid
        tracing.close()

    own, handler = receiver.spans
    assert own.parent_id == handler.span_id
    assert handler.parent_id == trace_context.span_id_of("j")
    assert handler.name == "handler s"
    assert not outside
    assert trace_context.tracer_provider() is None


def test_a_job_that_nobody_samples_has_no_handler_spans() -> None:
    tracing = Tracing(f"http://127.0.0.1:{free_port()}/v1/traces", "regista")

    assert tracing.handler(job(tracing_context=UNSAMPLED)) is None
    assert tracing.handler(job()) is None
    tracing.close()


async def test_stop_is_fine_twice() -> None:
    tracing = Tracing(f"http://127.0.0.1:{free_port()}/v1/traces", "regista")
    tracing.start()

    await tracing.stop()
    await tracing.stop()

    assert trace_context.tracer_provider() is None
