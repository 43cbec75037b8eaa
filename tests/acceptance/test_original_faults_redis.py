"""What the original system does wrong on Redis, or with several instances, and ours does right.

The numbers are those of wire.md, section 7. What is no business of Redis alone runs on every store, Redis among them:
`test_original_faults.py` and `test_original_faults_clients.py`.
"""

import asyncio
import signal
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import redis

from regista import ActionFactory, EventType, JobContext, JobStatus
from tests.acceptance.any_store import redis_server
from tests.acceptance.cluster_kit import APP, Cluster, check_promises
from tests.acceptance.house import TOKEN, House, Raw, house, raw, until
from tests.acceptance.serving import serving
from tests.redis_server import RedisServer
from tests.support import one_task, script

__all__ = ["redis_server"]  # a fixture


@pytest.fixture
def url(redis_server: RedisServer) -> str:
    """An empty store."""
    assert redis_server.ask("FLUSHALL") == "+OK"
    return redis_server.url


def play_with_two(
    url: str, scenario: Callable[[House, House], Coroutine[Any, Any, None]], **more: Any
) -> None:
    """Run a scenario with two orchestrators on one Redis."""

    async def main() -> None:
        async with (
            house(url, instance_id="one", **more) as one,
            house(url, instance_id="two", **more) as two,
        ):
            await scenario(one, two)

    asyncio.run(main())


# -- NEW 1, 6, 17: a step is run once -----------------------------------------------------------------


def test_1_jobs_at_both_with_a_slow_handler_all_finish_and_run_once(url: str) -> None:
    runs: list[str] = []

    async def start(context: JobContext, actions: ActionFactory) -> None:
        runs.append(context.job_id)
        await asyncio.sleep(0.05)
        actions.transition_to("done")

    async def scenario(one: House, two: House) -> None:
        for each in (one, two):
            each.director.register_blueprint(script(start, "done", name="slow"))
        wishes = [(one, two)[n % 2].director.run_job("slow", timeout_s=5) for n in range(50)]
        jobs = await asyncio.gather(*wishes)
        assert {job.status for job in jobs} == {JobStatus.FINISHED}
        assert sorted(runs) == sorted(job.id for job in jobs)

    play_with_two(url, scenario)


def test_6_a_parent_is_resumed_once_whoever_ends_its_child(url: str) -> None:
    runs: list[str] = []

    def start(context: JobContext, actions: ActionFactory) -> None:
        actions.run_blueprint("child", {}, transitions={"success": "after"})

    def after(context: JobContext, actions: ActionFactory) -> None:
        runs.append(context.job_id)
        actions.transition_to("done")

    def nap(context: JobContext, actions: ActionFactory) -> None:
        actions.sleep(0.05, "done")

    async def scenario(one: House, two: House) -> None:
        for each in (one, two):
            each.director.register_blueprint(script(start, "done", name="parent", after=after))
            each.director.register_blueprint(script(nap, "done", name="child"))
        wishes = [(one, two)[n % 2].director.run_job("parent", timeout_s=6) for n in range(20)]
        jobs = await asyncio.gather(*wishes)
        assert {job.status for job in jobs} == {JobStatus.FINISHED}
        assert sorted(runs) == sorted(job.id for job in jobs)

    play_with_two(url, scenario)


def test_17_a_handler_longer_than_its_lease_is_not_taken_by_the_other_instance(url: str) -> None:
    runs = 0

    async def start(context: JobContext, actions: ActionFactory) -> None:
        nonlocal runs
        runs += 1
        await asyncio.sleep(2.0)
        actions.transition_to("done")

    async def scenario(one: House, two: House) -> None:
        for each in (one, two):
            each.director.register_blueprint(script(start, "done", name="slow"))
        job = await one.director.submit("slow")
        assert (await two.director.wait(job.id, 6)).status is JobStatus.FINISHED
        assert runs == 1

    play_with_two(url, scenario, lease_s=0.6)


# -- NEW 3, 10: results -------------------------------------------------------------------------------


