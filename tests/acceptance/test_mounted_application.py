"""The API answers the same on its own server, on another runner, and mounted in another application."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import ClientSession, web

from regista import Config, OrchestratorEngine
from tests.support import one_task

CONFIG = Config(instance_id="i", client_token="t", worker_token="w")
JOB = '{"blueprint": "script", "input": {}}'


def orchestrator() -> OrchestratorEngine:
    director = OrchestratorEngine("memory", CONFIG)
    director.register_blueprint(one_task())
    return director


@asynccontextmanager
async def own_server() -> AsyncIterator[str]:
    director = orchestrator()
    server = await director.serve("127.0.0.1", 0)
    try:
        yield server.url
    finally:
        await director.stop()


@asynccontextmanager
async def served_by_a_runner(app: web.Application, prefix: str = "") -> AsyncIterator[str]:
    runner = web.AppRunner(app, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}{prefix}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def mounted() -> AsyncIterator[str]:
    outer = web.Application()
    outer.add_subapp("/jobs-api/", orchestrator().app)
    async with served_by_a_runner(outer, "/jobs-api") as url:
        yield url


async def answered(url: str, method: str, path: str, headers: dict[str, str]) -> tuple[int, set[str]]:
    """The status and the names of the headers."""
    async with ClientSession(headers=headers) as session:
        body = JOB if method == "POST" else None
        async with session.request(method, url + path, data=body, allow_redirects=False) as answer:
            await answer.read()
            return answer.status, {*answer.headers} - {"Transfer-Encoding"}


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
        ("PUT", "/_public/live", 405),
        ("GET", "/_public/live", 200),
        ("GET", "/_worker/workers/w/tasks/next", 401),
        ("GET", "/_worker/nothing", 404),
    ],
)
async def test_request_is_answered_alike(method: str, path: str, status: int, token: str) -> None:
    headers = {"X-Client-Token": token, "traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
    public = path.startswith(("/_public", "/_worker", "/nothing"))
    async with own_server() as own, served_by_a_runner(orchestrator().app) as theirs, mounted() as inner:
        found = [await answered(url, method, path, headers) for url in (own, theirs, inner)]
    assert found[0] == found[1] == found[2]
    assert found[0][0] == (status if token == "t" or public else 401)
