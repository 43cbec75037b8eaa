"""What the original system does wrong when it is run, and ours does right: clients, history, handlers.

The numbers are those of wire.md, section 7; workers and dispatch stand in `test_original_faults.py`. What only
Redis shows (6 and 7 there) is tried on every store; what is about Redis itself stands in `test_original_faults_redis.py`.
"""

import asyncio
import logging
from typing import Any

import pytest

from regista import (
    ActionFactory,
    EventType,
    InvalidInputError,
    Job,
    JobContext,
    JobStatus,
    PermanentError,
    StateMachineBlueprint,
    Worker,
)
from regista.engines.base import Submission
from tests.acceptance.any_store import history, redis_server, storage
from tests.acceptance.cluster_kit import soon
from tests.acceptance.serving import House, serving
from tests.stopwatch import Stopwatch
from tests.support import only, script

__all__ = ["history", "redis_server", "storage"]  # fixtures


def echoing() -> Worker:
    worker = Worker("echo")

    @worker.task("work")
    async def work(params: dict[str, Any]) -> dict[str, Any]:
        if params.get("fail") == "input":
            raise InvalidInputError("the picture is upside down")
        if params.get("fail") == "permanent":
            raise PermanentError("no such codec")
        return {"first": 1, "last": {"deep": [2]}}

    return worker


def one_task(name: str = "one") -> StateMachineBlueprint:
    def start(context: JobContext, actions: ActionFactory) -> None:
        actions.dispatch_task("work", dict(context.initial_data), transitions={"success": "done"})

    return script(start, "done", name=name)


async def ended(here: House, blueprint: str, **input: Any) -> Any:
    body = {"blueprint": blueprint, "input": input}
    answer = await here.call("POST", "/api/v1/jobs?wait=8", body)
    assert answer.status == 200, answer.body
    return answer.json


async def test_6_a_parent_is_resumed_once(storage: str) -> None:
    runs: list[str] = []

    def start(context: JobContext, actions: ActionFactory) -> None:
        actions.run_blueprint("one", {}, transitions={"success": "after"})

    def after(context: JobContext, actions: ActionFactory) -> None:
        runs.append(context.job_id)
        actions.transition_to("done")

    parent = script(start, "done", name="parent", after=after)
    async with serving(one_task(), parent, workers=[echoing()], storage=storage) as here:
        jobs = await asyncio.gather(*(ended(here, "parent") for _ in range(20)))
    assert sorted(runs) == sorted(job["id"] for job in jobs)


async def test_7_a_client_finds_its_own_quarantined_jobs(storage: str, history: str) -> None:
    worker, settings = echoing(), {"history_database_uri": history}
    async with serving(one_task(), workers=[worker], storage=storage, **settings) as here:
        job = await ended(here, "one", fail="permanent")
        assert job["status"] == "quarantined"
        await here.director.recorder.drain()
        mine = await here.call("GET", "/api/v1/jobs?status=quarantined")
        others = await here.call("GET", "/api/v1/jobs?status=quarantined", token="t-bob")
    assert [one["id"] for one in mine.json["items"]] == [job["id"]]
    assert others.json["items"] == []


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_8_many_stored_jobs_do_not_slow_a_new_one_down(storage: str) -> None:
    async def quickest(here: House) -> float:
        times = []
        for _ in range(20):
            watch = Stopwatch()
            await ended(here, "one")
            times.append(watch.elapsed_s())
        return min(times)

    async def scenario() -> None:
        def park(context: JobContext, actions: ActionFactory) -> None:
            actions.await_human_approval("park", {"go": "done"})

        blueprints = [one_task(), script(park, "done", name="parked")]
        async with serving(*blueprints, workers=[echoing()], storage=storage) as here:
            empty = await quickest(here)
            parked = [Submission(blueprint="parked", client="ada")] * 1000
            for _ in range(20):
                *_, last = await here.director.submit_many(parked)
                assert isinstance(last, Job)
                last_id = last.id

            async def is_parked() -> bool:
                return (await here.director.get(last_id)).status is JobStatus.WAITING_FOR_HUMAN

            await soon(is_parked, "the last question", 20)  # accepted is not yet parked
            await here.director.recorder.drain()
            full = await quickest(here)
        assert full < 0.1, "the original took 12.3 s"
        assert full < 5 * empty + 0.02

    asyncio.run(scenario())


async def test_12_a_finished_task_is_in_history_and_snapshots_show_what_was(
    storage: str, history: str
) -> None:
    def start(context: JobContext, actions: ActionFactory) -> None:
        context.state_history["seen"] = ["start"]
        actions.dispatch_task("work", {}, transitions={"success": "then"})

    def then(context: JobContext, actions: ActionFactory) -> None:
        context.state_history["seen"].append("then")
        actions.transition_to("done")

    told = script(start, "done", name="told", then=then)
    worker, settings = echoing(), {"history_database_uri": history}
    async with serving(told, workers=[worker], storage=storage, **settings) as here:
        job = await ended(here, "told")
        await here.director.recorder.drain()
        events = await here.director.history.events(job["id"])
    assert [event.status for event in only(events, EventType.TASK_FINISHED)] == ["success"]
    seen = [(event.snapshot or {}).get("seen") for event in only(events, EventType.STATE_STARTED)]
    assert seen == [None, ["start"], ["start", "then"]]


async def test_13_a_client_sees_the_whole_result_and_why_a_job_failed(storage: str) -> None:
    async with serving(one_task(), workers=[echoing()], storage=storage) as here:
        good = await ended(here, "one")
        bad = await ended(here, "one", fail="input")
    assert good["data"] == good["result"] == {"first": 1, "last": {"deep": [2]}}
    assert bad["status"] == "failed"
    assert bad["error"] == {"code": "INVALID_INPUT_ERROR", "message": "the picture is upside down"}


def test_14_the_root_logger_is_left_alone(capfd: pytest.CaptureFixture[str]) -> None:
    before = (logging.root.level, list(logging.root.handlers))

    async def scenario() -> None:
        async with serving(one_task(), workers=[echoing()]) as here:
            await ended(here, "one")

    asyncio.run(scenario())
    assert (logging.root.level, list(logging.root.handlers)) == before
    assert capfd.readouterr().out == ""


async def test_17_a_handler_longer_than_its_lease_runs_once(storage: str) -> None:
    runs = 0

    async def start(context: JobContext, actions: ActionFactory) -> None:
        nonlocal runs
        runs += 1
        await asyncio.sleep(1.5)
        actions.transition_to("done")

    async with serving(script(start, "done", name="slow"), storage=storage, lease_s=0.4) as here:
        assert (await ended(here, "slow"))["status"] == "finished"
    assert runs == 1


async def test_old_nothing_is_open_to_just_anybody() -> None:
    async with serving(one_task(), workers=[echoing()]) as here:
        job = await ended(here, "one")
        closed = [
            ("POST", "/_public/debug/flush_db", 404),
            ("GET", "/_public/jobs/quarantined", 404),
            ("POST", f"/_public/webhooks/approval/{job['id']}", 401),
        ]
        for method, path, status in closed:
            answer = await here.call(method, path, {"decision": "go"}, token=None)
            assert answer.status == status, path
        other = await here.call("GET", f"/api/v1/jobs/{job['id']}", token="t-bob")
        assert other.status == 404
        everything = await here.call("GET", f"/api/v1/jobs/{job['id']}")
        assert b"t-ada" not in everything.body