def test_3_a_task_that_had_waited_is_left_to_its_worker_by_both_watchers(url: str) -> None:
    async def scenario(one: House, two: House) -> None:
        job = await two.director.submit("play", {"skill": "echo"})
        await asyncio.sleep(0.5)
        async with raw(one) as worker:
            await worker.register()
            task = await worker.poll()
            for _ in range(4):  # several turns of both watchers
                await asyncio.sleep(0.5)
                assert (await worker.beat(task["task_id"], status="busy"))["status"] == "ok"
            assert (await worker.finish(task, {"n": 1}))["status"] == "accepted"
        assert (await two.director.wait(job.id, 5)).data == {"n": 1}

    play_with_two(url, scenario, watcher_interval_s=0.2)


def test_10_a_result_sent_again_to_the_other_instance_is_accepted_again(url: str) -> None:
    async def scenario(one: House, two: House) -> None:
        async with raw(one) as worker, raw(two) as again:
            await worker.register()
            job = await one.director.submit("play", {"skill": "echo"})
            task = await worker.poll()
            for where in (worker, again, worker):
                assert (await where.finish(task, {"n": 1}))["status"] == "accepted"
            ended = await two.director.wait(job.id, 5)
            assert (ended.status, ended.data) == (JobStatus.FINISHED, {"n": 1})

    play_with_two(url, scenario)


# -- NEW 7 --------------------------------------------------------------------------------------------


async def test_7_without_a_history_a_list_says_so_and_is_not_just_empty(url: str) -> None:
    async with serving(one_task(), storage=url) as here:
        answer = await here.get("/api/v1/jobs?status=quarantined")
        assert (answer.status, answer.code) == (501, "history_disabled")


# -- NEW 8: what it costs -----------------------------------------------------------------------------


def test_8_nobody_ever_walks_through_all_keys(url: str) -> None:
    async def scenario(here: House) -> None:
        with redis.Redis.from_url(url) as line:
            line.config_resetstat()
            async with raw(here) as worker:
                await worker.register()
                for _ in range(5):
                    job_id = await here.submit("echo")
                    await worker.finish(await worker.poll())
                    await worker.beat()
                    await here.director.wait(job_id, 5)
            await asyncio.sleep(2.5)  # every chore has had its turn
            used = {name.removeprefix("cmdstat_") for name in line.info("commandstats")}
        assert used, "expected to see what was asked"
        assert not used & {"keys", "scan", "hscan", "sscan", "zscan", "randomkey"}

    asyncio.run(_alone(url, scenario))


def test_8_what_is_over_expires_and_leaves_nothing_behind(url: str) -> None:
    async def scenario(here: House) -> None:
        with redis.Redis.from_url(url) as line:

            async def lasting_keys(jobs: int) -> set[bytes]:
                """Those that stay for ever, once twenty more jobs are over."""
                await asyncio.gather(*(here.run("echo") for _ in range(20)))
                ended = list(line.scan_iter("regista:{r0}:job:*"))
                assert len(ended) == jobs
                assert min(line.ttl(key) for key in ended) > 0
                return {key for key in line.scan_iter() if line.ttl(key) == -1}

            # The instance tells of its free slots when it has a moment: that must not fall between the two looks.
            await until(lambda: bool(line.exists("regista:{r0}:items:slots")))
            assert await lasting_keys(20) == await lasting_keys(40)

    asyncio.run(_with_worker(url, scenario))


async def _alone(url: str, scenario: Callable[[House], Coroutine[Any, Any, None]]) -> None:
    async with house(url) as here:
        await scenario(here)


async def _with_worker(url: str, scenario: Callable[[House], Coroutine[Any, Any, None]]) -> None:
    """With a worker that does whatever it gets."""

    async def serve(worker: Raw) -> None:
        while True:
            if (task := await worker.poll(5)) is not None:
                await worker.finish(task)

    async with house(url) as here, raw(here) as worker:
        await worker.register()
        serving = [asyncio.create_task(serve(worker)) for _ in range(2)]
        try:
            await scenario(here)
        finally:
            for one in serving:
                one.cancel()
            await asyncio.gather(*serving, return_exceptions=True)


