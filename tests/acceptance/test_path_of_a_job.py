"""Every arrow of the path of a job (docs/internals.md), over real HTTP and with real processes."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from regista import Connection, Event, EventType, SyncClient
from tests.acceptance.processes import House

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]

APP = """
from regista import RetryPolicy, StateMachineBlueprint, TransientError, Worker

pipeline = StateMachineBlueprint("pipeline")
cutter = Worker("cutter", queues=["q-cut"], concurrency=4)
painter = Worker("painter", queues=["q-paint"], concurrency=4)


@pipeline.handler_for("start", is_start=True)
async def start(context, actions):
    for part in range(context.initial_data["parts"]):
        actions.dispatch_task("cut", {"part": part}, transitions={"success": "join"}, queue="q-cut")


@pipeline.aggregator_for("join")
async def join(context, actions):
    results = context.aggregation_results.values()
    parts = sorted(result["data"]["part"] for result in results)
    retry = RetryPolicy(first_s=0.05)
    actions.dispatch_task("paint", {"parts": parts}, {"success": "done"}, queue="q-paint", retry=retry)


@pipeline.handler_for("done", is_end=True)
async def done(context, actions):
    actions.set_result(context.state_history["painted"])


@cutter.task("cut")
def cut(params):
    return {"part": params["part"]}


@painter.task("paint")
async def paint(params, context):
    context.progress(0.5, "half of it", checkpoint={"seen": context.attempt})
    if context.attempt == 1:
        raise TransientError("the brush broke")
    return {"painted": params["parts"], "checkpoint": context.checkpoint}
"""


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path, APP)
    house.set(CLIENT_TOKEN="a-client", WORKER_TOKEN="a-worker")
    yield house
    house.close()


def test_a_job_walks_from_its_client_through_two_worker_processes_into_history(house: House) -> None:
    # client → api → engine → storage: acknowledged is durable, though nobody has done anything yet
    first = house.serve()
    with SyncClient(connection=Connection(url=house.url, token="a-client")) as client:
        job = client.submit("pipeline", {"parts": 5}, idempotency_key="once")
        first.send_signal(signal.SIGKILL)
        with first:
            first.wait()
        house.serve()
        assert client.submit("pipeline", {"parts": 5}, idempotency_key="once").id == job.id
        waiting = client.get(job.id)
        assert (waiting.status, waiting.state) == ("waiting_for_parallel", "start")

        # dispatcher ↔ worker: each queue has a process of its own
        house.start("worker", "app.py")
        ended = client.wait(job.id, 30)
        events = client.history(job.id)
        listed = [one.id for one in client.jobs(blueprint="pipeline")]
        streamed = [event for event in client.events(job.id) if isinstance(event, Event)]

    # result → next decision → result of the job
    assert (ended.status, ended.result) == ("finished", [0, 1, 2, 3, 4]), house.logs()
    assert ended.data["checkpoint"] == {"seen": 1}
    assert [one.state for one in ended.attempts].count("finished") == 6
    assert [one.error.code for one in ended.attempts if one.error] == ["TRANSIENT_ERROR"]
    # events → history → lists and streams: the same story everywhere, whole and in order
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [event.seq for event in streamed] == [event.seq for event in events]
    assert listed == [job.id]
    told = [event.type for event in events]
    assert told[0] is EventType.JOB_CREATED
    assert told[-1] is EventType.JOB_FINISHED
    assert told.count(EventType.TASK_FINISHED) == 6
    assert told.count(EventType.TASK_FAILED) == told.count(EventType.TASK_RETRIED) == 1
    states = [event.state for event in events if event.type is EventType.STATE_STARTED]
    assert states == ["start", "join", "done"]
    workers = {event.worker_id for event in events if event.type is EventType.TASK_FINISHED}
    assert len(workers) == 2
