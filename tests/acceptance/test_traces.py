"""One tree from whoever asks to whoever performs, received over OTLP from three processes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.any_store import redis_server, storage  # noqa: F401  # fixtures
from tests.acceptance.processes import House
from tests.otlp_receiver import Receiver, Span

APP = """
import logging
import time

from opentelemetry import trace

from regista import StateMachineBlueprint, Worker

worker = Worker("crew", concurrency=4)
outer, inner = StateMachineBlueprint("outer"), StateMachineBlueprint("inner")
log = logging.getLogger("app")


@outer.handler_for("start", is_start=True)
def start(context, actions):
    log.info("outer begins")
    with trace.get_tracer("app").start_as_current_span("own span of the handler"):
        actions.dispatch_task("work", {}, transitions={"success": "child"})


@outer.handler_for("child")
async def child(context, actions):
    actions.run_blueprint("inner", {}, transitions={"success": "done"})


@inner.handler_for("start", is_start=True)
def begin(context, actions):
    actions.dispatch_task("fast", {}, transitions={"success": "done"})


@outer.handler_for("done", is_end=True)
@inner.handler_for("done", is_end=True)
def done(context, actions):
    pass


@worker.task("work")
def work(params):
    log.info("at work")
    with trace.get_tracer("app").start_as_current_span("own span of the task"):
        time.sleep(0.01)


@worker.task("fast")
async def fast(params):
    pass
"""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def house(tmp_path: Path, storage: str, receiver: Receiver) -> Iterator[House]:  # noqa: F811
    house = House(tmp_path, APP)
    house.set(
        REGISTA_STORAGE=storage,
        OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url,
        OTEL_BSP_SCHEDULE_DELAY="100",
        INSTANCE_ID="director-1",
        WORKER_ID="crew-1",
    )
    yield house
    house.close()


def named(spans: list[Span], name: str) -> Span:
    (found,) = [span for span in spans if span.name == name]
    return found


def parents(spans: list[Span]) -> dict[str, str]:
    """Name → the name of the span above it."""
    names = {span.span_id: span.name for span in spans}
    return {span.name: names.get(span.parent_id, "") for span in spans}


@pytest.mark.slow
@pytest.mark.timeout(40)
def test_client_orchestrator_and_worker_are_one_tree(house: House, receiver: Receiver) -> None:
    # given an orchestrator, a worker and a client, each a process of its own
    server = house.serve("--json")
    crew = house.start("worker", "app.py", "--json")

    # when a job with a child is done, and everybody has gone
    house.said("jobs", "run", "outer", "--wait")
    assert house.end(crew) == 0
    assert house.end(server) == 0

    # then there is one trace, and every span hangs where it belongs
    spans = receiver.spans
    assert len({span.trace_id for span in spans}) == 1
    above = parents(spans)
    assert above["POST /api/v1/jobs"] == ""
    assert above["job outer"] == "POST /api/v1/jobs"
    assert above["handler child"] == above["task work"] == above["job inner"] == "job outer"
    assert above["own span of the handler"] == "handler start"
    assert above["perform work"] == "task work"
    assert above["own span of the task"] == "perform work"
    assert above["task fast"] == "job inner"
    assert above["perform fast"] == "task fast"
    assert named(spans, "job outer").service == "regista"
    assert named(spans, "perform work").service == "regista-worker"
    whole = named(spans, "job outer")
    for span in (named(spans, "task work"), named(spans, "job inner")):
        assert whole.start_ns <= span.start_ns <= span.end_ns <= whole.end_ns
    assert not any(span.failed for span in spans)

    # and the log lines of both sides name the trace, the job, and who wrote them
    logged = house.logs()
    (begins,) = [line for line in logged.splitlines() if "outer begins" in line]
    (at_work,) = [line for line in logged.splitlines() if "at work" in line]
    job_id = whole.attributes["regista.job_id"]
    for line in (begins, at_work):
        assert f'"job_id": "{job_id}"' in line
        assert f'"trace_id": "{whole.trace_id}"' in line
    assert '"instance": "director-1' in begins
    assert f'"task_id": "{job_id}_1_0", "attempt_id": "{job_id}_1_0-1"' in at_work
    assert '"worker_id": "crew-1"' in at_work
