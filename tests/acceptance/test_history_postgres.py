"""Orchestrators on one Redis that remember in one PostgreSQL: what one has done, all can tell."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest

from regista import Client, Event, EventType, PostgresHistory, Worker, composition
from regista.history import recorder as recorder_module
from regista.testing.conformance.history_kit import summaries_of, summary_of
from regista.testing.invariants import check_history
from tests.acceptance import processes
from tests.acceptance.house import House, house, play, until
from tests.conftest import Require
from tests.ports import free_port
from tests.postgres_server import PostgresServer, serving
from tests.redis_server import RedisServer

_databases = count(1)
TOKEN = "a-client-token"


@pytest.fixture(scope="module")
def postgres(require: Require) -> Iterator[PostgresServer]:
    yield from serving(require)


@pytest.fixture(scope="module")
def redis(require: Require) -> Iterator[RedisServer]:
    with RedisServer(require("redis-server"), appendonly=True) as server:
        yield server


@pytest.fixture
def store(redis: RedisServer) -> str:
    return f"redis://127.0.0.1:{redis.port}/{next(_databases)}"


class Pair(NamedTuple):
    """Two orchestrators, and a client of each."""

    one: House
    two: House
    of_one: Client
    of_two: Client


@asynccontextmanager
async def pair(store: str, history: str) -> AsyncIterator[Pair]:
    async with (
        house(store, instance_id="one", history_database_uri=history) as one,
        house(store, instance_id="two", history_database_uri=history) as two,
        Client(one.site.url, TOKEN) as of_one,
        Client(two.site.url, TOKEN) as of_two,
    ):
        one.director.add_worker(echo("ada"))
        two.director.add_worker(echo("bob"))
        yield Pair(one, two, of_one, of_two)


def echo(name: str) -> Worker:
    worker = Worker(name)

    @worker.task("echo")
    async def echo(params: dict[str, Any]) -> dict[str, Any]:
        return {"echo": params}

    return worker


def play_out(body: Callable[[], Awaitable[None]], timeout_s: float = 9.0) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(timeout_s):
            await body()

    asyncio.run(bounded())


async def listed(client: Client) -> set[str]:
    return {job.id async for job in client.jobs(page=3)}


def test_both_list_all_jobs_and_tell_their_stories_after_the_outbox_is_pruned(
    store: str, postgres: PostgresServer
) -> None:
    history = postgres.place()
    graphs = {("play", play().version): play().graph}

    async def body() -> None:
        async with pair(store, history) as stage:
            clients = [stage.of_one, stage.of_two]
            jobs = [
                await clients[number % 2].run("play", {"skill": "echo", "params": {"n": number}})
                for number in range(8)
            ]
            assert all(job.status == "finished" for job in jobs)

            async def pruned() -> bool:
                return (await stage.one.director.storage.outbox(0, 1)).entries == []

            for client in clients:
                assert await listed(client) == {job.id for job in jobs}
            await until(pruned)
            for client in clients:
                assert await listed(client) == {job.id for job in jobs}
                for job in jobs:
                    events = await client.history(job.id)
                    assert [event.seq for event in events] == list(range(1, len(events) + 1))
                    assert events[-1].type is EventType.JOB_FINISHED
            ended = {job.id: await stage.one.director.get(job.id) for job in jobs}
            stories = {job_id: await stage.two.director.events(job_id) for job_id in ended}
            check_history(graphs, stories, ended)

    play_out(body)


def test_whoever_watches_one_orchestrator_sees_the_jobs_of_the_other(
    store: str, postgres: PostgresServer
) -> None:
    history = postgres.place()

    async def body() -> None:
        async with pair(store, history) as stage:
            heard: list[Event] = []

            async def listen() -> None:
                async for news in stage.of_two.events(after="0"):
                    heard.extend([news] if isinstance(news, Event) else [])

            listening = asyncio.create_task(listen())
            job_ids = [await stage.one.submit("echo", n=number) for number in range(3)]
            for job_id in job_ids:
                await stage.one.director.wait(job_id, 8)
            told = {job_id: await stage.one.director.events(job_id) for job_id in job_ids}
            await until(lambda: len(heard) >= sum(map(len, told.values())))
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
            for job_id, events in told.items():
                assert [event.seq for event in heard if event.job_id == job_id] == [e.seq for e in events]
                assert [one.seq async for one in stage.of_two.events(job_id) if isinstance(one, Event)] == [
                    event.seq for event in events
                ]

    play_out(body)


def test_jobs_go_on_while_history_is_away_and_are_recorded_later(
    store: str, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder_module, "MAX_BACKOFF_S", 0.1)
    history = postgres.place()

    async def body() -> None:
        async with pair(store, history) as stage:
            before = await stage.of_one.run("play", {"skill": "echo"})
            storage = stage.one.director.storage

            async def pruned() -> bool:
                return await storage.tail(before.id, 0) == []

            await until(pruned)
            await asyncio.to_thread(postgres.stop)
            # What the store knows of a job is shown all the same, and what is missing is named.
            shown = await stage.of_two.get(before.id)
            assert (shown.status, shown.result, shown.attempts) == (before.status, before.result, [])
            assert shown.incomplete == ["attempts", "bill"]
            job_id = await stage.two.submit("echo", n=1)
            assert (await stage.one.director.wait(job_id, 5)).status.terminal
            async with aiohttp.ClientSession(headers={"X-Client-Token": TOKEN}) as session:
                for path in ("/api/v1/jobs", f"/api/v1/jobs/{job_id}/history"):
                    async with session.get(stage.one.site.url + path) as answer:
                        problem = await answer.json()
                        assert (answer.status, problem["code"]) == (503, "history_unavailable")
                        assert answer.headers["Retry-After"] == "1"
                        assert "does not answer" in problem["detail"]
            await asyncio.to_thread(postgres.start)
            assert await listed(stage.of_two) == {before.id, job_id}

            async def recorded() -> bool:
                row = await summary_of(stage.one.director.history, job_id)
                return row is not None and row.status == "finished"

            await until(recorded)
            events = await stage.of_two.history(job_id)
            assert [event.seq for event in events] == list(range(1, len(events) + 1))

    play_out(body)


def test_when_the_one_that_records_is_gone_another_goes_on(
    store: str, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(composition, "LEAD_S", 0.5)
    history = postgres.place()

    async def body() -> None:
        async with pair(store, history) as stage:
            first = await stage.of_one.run("play", {"skill": "echo"})
            await stage.one.director.stop(0.0)
            second = await stage.of_two.run("play", {"skill": "echo"})

            async def recorded() -> bool:
                rows = await summaries_of(stage.two.director.history, status="finished")
                return {row.job_id for row in rows} == {first.id, second.id}

            await until(recorded)

    play_out(body)


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.parametrize("storage", ["sqlite", "redis"])
def test_serve_keeps_its_history_where_the_uri_says(
    storage: str, store: str, postgres: PostgresServer, tmp_path: Path
) -> None:
    place = postgres.place()
    serving = processes.House(tmp_path)
    try:
        serving.set(HISTORY_DATABASE_URI=place)
        for _ in range(2):  # the second one finds what the first has written
            process = serving.serve("--storage", store if storage == "redis" else "sqlite:jobs.db")
            serving.start("worker", "app.py")
            serving.said("jobs", "run", "greet", "--input", '{"name": "Ada"}', "--wait", "--timeout", "15")
            assert "greet" in serving.said("jobs", "list")
            assert serving.end(process) == 0, serving.logs()
        assert "Traceback" not in serving.logs()
        assert not list(tmp_path.rglob("*.history*"))
    finally:
        serving.close()
    schema = place.rpartition("=")[2]
    assert postgres.ask("SELECT status FROM regista_jobs", schema) == ["finished", "finished"]


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_serve_says_in_a_line_why_it_cannot_begin(postgres: PostgresServer, tmp_path: Path) -> None:
    serving = processes.House(tmp_path)
    serving.set(REGISTA_STORE_WAIT_SECONDS="0")
    place = postgres.place()
    uris = {
        f"postgresql://regista:sesame@127.0.0.1:{free_port()}/jobs": "does not answer",
        postgres.uri(password="sesame"): "password authentication failed",
        "mysql://regista:sesame@db/jobs": "expected empty, sqlite:PATH or postgresql://HOST/DATABASE",
    }
    try:
        for uri, words in uris.items():
            refused = serving.run("serve", "app.py", HISTORY_DATABASE_URI=uri)
            assert refused.returncode != 0
            assert words in refused.stderr.splitlines()[-1]
            assert "sesame" not in refused.stderr
            assert "Traceback" not in refused.stderr
        asyncio.run(taken_by_another(place))
        refused = serving.run("serve", "app.py", HISTORY_DATABASE_URI=place)
        assert "belongs to another store" in refused.stderr
    finally:
        serving.close()


async def taken_by_another(place: str) -> None:
    async def store() -> str:
        return "another"

    history = PostgresHistory(place, store)
    await history.start()
    await history.stop()
