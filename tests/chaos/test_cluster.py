"""Three orchestrators on one Redis under real trouble: killed, frozen, cut off and misled. Then the promises."""

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from regista import EventType, JobStatus
from regista.client import Client
from regista.config import Connection
from regista.testing import invariants
from tests.chaos.cluster import SKEWED, WORKERS, Cluster, clock_error_s, wrong_clock
from tests.chaos.cluster_app import blueprints
from tests.chaos.kill9_child import BRANCHES, expected_result
from tests.chaos.loader import Loader
from tests.chaos.remains import Remains
from tests.chaos.storm import Storm
from tests.chaos.troupe import TOKENS
from tests.conftest import Require
from tests.redis_server import RedisServer

#: Five minutes is the figure of record (`make chaos`); one is enough to see that nothing has broken.
SECONDS = float(os.environ.get("CHAOS_SECONDS", "60"))
SEED = int(os.environ.get("CHAOS_SEED", "20261116"))
SUBMITTERS, APPROVERS, FOLLOWERS = 60, 10, 3
#: Jobs of each submitter per second, about, while somebody answers.
RATE = 2.0
#: How long an orchestrator is put up with before another is asked.
PATIENCE_S = 3.0
#: How long everything may take to come to its end once the storm is over.
SETTLE_S = 90.0
#: Keys that are sent again at the end, and jobs whose history is asked for.
SAMPLE = 50

#: Goes on until the event is set.
Work = Callable[[asyncio.Event], Coroutine[Any, Any, None]]


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.timeout(SECONDS + 240)
def test_every_job_ends_once_while_three_orchestrators_and_redis_are_killed_frozen_and_cut_off(
    tmp_path: Path, require: Require
) -> None:
    skew_s = random.Random(f"{SEED} clock").choice([-1, 1]) * 180
    clock = wrong_clock(require("faketime"), skew_s)
    with RedisServer(require("redis-server"), appendonly=True) as redis:
        cluster = Cluster(tmp_path, redis, clock)
        story = asyncio.run(_play(cluster, skew_s))
        remains = asyncio.run(Remains.read(redis.url))
    story.print_figures(remains)
    _check_promises(story.loader, remains)
    assert all(story.storm.fired[fault] for fault in story.storm.faults), story.storm.fired
    for name, log in cluster.logs().items():
        assert "Traceback" not in log, f"the log of {name} has a traceback"


class Story:
    """Who took part, and how it went."""

    def __init__(self, cluster: Cluster, storm: Storm, loader: Loader) -> None:
        self.cluster = cluster
        self.storm = storm
        self.loader = loader
        self.settled_s = 0.0

    def print_figures(self, remains: Remains) -> None:
        kinds = Counter(event.type for events in remains.events.values() for event in events)
        faults = ", ".join(f"{count} x {fault}" for fault, count in sorted(self.storm.fired.items()))
        ends, promises = self.loader.ends, self.loader.acknowledged
        longest_s = max(end.at - promises[job_id].at for job_id, end in ends.items())
        print(
            f"\n{SECONDS:.0f} s of storm, seed {SEED}: {faults}, "
            f"{self.cluster.false_starts.total()} starts without a Redis, {self.loader.moves} moves of clients; "
            f"{len(promises)} jobs acknowledged, {len(remains.jobs)} stored (children too), all ended, the last "
            f"{self.settled_s:.1f} s after the storm, the slowest after {longest_s:.1f} s; "
            f"{kinds[EventType.TASK_LOST]} attempts lost, {kinds[EventType.TASK_UNDELIVERED]} undelivered, "
            f"{kinds[EventType.TASK_RETRIED]} retried; {kinds.total()} events without a gap"
        )


async def _play(cluster: Cluster, skew_s: float) -> Story:
    async with AsyncExitStack() as open_clients:
        connections = [
            Connection(url=url, token=TOKENS["CLIENT_TOKEN"], timeout_s=PATIENCE_S) for url in cluster.urls
        ]
        clients = [
            await open_clients.enter_async_context(Client(connection=each, first_contact_s=PATIENCE_S))
            for each in connections
        ]
        story = Story(cluster, Storm(cluster, SEED), Loader(clients, SEED))
        try:
            await cluster.start()
            await _storm_and_calm(story)
            await story.loader.submit_again(SAMPLE)
            await _check_api(clients, story.loader, skew_s)
        finally:
            await cluster.stop()
    return story


