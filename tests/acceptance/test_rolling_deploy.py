"""Three orchestrators on one Redis are replaced one after the other by ones with another blueprint. FENCES 20."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from regista import EventType
from regista.schemas.jobs import JobObject
from tests.acceptance.cluster_kit import LEASE_S, Cluster, check_promises, soon
from tests.acceptance.edge import Orchestrator
from tests.conftest import require_binary
from tests.redis_server import RedisServer
from tests.support import types

pytestmark = [pytest.mark.timeout(60), pytest.mark.slow]

#: `film` waits in its first state for a worker, a clock or a person, and goes on to `edit`; `reel` to `legacy`.
_APP = """
from regista import StateMachineBlueprint, Worker

film, reel = StateMachineBlueprint("film"), StateMachineBlueprint("reel")
worker = Worker("crew", concurrency=8)


def park(context, actions, then):
    match context.initial_data["waits_for"]:
        case "worker":
            actions.dispatch_task("cut", transitions={"success": then}, queue=context.initial_data["queue"])
        case "timer":
            actions.sleep(context.initial_data["seconds"], then=then)
        case "person":
            actions.await_human_approval("Good?", transitions={"approve": then})
        case "branches":
            for _ in range(2):
                actions.dispatch_task("cut", transitions={"success": f"join_{then}"}, queue="cut")
        case "child":
            actions.run_blueprint("film", {"waits_for": "worker", "queue": "cut"}, transitions={"success": then})


@worker.task("cut")
def cut(params):
    return {"cut": True}


@film.handler_for("start", is_start=True, targets=["edit", "join_edit"])
def start_film(context, actions):
    park(context, actions, "edit")


@film.aggregator_for("join_edit")
def join_edit(context, actions):
    actions.transition_to("edit")


@film.handler_for("done", is_end=True)
@reel.handler_for("done", is_end=True)
def done(context, actions):
    actions.set_result(context.state_history["edited_by"])

"""
FIRST = (
    _APP
    + """
@film.handler_for("edit", targets=["done"])
def edit(context, actions):
    context.state_history["edited_by"] = "the first"
    actions.transition_to("done")


@reel.handler_for("start", is_start=True, targets=["legacy", "join_legacy"])
def start_reel(context, actions):
    park(context, actions, "legacy")


@reel.aggregator_for("join_legacy")
def join_legacy(context, actions):
    actions.transition_to("legacy")


@reel.handler_for("legacy", targets=["done"])
def legacy(context, actions):
    context.state_history["edited_by"] = "the first"
    actions.transition_to("done")
"""
)
#: `film` has a state more, and kept the others; `reel` has no state `legacy`.
SECOND = (
    _APP
    + """
@film.handler_for("edit", targets=["polish"])
def edit(context, actions):
    context.state_history["edited_by"] = "the second"
    actions.transition_to("polish")


@film.handler_for("polish", targets=["done"])
def polish(context, actions):
    actions.transition_to("done")


@reel.handler_for("start", is_start=True, targets=["modern"])
def start_reel(context, actions):
    park(context, actions, "modern")


@reel.handler_for("modern", targets=["done"])
def modern(context, actions):
    context.state_history["edited_by"] = "the second"
    actions.transition_to("done")
"""
)


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with RedisServer(require_binary("redis-server"), appendonly=True) as server:
        yield server


@pytest.fixture
def cluster(redis: RedisServer, tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path, redis.url, FIRST)
    try:
        made.start()
        yield made
    finally:
        made.stop()
    assert not made.tracebacks()
    assert asyncio.run(check_promises(redis.url, FIRST, SECOND)) > 8


def replace(cluster: Cluster, one: Orchestrator) -> None:
    """It stops in good order, and comes back with what there is to play by now."""
    one.end()
    one.start()
    one.greet()


WAYS = (
    {"waits_for": "worker", "queue": "cut"},
    {"waits_for": "timer", "seconds": 9},
    {"waits_for": "person"},
    {"waits_for": "branches"},
    {"waits_for": "child"},
)


async def test_a_rolling_deploy_strands_no_job(cluster: Cluster, redis: RedisServer) -> None:
    first, second, third = cluster.all

    async with cluster.client(second) as client:
        films = [await client.submit("film", dict(way)) for way in WAYS]
        reels = [await client.submit("reel", dict(way)) for way in WAYS]
        early = [await client.submit("film", {"waits_for": "person"})]
        early += [await client.submit("reel", {"waits_for": "worker", "queue": "early"})]
    # when: one of the three is replaced, and hears of jobs whose version it has not
    cluster.write(SECOND)
    await asyncio.to_thread(replace, cluster, first)
    await _ends_with_the_old_ones(cluster, early)
    # and when: nobody is left who has the first version
    await asyncio.to_thread(replace, cluster, second)
    await asyncio.to_thread(replace, cluster, third)
    await _end_their_waits(cluster, third, films + reels)
    # then: what fits goes on with the newest, and the rest says what it waits for
    await _go_on_with_the_newest(cluster, first, films)
    await _wait_for_their_version(cluster, second, reels)
    # and when somebody comes with that version, they go on
    cluster.write(FIRST)
    await asyncio.to_thread(replace, cluster, third)
    async with cluster.client(first) as client:
        for job in reels:
            ended = await client.wait(job.id, 8)
            assert (ended.status, ended.result) == ("finished", "the first")


async def _ends_with_the_old_ones(cluster: Cluster, jobs: list[JobObject]) -> None:
    """While both versions are there, each job ends with its own, whoever hears of it first."""
    new, old, _ = cluster.all
    asked, working = jobs
    async with cluster.client(new) as at_new, cluster.client(old) as at_old:
        await at_new.approve(asked.id)
        await asyncio.to_thread(cluster.worker, new.url, "early", "early")
        for job in (asked, working):
            ended = await at_new.wait(job.id, 8)
            assert (ended.status, ended.result) == ("finished", "the first")
            assert ended.version == job.version
        for client, editor in ((at_new, "the second"), (at_old, "the first")):
            fresh = await client.run("film", {"waits_for": "timer", "seconds": 0.1}, timeout_s=8)
            assert (fresh.status, fresh.result) == ("finished", editor)


async def _end_their_waits(cluster: Cluster, at: Orchestrator, jobs: list[JobObject]) -> None:
    await asyncio.to_thread(cluster.worker, at.url, "cutter", "cut")
    async with cluster.client(at) as client:
        for job in jobs:
            if job.input["waits_for"] == "person":
                await client.approve(job.id)


async def _go_on_with_the_newest(cluster: Cluster, at: Orchestrator, jobs: list[JobObject]) -> None:
    async with cluster.client(at) as client:
        for job in jobs:
            ended = await client.wait(job.id, 10 + LEASE_S)
            assert (ended.status, ended.result) == ("finished", "the second")
            assert ended.version != job.version
            assert types(await client.history(job.id)).count(EventType.JOB_MIGRATED) == 1


async def _wait_for_their_version(cluster: Cluster, at: Orchestrator, jobs: list[JobObject]) -> None:
    async with cluster.client(at) as client:
        for job in jobs:

            async def waits(job_id: str = job.id) -> bool:
                waiting = (await client.get(job_id)).waiting_for
                return waiting is not None and waiting.kind == "version"

            await soon(waits, "the wait for a version", 10 + LEASE_S)
            explained = await client.explain(job.id)
            (reason,) = explained["reasons"]
            assert reason["code"] == "blueprint_version_missing"
            assert job.version in explained["summary"]
