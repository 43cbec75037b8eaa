"""Redis dies, freezes or is slow under two orchestrators: callers are told, workers keep what they run, all goes on by itself."""

import asyncio
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from regista import EventType, JobStatus, RedisStorage
from regista.errors import StorageUnavailable
from regista.services import events as follow
from tests.acceptance.cluster_kit import APP, LEASE_S, POLL_LEASE_S, Cluster, check_promises, soon
from tests.acceptance.house import house
from tests.acceptance.outage_kit import (
    SlowLine,
    away,
    begun,
    load,
    nothing_was_lost,
    ran_once,
    tells_the_truth,
    voice,
    watch,
    works_again,
)
from tests.acceptance.serving import serving
from tests.acceptance.stock import stock, stock_worker
from tests.conftest import require_binary
from tests.redis_server import RedisServer
from tests.support import one_task, only

__all__ = ["stock"]  # a fixture

pytestmark = [pytest.mark.timeout(60), pytest.mark.slow]


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with RedisServer(require_binary("redis-server"), appendonly=True) as server:
        yield server


@pytest.fixture(scope="module")
def cluster(redis: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("outage"), redis.url, count=2)
    try:
        made.start()
        made.worker(made.all[0].url, "steady")
        poll = {"WORKER_ENABLE_WEBSOCKETS": "false", "TASK_POLL_TIMEOUT": "2"}
        made.worker(made.all[1].url, "poller", "polled", **poll)
        yield made
    finally:
        made.stop()
    assert not made.tracebacks()
    assert asyncio.run(check_promises(redis.url, APP)) > 5


@pytest.mark.parametrize(
    ("how", "seconds"), [("killed", 5), ("frozen", 5), ("killed", 20)], ids=lambda value: str(value)
)
async def test_a_store_that_was_away_costs_nobody_anything(
    cluster: Cluster, redis: RedisServer, how: str, seconds: float
) -> None:
    one, other = cluster.all
    async with cluster.client(other, 40) as client, voice(one) as here, voice(other) as there:
        # given: tasks that run, a timer, somebody who watches, and many who submit
        tasks = await begun(cluster, client, seconds)
        watching = asyncio.create_task(watch(client, tasks[0]))
        nap = await client.submit("nap", {"seconds": seconds / 2})
        async with load(f"{how}-{seconds}", here, there) as said:
            # when
            async with away(redis, how, seconds):
                await asyncio.sleep(0.3)
                await tells_the_truth(here, there)
            # then: all goes on by itself, and soon
            back = time.monotonic()
            await works_again(here, there)
        await nothing_was_lost(cluster, client, said)
        for job_id in tasks:
            await ran_once(cluster, client, job_id)
        assert (await client.wait(nap.id, 5)).status == "finished"
        assert time.monotonic() - back < 15
        numbers = [event.seq for event in await asyncio.wait_for(watching, 5)]
        assert numbers == list(range(1, len(numbers) + 1))


def test_who_died_meanwhile_is_lost_one_full_lease_after_the_return_and_no_sooner(
    cluster: Cluster, redis: RedisServer
) -> None:
    async def main() -> None:
        one, other = cluster.all
        async with cluster.client(other, 30) as client:
            victim = await asyncio.to_thread(cluster.worker, one.url, "victim", "doomed")
            job = await client.submit("work", {"queue": "doomed", "seconds": 30})
            await soon(lambda: len(cluster.notes("began", job.id)) == 1, "the task")

            async with away(redis, "killed", LEASE_S + 1.5):
                await asyncio.to_thread(cluster.dismiss, victim, signal.SIGKILL)
            back = time.time()

            async def lost() -> bool:
                return bool(only(await client.history(job.id), EventType.TASK_LOST))

            await soon(lost, "the loss", LEASE_S + 6)
            (event,) = only(await client.history(job.id), EventType.TASK_LOST)
            assert LEASE_S - 0.5 < event.at.timestamp() - back < LEASE_S + 5
            await client.cancel(job.id)

    asyncio.run(main())


