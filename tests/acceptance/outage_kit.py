"""A Redis that is away for a while, and those who live through it: somebody who asks, many who submit, tasks that run."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from regista import Client, Event, EventType
from tests.acceptance.cluster_kit import CLIENT_TOKEN, Cluster, soon
from tests.acceptance.edge import Orchestrator
from tests.proxy import Proxy
from tests.redis_server import RedisServer
from tests.support import only

#: Nobody waits longer than this for the word that the store is away: it waits 2 s for it.
TOLD_WITHIN_S = 4.0
#: After the return, all works again within this time.
BACK_WITHIN_S = 5.0


@asynccontextmanager
async def away(redis: RedisServer, how: str, seconds: float) -> AsyncIterator[None]:
    """Redis is not there during the block, which takes so long, and is there when this returns."""
    end = time.monotonic() + seconds
    redis.kill(signal.SIGKILL if how == "killed" else signal.SIGSTOP)
    try:
        yield
        await asyncio.sleep(max(0.0, end - time.monotonic()))
    finally:
        if how == "killed":
            await asyncio.to_thread(redis.start)
        else:
            redis.kill(signal.SIGCONT)


class SlowLine(Proxy):
    """What goes through it arrives whole and in order, `delay_s` later; nothing waits for what came before it."""

    delay_s = 0.0

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop, late = asyncio.get_running_loop(), asyncio.Queue[tuple[float, bytes]]()

        async def pass_on() -> None:
            while True:
                at, data = await late.get()
                await asyncio.sleep(at - loop.time())
                writer.write(data)
                await writer.drain()

        passing = asyncio.ensure_future(pass_on())
        try:
            while data := await reader.read(65536):
                late.put_nowait((loop.time() + self.delay_s, data))
        finally:
            passing.cancel()
            await asyncio.gather(passing, return_exceptions=True)


class Voice:
    """Somebody who asks one orchestrator, and hears what it says at first."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._http = http

    async def ask(self, method: str, path: str, **options: Any) -> tuple[int, Any, float]:
        """The status, the body, and how long it took; a refusal has the shape of one."""
        began = time.monotonic()
        async with self._http.request(method, path, **options) as answer:
            if answer.status == 503:
                assert answer.content_type == "application/problem+json"
                assert float(answer.headers["Retry-After"]) > 0
            return answer.status, await answer.json(content_type=None), time.monotonic() - began

    async def submit(self, key: str) -> str:
        """The id of the job; empty where the answer is that the store is away."""
        wish = {"blueprint": "nap", "input": {"seconds": 0.01}, "idempotency_key": key}
        status, body, took_s = await self.ask("POST", "/api/v1/jobs", json=wish)
        assert took_s < TOLD_WITHIN_S
        if status == 503:
            assert body["code"] == "storage_unavailable"
            return ""
        assert status in (200, 202), body
        job_id: str = body["id"]
        return job_id


@asynccontextmanager
async def voice(at: Orchestrator) -> AsyncIterator[Voice]:
    headers = {"X-Client-Token": CLIENT_TOKEN}
    async with aiohttp.ClientSession(at.url, headers=headers) as http:
        yield Voice(http)


async def keep_submitting(voice: Voice, name: str, said: dict[str, set[str]], over: asyncio.Event) -> int:
    """Job after job, each with its key until it is acknowledged; returns how often the store was away."""
    refused = number = 0
    while not over.is_set():
        number += 1
        key = f"{name}-{number}"
        answers = said.setdefault(key, set())
        while not answers:
            answers |= {job_id for job_id in [await voice.submit(key)] if job_id}
            refused += not answers
        answers.add(await voice.submit(key) or min(answers))  # again: the same one, if anybody can say
        await asyncio.sleep(0.02)
    return refused


@asynccontextmanager
async def load(name: str, *voices: Voice) -> AsyncIterator[dict[str, set[str]]]:
    """Each of them submits job after job during the block; in the end, which jobs each key was answered with."""
    said: dict[str, set[str]] = {}
    over = asyncio.Event()
    loads = [
        asyncio.create_task(keep_submitting(each, f"{name}-{number}", said, over))
        for number, each in enumerate(voices)
    ]
    await asyncio.sleep(0.5)
    yield said
    over.set()
    assert sum(await asyncio.gather(*loads)) > 0, "nobody was told that the store was away"


async def tells_the_truth(*voices: Voice) -> None:
    """While the store is away: alive, not ready, and neither reads nor writes hang."""
    for one in voices:
        assert (await one.ask("GET", "/_public/live"))[0] == 200
        assert (await one.ask("GET", "/_public/status"))[0] == 200
    paths = ("/_public/ready", "/api/v1/workers", "/api/v1/jobs/whoever", "/api/v1/jobs/whoever?wait=30")
    asked = [(one, path) for one in voices for path in paths]
    answers = await asyncio.gather(*(one.ask("GET", path) for one, path in asked))
    for (_, path), (status, body, took_s) in zip(asked, answers, strict=True):
        assert (path, status, body["code"]) == (path, 503, "storage_unavailable")
        assert took_s < TOLD_WITHIN_S


async def works_again(*voices: Voice) -> None:
    """It takes work, and does it."""
    began = time.monotonic()
    for one in voices:

        async def ready(one: Voice = one) -> bool:
            return (await one.ask("GET", "/_public/ready"))[0] == 200

        await soon(ready, "its readiness", BACK_WITHIN_S)
        params = {"blueprint": "work", "input": {}}
        status, job, _ = await one.ask("POST", "/api/v1/jobs?wait=5", json=params)
        assert (status, job["status"]) == (200, "finished")
    assert time.monotonic() - began < BACK_WITHIN_S


async def begun(cluster: Cluster, client: Client, seconds: float) -> list[str]:
    """Tasks in the hands of a worker that streams and of one that polls: short ones, whose results come while nobody
    can store them, and some that outlast the half of what comes.
    """
    wishes = [
        {"queue": queue, "seconds": long} for queue in ("steady", "polled") for long in (1.5, seconds / 2 + 2)
    ]
    jobs = [await client.submit("work", wish) for wish in wishes]
    for job in jobs:
        await soon(lambda job_id=job.id: len(cluster.notes("began", job_id)) == 1, "the task")  # type: ignore[misc]
    return [job.id for job in jobs]


async def watch(client: Client, job_id: str) -> list[Event]:
    """All that the stream of a job tells, through whatever happens meanwhile."""
    return [event async for event in client.events(job_id) if isinstance(event, Event)]


async def nothing_was_lost(cluster: Cluster, client: Client, said: dict[str, set[str]]) -> None:
    """Every key has one job, whoever was asked how often, and it has ended."""
    assert {len(job_ids) for job_ids in said.values()} == {1}
    jobs = [job async for job in client.wait_many([min(job_ids) for job_ids in said.values()], 8)]
    assert len(jobs) == len(said) > 5
    assert {job.status for job in jobs} == {"finished"}


async def ran_once(cluster: Cluster, client: Client, job_id: str) -> None:
    """The task that began before went on, and its result counts."""
    ended = await client.wait(job_id, 8)
    assert (ended.status, ended.result) == ("finished", "done")
    assert len(cluster.notes("began", job_id)) == len(cluster.notes("ended", job_id)) == 1
    events = await client.history(job_id)
    assert only(events, EventType.TASK_LOST) == only(events, EventType.TASK_UNDELIVERED) == []
