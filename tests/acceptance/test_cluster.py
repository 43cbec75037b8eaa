"""Three orchestrators on one Redis: whoever is asked, the answer is the same, and what one decides another one's worker does."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from regista import Client, Event, EventType
from regista.client.sse import EventStreamParser
from regista.errors import IdempotencyConflict
from regista.schemas.jobs import JobObject
from tests.acceptance.cluster_kit import APP, CLIENT_TOKEN, Cluster, Turns, check_promises, soon
from tests.acceptance.stock import stock, stock_worker
from tests.conftest import require_binary
from tests.redis_server import RedisServer

__all__ = ["stock"]  # a fixture

pytestmark = [pytest.mark.timeout(30), pytest.mark.slow]

#: Somebody at each of the three orchestrators.
Play = Callable[[Client, Client, Client], Awaitable[None]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A, B and C; the worker "steady" is connected to A."""
    with RedisServer(require_binary("redis-server"), appendonly=True) as redis:
        made = Cluster(tmp_path_factory.mktemp("cluster"), redis.url)
        try:
            made.start()
            made.worker(made.all[0].url, "steady")
            yield made
        finally:
            made.stop()
        assert not made.tracebacks()
        assert asyncio.run(check_promises(redis.url, APP)) > 30


def play(cluster: Cluster, test: Play) -> None:
    async def main() -> None:
        at_a, at_b, at_c = (cluster.client(each) for each in cluster.all)
        async with at_a, at_b, at_c:
            await test(at_a, at_b, at_c)

    asyncio.run(main())


def test_a_worker_at_one_does_what_was_asked_of_another(cluster: Cluster) -> None:
    async def main(at_a: Client, at_b: Client, at_c: Client) -> None:
        job = await at_b.run("work", {"word": "hello"}, timeout_s=8)

        assert (job.status, job.result) == ("finished", "hello")
        assert await at_c.history(job.id) == await at_a.history(job.id) == await at_b.history(job.id)

    play(cluster, main)


def test_a_cancel_at_one_stops_the_task_of_a_worker_at_another(cluster: Cluster) -> None:
    async def main(at_a: Client, at_b: Client, at_c: Client) -> None:
        job = await at_b.submit("work", {"seconds": 60})
        await soon(lambda: len(cluster.notes("began", job.id)) == 1, "the task")

        await at_c.cancel(job.id, "enough")

        assert (await at_b.wait(job.id, 8)).status == "cancelled"
        assert cluster.notes("stopped", job.id) == cluster.notes("began", job.id)
        assert cluster.notes("ended", job.id) == []

    play(cluster, main)


def test_a_stream_at_one_shows_at_once_what_happens_at_another(cluster: Cluster) -> None:
    async def main(at_a: Client, at_b: Client, at_c: Client) -> None:
        job = await at_b.submit("ask", {})
        seen: list[EventType] = []
        decided = 0.0

        async def watch() -> float:
            async for event in at_a.events(job.id):
                if isinstance(event, Event):
                    seen.append(event.type)  # noqa: PERF401 - one by one, since somebody looks meanwhile
            return time.monotonic()

        watching = asyncio.create_task(watch())
        await soon(lambda: EventType.STATE_STARTED in seen, "what has been")
        decided = time.monotonic()
        await at_c.approve(job.id)
        assert await asyncio.wait_for(watching, 8) - decided < 1.0  # a hint, and no look every other second
        assert seen == [event.type for event in await at_b.history(job.id)]

    play(cluster, main)


def test_a_stream_that_ends_at_one_goes_on_at_another_where_it_ended(cluster: Cluster) -> None:
    async def main(at_a: Client, at_b: Client, at_c: Client) -> None:
        job = await at_b.submit("steps", {"seconds": 0.3})
        seen: list[int] = []
        async for event in at_a.events(job.id):
            if isinstance(event, Event):
                seen.append(event.seq)
            if len(seen) == 3:
                break  # in the middle of it

        seen += [event.seq async for event in at_c.events(job.id, str(seen[-1])) if isinstance(event, Event)]

        assert seen == [event.seq for event in await at_b.history(job.id)]
        assert seen == list(range(1, len(seen) + 1))

    play(cluster, main)