async def test_a_slow_store_makes_everything_slow_and_nothing_wrong(
    redis: RedisServer, tmp_path: Path
) -> None:
    line = SlowLine(redis.port)
    async with line:
        cluster = Cluster(tmp_path, f"redis://127.0.0.1:{line.port}/1", count=2)
        try:
            await asyncio.to_thread(cluster.start)
            await asyncio.to_thread(cluster.worker, cluster.all[0].url, "steady")
            await slowly(cluster, line)
        finally:
            line.delay_s = 0.0
            await asyncio.to_thread(cluster.stop)
        assert not cluster.tracebacks()
        assert await check_promises(f"redis://127.0.0.1:{redis.port}/1", APP) > 10


async def slowly(cluster: Cluster, line: SlowLine) -> None:
    one, other = cluster.all
    async with cluster.client(other) as client, voice(one) as here, voice(other) as there:
        held = await client.submit("work", {"seconds": 2 * LEASE_S})
        await soon(lambda: len(cluster.notes("began", held.id)) == 1, "the task")
        line.delay_s = 0.3
        jobs = await asyncio.gather(*(client.run("work", {"word": n}, timeout_s=9) for n in range(10)))
        assert [(job.status, job.result) for job in jobs] == [("finished", n) for n in range(10)]
        assert all([(await one.ask("GET", "/_public/ready"))[0] == 200 for one in (here, there)])
        # Slower than anybody waits for: that is as good as away, until it is better.
        line.delay_s = 3.0
        await asyncio.sleep(0.1)
        assert await here.submit("too-slow") == ""
        line.delay_s = 0.0
        await works_again(here, there)
        assert await there.submit("too-slow") != ""
        await ran_once(cluster, client, held.id)


@pytest.mark.timeout(300)  # the first one installs the packages
@pytest.mark.parametrize("generation", ["old", "new"])
async def test_a_stock_worker_keeps_what_it_runs_and_its_results_come_late(
    redis: RedisServer, stock: Path, generation: str
) -> None:
    url = redis.url.removesuffix("/0") + ("/2" if generation == "old" else "/3")
    leases: dict[str, Any] = {"lease_s": LEASE_S, "poll_lease_s": POLL_LEASE_S}
    async with house(url, **leases) as here, stock_worker(stock, generation, here.site.url):
        jobs = [await here.submit("slow", seconds=seconds) for seconds in (2, 7)]
        for job_id in jobs:
            await here.taken(job_id)
        async with away(redis, "killed", POLL_LEASE_S + 1):
            pass
        for job_id in jobs:
            job = await here.director.wait(job_id, 12)
            assert (job.status, job.data) == (JobStatus.FINISHED, {"slept": True})
            events = await here.director.events(job_id)
            assert only(events, EventType.TASK_LOST) == only(events, EventType.TASK_UNDELIVERED) == []


@pytest.mark.timeout(20)
@pytest.mark.parametrize("path", ["/api/v1/jobs/{}/events", "/api/v1/events"])
async def test_a_stream_stays_open_while_the_store_is_away_and_goes_on_after_it(
    redis: RedisServer, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "QUIET_S", 0.3)  # so often it looks into the store by itself

    store = RedisStorage(redis.url, namespace=f"stream-{len(path)}", patience_s=0.3)
    async with serving(one_task(), storage=store) as house:
        job = await house.submit("script")
        headers = {"X-Client-Token": "t-ada"}
        async with house.session.get(house.url + path.format(job["id"]), headers=headers) as stream:
            await asyncio.sleep(0.5)  # it has told what was before
            async with away(redis, "killed", 2.0):
                pass
            await asyncio.sleep(1.5)
            assert (await house.post(f"/api/v1/jobs/{job['id']}/cancel")).status == 200
            async with asyncio.timeout(5):
                async for line in stream.content:
                    if line == b"event: job_finished\n":
                        break


@pytest.mark.timeout(30)
async def test_an_orchestrator_starts_and_stops_in_time_while_the_store_says_nothing(
    redis: RedisServer, tmp_path: Path
) -> None:
    cluster = Cluster(tmp_path, f"redis://127.0.0.1:{redis.port}/4", count=1)
    (one,) = cluster.all
    late = RedisStorage(redis.url, namespace="late", patience_s=0.5)
    try:
        await asyncio.to_thread(cluster.start)
        async with cluster.client(one) as client, asyncio.timeout(15):
            await client.submit("nap", {"seconds": 0.2})
            async with away(redis, "frozen", 1.0):
                with pytest.raises(StorageUnavailable):
                    await late.start()
                await asyncio.to_thread(one.end)
    finally:
        await asyncio.to_thread(cluster.stop)
    assert not cluster.tracebacks()