async def _storm_and_calm(story: Story) -> None:
    loader = story.loader
    others = [*[loader.approve_until] * APPROVERS, *[loader.follow_until] * FOLLOWERS]
    async with _in_background(*others):
        async with _in_background(*[lambda stop: loader.submit_until(stop, RATE)] * SUBMITTERS):
            await story.storm.blow(SECONDS)
            began = time.monotonic()
        await story.cluster.until_all_serve()
        await loader.until_all_ended(SETTLE_S)
        story.settled_s = time.monotonic() - began
    if loader.pending:
        reasons = "\n".join([await loader.explain(job_id) for job_id in loader.pending[:5]])
        pytest.fail(f"{len(loader.pending)} of {len(loader.acknowledged)} jobs did not end:\n{reasons}")


@asynccontextmanager
async def _in_background(*works: Work) -> AsyncIterator[None]:
    """The works until the block ends; each is told to stop, and ends what it is at. Their errors are ours."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for work in works:
            group.create_task(work(stop))
        try:
            yield
        finally:
            stop.set()


async def _check_api(clients: Sequence[Client], loader: Loader, skew_s: float) -> None:
    """What the orchestrators say when all is over: the same to everybody, and that nothing is held."""
    for job_id in random.Random(SEED).sample(sorted(loader.acknowledged), SAMPLE):
        told = [await client.history(job_id) for client in clients]
        assert told[0] == told[1] == told[2], f"three stories of {job_id}"
        assert told[0][-1].type is EventType.JOB_FINISHED
    for client in clients:
        await _until_all_slots_are_free(client)
    errors_s = [clock_error_s(client.server_time) for client in clients]
    assert abs(errors_s[SKEWED] - skew_s) < 60, f"the clocks are wrong by {errors_s}"


async def _until_all_slots_are_free(client: Client) -> None:
    """6: slots held = live attempts, of which there are none. A worker may just be on its way elsewhere."""
    workers = await client.workers()
    for _ in range(100):
        if len(workers) == WORKERS and all(map(_is_free, workers)):
            return
        await asyncio.sleep(0.2)
        workers = await client.workers()
    pytest.fail(f"{client.url} says that slots are not free, and nothing runs: {workers}")


def _is_free(worker: dict[str, Any]) -> bool:
    # Whoever polls is offered what its open poll asks for, which may be less than it could do by now.
    all_free = worker["transport"] == "poll" or worker["free"] == worker["capacity"]
    return worker["state"] == "ready" and all_free and not worker["holding"]


def _check_promises(loader: Loader, remains: Remains) -> None:
    jobs, events = remains.jobs, remains.events
    assert loader.acknowledged.keys() <= jobs.keys(), "an acknowledged job is gone"
    for job_id, promise in loader.acknowledged.items():
        job, end = jobs[job_id], loader.ends[job_id]
        assert job.status is JobStatus.FINISHED, f"{job_id} of {promise.kind}: {job.status} {job.error}"
        assert (job.blueprint, job.result) == (promise.kind, expected_result(promise.kind, promise.n))
        assert (end.status, end.result) == (job.status, job.result), "a waiter was told something else"
    graphs = {(blueprint.name, blueprint.version): blueprint.graph for blueprint in blueprints()}
    invariants.check_history(graphs, events, jobs)
    _check_that_nothing_is_doubled(remains)
    assert not remains.left_over, "the store still has work, and no job that lives"


def _check_that_nothing_is_doubled(remains: Remains) -> None:
    jobs = remains.jobs.values()
    inputs = Counter((job.blueprint, job.input["n"], job.parent_id) for job in jobs)
    assert max(inputs.values()) == 1, "one submit, or one parent's visit, made two jobs"
    assert {job.status for job in jobs} == {JobStatus.FINISHED}, "a child did not end"
    for job in jobs:
        events = remains.events[job.id]
        starts = Counter((e.task_id, e.attempt) for e in events if e.type is EventType.TASK_STARTED)
        assert set(starts.values()) <= {1}, f"an attempt of {job.id} started twice: {starts}"
        accepted = Counter(e.task_id for e in events if e.type is EventType.TASK_FINISHED)
        assert set(accepted.values()) <= {1}, f"a result of {job.id} counted twice"
        if job.blueprint == "fan":
            assert len(accepted) == BRANCHES, f"{job.id} has {len(accepted)} results"