def test_the_stream_of_all_jobs_goes_on_at_another_where_it_ended(cluster: Cluster) -> None:
    async def main(at_a: Client, at_b: Client, at_c: Client) -> None:
        first = await at_b.run("nap", {"seconds": 0.01}, timeout_s=8)
        last_id = await _last_id(at_a, first.id)
        second = await at_b.run("nap", {"seconds": 0.01}, timeout_s=8)
        third = await at_a.run("nap", {"seconds": 0.01}, timeout_s=8)

        told: list[str] = []
        async for event in at_c.events(after=last_id):
            told.append(event.job_id)
            if isinstance(event, Event) and event.type is EventType.JOB_FINISHED and event.job_id == third.id:
                break

        assert list(dict.fromkeys(told)) == [second.id, third.id]

    play(cluster, main)


async def _last_id(client: Client, job_id: str) -> str:
    """The id under which the stream of all jobs told the end of this one."""
    parser, headers = EventStreamParser(), {"X-Client-Token": CLIENT_TOKEN, "Last-Event-ID": "0"}
    async with (
        aiohttp.ClientSession(client.url, headers=headers) as http,
        http.get("/api/v1/events") as answer,
    ):
        async for chunk in answer.content.iter_any():
            for message in parser.feed(chunk):
                event = msgspec.json.decode(message.data)
                if (event["job_id"], event["type"]) == (job_id, "job_finished"):
                    return message.id
    raise AssertionError("the stream ended")


def test_waits_at_one_end_with_a_job_of_another(cluster: Cluster) -> None:
    async def main(at_a: Client, at_b: Client, at_c: Client) -> None:
        job = await at_b.submit("ask", {})
        waits = [
            asyncio.create_task(at_a.wait(job.id, 8)),
            asyncio.create_task(_any_of(at_c, job.id)),
        ]
        await asyncio.sleep(0.3)

        began = time.monotonic()
        await at_b.approve(job.id)

        assert [(await wait).status for wait in waits] == ["finished"] * 2
        assert time.monotonic() - began < 1.0  # woken by a hint

    play(cluster, main)


async def _any_of(client: Client, *job_ids: str) -> JobObject:
    (job,) = [job async for job in client.wait_many(job_ids, 8)]
    return job


def test_a_submission_that_waits_at_one_ends_with_an_approval_at_another(cluster: Cluster) -> None:
    async def main(at_a: Client, at_b: Client, at_c: Client) -> None:
        running = asyncio.create_task(at_a.run("ask", {}, timeout_s=8, idempotency_key="asked-here"))
        job = await at_b.submit("ask", {}, idempotency_key="asked-here")
        approved = await at_c.approve(job.id)

        assert (await running).id == job.id == approved.id
        assert (await running).status == "finished"

    play(cluster, main)


def test_a_key_used_everywhere_at_once_gives_one_job(cluster: Cluster) -> None:
    async def main(*clients: Client) -> None:
        for number in range(10):
            wish: dict[str, Any] = {"idempotency_key": f"once-{number}"}
            answers = [client.submit("work", {"word": number}, **wish) for client in clients * 2]
            jobs = await asyncio.gather(*answers)
            assert len({job.id for job in jobs}) == 1
            assert len(cluster.notes("began", (await clients[0].wait(jobs[0].id, 8)).id)) == 1
        with pytest.raises(IdempotencyConflict):
            await clients[2].submit("work", {"word": "another"}, idempotency_key="once-0")

    play(cluster, main)


def test_a_drain_asked_of_one_is_heeded_by_a_worker_at_another(cluster: Cluster) -> None:
    async def main(at_a: Client, at_b: Client, at_c: Client) -> None:
        await asyncio.to_thread(cluster.worker, at_a.url, "tired", "tired")

        assert (await at_b.drain("tired"))["state"] == "draining"
        job = await at_c.submit("work", {"queue": "tired"})
        await asyncio.sleep(1.0)

        assert (await at_a.get(job.id)).status == "waiting_for_worker"
        assert "drain" in str(await at_b.explain(job.id))
        await asyncio.to_thread(cluster.worker, at_c.url, "fresh", "tired")
        assert (await at_b.wait(job.id, 8)).status == "finished"

    play(cluster, main)


