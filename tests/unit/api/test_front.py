"""The way in of our own site ends where that of an application around ours does."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import ClientSession, web

from regista import Config, OrchestratorEngine
from regista.api import front
from regista.api.app import handler_args
from regista.api.connection import Runner
from tests.support import one_task

CONFIG = Config(instance_id="i", client_token="t", worker_token="w")
JOB = '{"blueprint": "script", "input": {}}'


@asynccontextmanager
async def on_our_site() -> AsyncIterator[str]:
    director = OrchestratorEngine("memory", CONFIG)
    director.register_blueprint(one_task())
    site = await director.serve("127.0.0.1", 0)
    try:
        yield site.url
    finally:
        await director.stop()


@asynccontextmanager
async def on_somebody_elses() -> AsyncIterator[str]:
    director = OrchestratorEngine("memory", CONFIG)
    director.register_blueprint(one_task())
    runner = web.AppRunner(director.app, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def answered(url: str, method: str, path: str, headers: dict[str, str]) -> list[tuple[int, set[str]]]:
    """Status and names of headers, of the first time and of the second: what is known by then changes nothing."""
    found = []
    async with ClientSession(headers=headers) as session:
        for _ in range(2):
            body = JOB if method == "POST" else None
            async with session.request(method, url + path, data=body) as answer:
                await answer.read()
                found.append((answer.status, {*answer.headers} - {"Transfer-Encoding"}))
    return found


@pytest.mark.parametrize("token", ["t", "wrong", ""])
@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/api/v1/jobs", 202),
        ("POST", "/api/v1/jobs?wait=0", 202),
        ("POST", "/api/v1/jobs?no_such=1", 400),
        ("POST", "/api/v1//jobs", 404),
        ("POST", "/api/v1/j%6Fbs", 202),
        ("GET", "/api/v1/jobs", 200),
        ("PUT", "/api/v1/jobs", 405),
        ("GET", "/api/v1/jobs/none", 404),
        ("GET", "/api/nothing", 404),
        ("GET", "/nothing", 404),
        ("GET", "/_public/live", 200),
        ("GET", "/_worker/workers/w/tasks/next", 401),
        ("GET", "/_worker/nothing", 404),
    ],
)
async def test_a_request_is_answered_alike(method: str, path: str, status: int, token: str) -> None:
    headers = {"X-Client-Token": token, "traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}

    for sent in (headers, {"X-Client-Token": token}):
        async with on_our_site() as ours, on_somebody_elses() as theirs:
            found = await answered(ours, method, path, sent)
            assert found == await answered(theirs, method, path, sent)
            is_open = path.startswith(("/_public", "/_worker", "/nothing"))
            assert [one[0] for one in found] == [status if token == "t" or is_open else 401] * 2


async def test_no_more_ways_are_remembered_than_a_few_and_no_long_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(front, "_MOST_KNOWN", 3)

    app = OrchestratorEngine("memory", CONFIG).app
    runner = Runner(app, handler_args(CONFIG), 1.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/api/v1/jobs"
    known = app[front.FRONT]._known
    async with ClientSession(headers={"X-Client-Token": "t"}) as session:
        for name in ("first", "a", "b", "c", "b", "d", "e" * 300):
            async with session.get(f"{url}/{name}") as answer:
                assert answer.status == 404
                assert name[:50] in await answer.text()
            assert len(known) <= 3
    assert [path for _, path in known] == ["/api/v1/jobs/d"]
    await runner.cleanup()
