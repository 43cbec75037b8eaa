from regista import trace_context
from regista.model import Task
from regista.sdk.running_task import AttemptScope
from tests.unit.test_trace_context import PARENT, sent

__all__ = ["sent"]


def test_within_the_light_everything_is_about_the_attempt() -> None:
    task = Task(id="j_1_0", job_id="j", type="work", tracing_context={"traceparent": PARENT})

    with AttemptScope(task, "w"):
        about, carried = trace_context.CURRENT_SUBJECT.get(), trace_context.current_context()

    assert about is not None
    assert about.ids == {"job_id": "j", "task_id": "j_1_0", "attempt_id": "j_1_0-1", "worker_id": "w"}
    assert carried == task.trace
    assert (trace_context.CURRENT_SUBJECT.get(), trace_context.current_context()) == (None, {})


def test_nobody_traces_a_task_that_belongs_to_no_trace(sent: object) -> None:
    light = AttemptScope(Task(id="j_1_0", job_id="j", type="work"), "w")

    assert light.span is None


def test_the_span_of_the_worker_is_below_that_of_its_attempt(sent: object) -> None:
    task = Task(id="j_1_0", job_id="j", type="work", tracing_context={"traceparent": PARENT})
    light = AttemptScope(task, "w")
    assert light.span is not None

    with light:
        inside = trace_context.current_context()
    light.span.end()

    assert inside == light.span.carrier()
    (span,) = sent.get_finished_spans()  # type: ignore[attr-defined]
    assert span.name == "perform work"
    assert f"{span.parent.span_id:016x}" == trace_context.span_id_of("j_1_0-1")
    assert span.attributes["regista.worker_id"] == "w"