# -- NEW 15, 16: connections --------------------------------------------------------------------------


def test_16_waiting_workers_cost_redis_no_connection(url: str) -> None:
    async def scenario(here: House) -> None:
        with redis.Redis.from_url(url) as line:
            before = line.info("clients")["connected_clients"]
            async with aiohttp.ClientSession(
                here.site.url,
                headers={"X-Worker-Token": TOKEN},
                connector=aiohttp.TCPConnector(limit=0),
            ) as http:
                workers = [Raw(http, f"w{number}") for number in range(200)]
                await asyncio.gather(*(worker.register() for worker in workers))
                polls = [asyncio.create_task(worker.poll(5)) for worker in workers]
                seats = here.director.dispatcher.connected_workers
                await until(lambda: sum(connected.credit == 1 for connected in seats()) == len(workers))
                assert line.info("clients")["connected_clients"] == before
                await here.director.submit("crowd", {"count": len(workers)})
                tasks = await asyncio.gather(*polls)
                assert len({task["task_id"] for task in tasks}) == len(workers)

    asyncio.run(_alone(url, scenario))


@pytest.mark.slow
@pytest.mark.timeout(30)
def test_15_sigterm_ends_a_process_with_open_polls(url: str, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, url, count=1)
    (one,) = cluster.all

    async def main() -> None:
        async with aiohttp.ClientSession(one.url, headers={"X-Worker-Token": TOKEN}) as http:
            worker = Raw(http, "raw")
            await worker.register()
            polls = [asyncio.create_task(worker.poll(30)) for _ in range(3)]
            await asyncio.sleep(0.3)
            began = time.monotonic()
            await asyncio.to_thread(one.end)
            assert await asyncio.gather(*polls) == [None, None, None]
            assert time.monotonic() - began < 3

    try:
        cluster.start()
        asyncio.run(main())
    finally:
        cluster.stop()


# -- NEW 17: what is kept, and what is not -------------------------------------------------------------


def test_17_a_worker_whose_record_was_written_again_still_lapses(url: str) -> None:
    async def scenario(one: House, two: House) -> None:
        async with raw(one) as worker:
            await worker.register()
            await worker.beat(hot_skills=["echo"])
            assert await two.director.workers.ask_to_drain("raw") is True

            async def gone() -> bool:
                return await two.director.storage.workers() == []

            await until(gone, 6)

    play_with_two(url, scenario, lease_s=0.9, poll_lease_s=0.9)


@pytest.mark.slow
@pytest.mark.timeout(30)
def test_17_the_events_of_a_process_that_was_killed_are_told_by_the_next(url: str, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, url, count=2)
    victim, other = cluster.all

    async def main() -> None:
        async with cluster.client(victim) as client, cluster.client(other) as heir:
            jobs = await asyncio.gather(*(client.submit("steps", {"seconds": 0.2}) for _ in range(20)))
            victim.end(signal.SIGKILL)
            for job in jobs:
                assert (await heir.wait(job.id, 12)).status == "finished"
                events = await heir.history(job.id)
                assert [event.seq for event in events] == list(range(1, len(events) + 1))
                assert sum(event.type is EventType.TIMER_FIRED for event in events) == 3
        assert await check_promises(url, APP) == len(jobs)

    try:
        cluster.start()
        asyncio.run(main())
    finally:
        cluster.stop()


# -- OLD ----------------------------------------------------------------------------------------------


def test_old_a_worker_with_null_members_stays_whoever_hears_its_heartbeats(url: str) -> None:
    async def scenario(one: House, two: House) -> None:
        async with raw(one) as here, raw(two) as there:
            await here.register()
            for turn in range(6):
                await asyncio.sleep(0.3)
                voice = (here, there)[turn % 2]
                assert await voice.beat(hot_skills=None, skill_dependencies=None) == {"status": "ok"}
            job = await two.director.submit("play", {"skill": "echo"})
            await there.finish(await there.poll())
            assert (await one.director.wait(job.id, 5)).status is JobStatus.FINISHED

    play_with_two(url, scenario, lease_s=1.0, poll_lease_s=1.0)