def test_everybody_knows_the_same_workers(cluster: Cluster) -> None:
    async def main(*clients: Client) -> None:
        await asyncio.to_thread(cluster.worker, clients[1].url, "second", "second")
        busy = await clients[2].submit("work", {"seconds": 1.5})
        await soon(lambda: len(cluster.notes("began", busy.id)) == 1, "the task")

        lists = [await client.workers() for client in clients]

        told = [[_steady(worker) for worker in workers] for workers in lists]
        assert told[0] == told[1] == told[2]
        assert {"steady", "second"} <= {worker["id"] for worker in lists[0]}
        (held,) = [worker["running"] for worker in lists[2] if worker["id"] == "steady"]
        assert held == 1

    play(cluster, main)


def _steady(worker: dict[str, Any]) -> dict[str, Any]:
    """Without what changes between two looks."""
    return {name: value for name, value in worker.items() if name != "last_seen"}


# -- each request to the next one ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def turns(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Turns]:
    with Turns(tmp_path_factory.mktemp("turns") / "nginx", cluster).running() as made:
        yield made


def test_a_worker_that_polls_may_ask_another_one_each_time(cluster: Cluster, turns: Turns) -> None:
    async def main(*clients: Client) -> None:
        poll = {"WORKER_ENABLE_WEBSOCKETS": "false", "TASK_POLL_TIMEOUT": "1"}
        await asyncio.to_thread(lambda: cluster.worker(turns.url, "wanderer", "polled", **poll))

        for number in range(12):
            wish = {"queue": "polled", "word": number, "seconds": 0.2 if number % 3 else 0.0}
            job = await clients[number % 3].run("work", wish, timeout_s=8)
            assert (job.status, job.result) == ("finished", number)
            assert len(cluster.notes("began", job.id)) == 1
        long = await clients[0].run("work", {"queue": "polled", "seconds": 6}, timeout_s=12)

        assert len(cluster.notes("began", long.id)) == 1  # its lease was renewed by whoever was asked
        assert len(turns.asked("GET /_worker/workers/wanderer/tasks/next")) == 3
        assert len(turns.asked("PATCH /_worker/workers/wanderer")) == 3
        assert (cluster.folder / "wanderer.log").read_text().count("connected to") == 1  # one session

    play(cluster, main)


def test_a_cancel_reaches_a_worker_that_polls_here_and_there(cluster: Cluster, turns: Turns) -> None:
    async def main(at_a: Client, at_b: Client, at_c: Client) -> None:
        poll = {"WORKER_ENABLE_WEBSOCKETS": "false", "TASK_POLL_TIMEOUT": "1"}
        await asyncio.to_thread(lambda: cluster.worker(turns.url, "stoppable", "stopped", **poll))
        job = await at_a.submit("work", {"queue": "stopped", "seconds": 60})
        await soon(lambda: len(cluster.notes("began", job.id)) == 1, "the task")

        await at_b.cancel(job.id)

        assert (await at_c.wait(job.id, 8)).status == "cancelled"
        assert len(cluster.notes("stopped", job.id)) == 1

    play(cluster, main)


@pytest.mark.timeout(300)  # the first one installs the packages
@pytest.mark.parametrize("generation", ["old", "new"])
def test_a_stock_worker_may_ask_another_one_each_time(
    cluster: Cluster, turns: Turns, stock: Path, generation: str
) -> None:
    async def main(*clients: Client) -> None:
        async with stock_worker(stock, generation, turns.url, f"stock-{generation}"):
            for number in range(9):
                wish = {"task": "echo", "n": number}
                job = await clients[number % 3].run("stock", wish, timeout_s=10)
                assert (job.status, job.data) == ("finished", {"echo": wish})
            slow = await clients[0].run("stock", {"task": "slow", "seconds": 6}, timeout_s=12)
            assert (slow.status, len(slow.attempts)) == ("finished", 1)

    play(cluster, main)
