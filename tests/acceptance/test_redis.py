"""The whole orchestrator on a real Redis."""

import asyncio
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from regista import (
    Config,
    EventType,
    Job,
    JobStatus,
    OrchestratorEngine,
    RedisStorage,
    StateMachineBlueprint,
    Worker,
)
from regista.blueprint import ActionFactory, JobContext
from regista.errors import HistoryDisabled, StorageUnavailable, TransientError
from regista.history.store_only import NoHistory
from regista.model import RetryPolicy
from regista.testing.invariants import check_history
from tests.conftest import Require
from tests.redis_server import RedisServer
from tests.support import script

_names = map("e{}".format, count(1))


@pytest.fixture(scope="module")
def server(require: Require) -> Iterator[RedisServer]:
    with RedisServer(require("redis-server"), appendonly=True) as server:
        yield server


def film() -> StateMachineBlueprint:
    """A task that fails once, a fan-out, a timer and a child, one after the other."""

    def start(context: JobContext, actions: ActionFactory) -> None:
        retry = RetryPolicy(max_attempts=3, first_s=0.01)
        actions.dispatch_task("shaky", {"n": 1}, transitions={"success": "spread"}, retry=retry)

    def spread(context: JobContext, actions: ActionFactory) -> None:
        for number in range(8):
            actions.dispatch_task("double", {"n": number}, transitions={"success": "gather"})

    def gather(context: JobContext, actions: ActionFactory) -> None:
        results = context.aggregation_results.values()
        context.state_history["doubled"] = [result["data"]["n"] for result in results]
        actions.transition_to("rest")

    def rest(context: JobContext, actions: ActionFactory) -> None:
        actions.sleep(0.05, "trailer")

    def trailer(context: JobContext, actions: ActionFactory) -> None:
        actions.run_blueprint("trailer", {"n": 21}, {"success": "done", "done": "done"})

    return script(
        start,
        "done",
        name="film",
        aggregators=["gather"],
        spread=spread,
        gather=gather,
        rest=rest,
        trailer=trailer,
    )


def trailer() -> StateMachineBlueprint:
    def start(context: JobContext, actions: ActionFactory) -> None:
        actions.dispatch_task("double", dict(context.initial_data), transitions={"success": "done"})

    return script(start, "done", name="trailer")


def crew(name: str = "crew") -> Worker:
    worker = Worker(name)
    tried: set[int] = set()

    @worker.task("shaky")
    async def shaky(params: dict[str, Any]) -> dict[str, Any]:
        if params["n"] not in tried:
            tried.add(params["n"])
            raise TransientError("once")
        return {"steady": True}

    @worker.task("double")
    async def double(params: dict[str, Any]) -> dict[str, Any]:
        return {"n": 2 * params["n"]}

    return worker


def director(
    server: RedisServer, namespace: str, instance: str = "one", **settings: Any
) -> OrchestratorEngine:
    store = RedisStorage(server.url, namespace=namespace)
    made = OrchestratorEngine(store, Config(instance_id=instance, **settings))
    for blueprint in (film(), trailer()):
        made.register_blueprint(blueprint)
    return made


async def story(house: OrchestratorEngine, *jobs: Job) -> None:
    """What happened to these jobs is what may happen."""
    graphs = {(each.name, each.version): each.graph for each in (film(), trailer())}
    events = {job.id: await house.events(job.id) for job in jobs}
    check_history(graphs, events, {job.id: job for job in jobs})


async def test_a_job_with_everything_in_it_runs_to_its_end(server: RedisServer) -> None:
    async with director(server, next(_names)) as house:
        house.add_worker(crew())
        job = await house.run_job("film", {}, timeout_s=8)
        assert job.status is JobStatus.FINISHED
        assert job.data["doubled"] == [0, 2, 4, 6, 8, 10, 12, 14]
        await story(house, job)


async def test_a_task_decided_here_is_done_there(server: RedisServer) -> None:
    namespace = next(_names)
    async with director(server, namespace, "one") as one, director(server, namespace, "two") as two:
        two.add_worker(crew())
        job = await one.run_job("film", {}, timeout_s=8)
        assert job.status is JobStatus.FINISHED
        await story(one, job)
        assert await two.events(job.id) == await one.events(job.id)


async def test_many_jobs_on_two_instances_all_end(server: RedisServer) -> None:
    namespace = next(_names)
    async with director(server, namespace, "one") as one, director(server, namespace, "two") as two:
        one.add_worker(crew("left"))
        two.add_worker(crew("right"))
        houses = [one, two]
        jobs = await asyncio.gather(
            *(houses[n % 2].run_job("trailer", {"n": n}, timeout_s=8) for n in range(60))
        )
        assert {job.status for job in jobs} == {JobStatus.FINISHED}
        await story(one, *jobs)


async def test_without_a_history_lists_say_so_and_events_are_read_from_the_store(server: RedisServer) -> None:
    async with director(server, next(_names)) as house:
        house.add_worker(crew())
        job = await house.run_job("trailer", {"n": 1}, timeout_s=8)
        assert isinstance(house.history, NoHistory)
        with pytest.raises(HistoryDisabled):
            await house.jobs()
        events = await house.events(job.id)
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert events[-1].type is EventType.JOB_FINISHED


async def test_what_was_accepted_goes_on_after_a_restart_of_everything(server: RedisServer) -> None:
    namespace = next(_names)
    async with director(server, namespace) as house:
        job = await house.submit("trailer", {"n": 4})
    server.kill()
    server.start()
    async with director(server, namespace) as house:
        house.add_worker(crew())
        done = await house.wait(job.id, timeout_s=8)
        assert done.data == {"n": 8}
        await story(house, done)


@pytest.mark.slow
@pytest.mark.timeout(30)
async def test_everything_goes_on_by_itself_when_the_server_was_away(server: RedisServer) -> None:
    async with director(server, next(_names), lease_s=1.5) as house:
        house.add_worker(crew())
        jobs = [await house.submit("film") for _ in range(5)]
        server.kill()
        with pytest.raises(StorageUnavailable):
            await house.submit("film")
        await asyncio.to_thread(server.start)
        done = await asyncio.gather(*(house.wait(job.id, timeout_s=20) for job in jobs))
        assert {job.status for job in done} == {JobStatus.FINISHED}
        last = await house.run_job("trailer", {"n": 1}, timeout_s=5)
        await story(house, *done, last)
