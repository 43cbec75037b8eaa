from regista import trace_context
from regista.cli.tracing import traced
from regista.config import WorkerConfig
from tests.otlp_receiver import Receiver


def test_without_a_receiver_nothing_is_traced() -> None:
    with traced(WorkerConfig()):
        assert trace_context.tracer_provider() is None


def test_switched_off_nothing_is_traced() -> None:
    with traced(WorkerConfig(otlp_endpoint="http://127.0.0.1:1", otel_disabled=True)):
        assert trace_context.tracer_provider() is None


def test_the_last_spans_are_sent_before_the_process_goes_on() -> None:
    with Receiver() as receiver:
        with traced(WorkerConfig(otlp_endpoint=receiver.url), everywhere=False):
            span = trace_context.start_span("call", "client")
            assert span is not None
            span.end()
        assert [(one.service, one.name) for one in receiver.spans] == [("regista-worker", "call")]
    assert trace_context.tracer_provider() is None
