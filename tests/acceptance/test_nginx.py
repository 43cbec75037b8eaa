"""Everything that passes the edge, through a real nginx with the configuration of deploy/."""

import asyncio
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import datetime
from io import BytesIO
from typing import Any

import aiohttp
import msgspec
import pytest

from regista.client.sse import EventStreamParser
from regista.config import Config
from tests.acceptance.edge import Edge
from tests.acceptance.nginx_kit import Caller, until
from tests.conftest import require_binary

pytestmark = pytest.mark.timeout(20)


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edge]:
    """nginx and one orchestrator, for what any number of them does alike."""
    folder = tmp_path_factory.mktemp("edge")
    edge = Edge(folder, [f"sqlite:{folder / 'jobs.db'}"])
    try:
        edge.start()
        yield edge
    finally:
        edge.stop()


# -- HTTP/2 and TLS ----------------------------------------------------------------------------------


def test_http_2_is_spoken_over_tls_with_the_certificate_of_the_place(edge: Edge) -> None:
    path = "/_public/status?_h2=1"
    command = [require_binary("curl"), "--silent", "--show-error", "--http2", "--include"]
    done = subprocess.run(
        [*command, "--cacert", str(edge.nginx.ca), edge.nginx.url + path],
        capture_output=True,
        text=True,
        timeout=9,
    )

    assert done.returncode == 0, done.stderr
    head, _, body = done.stdout.partition("\n\n")
    assert head.startswith("HTTP/2 200")
    assert '"status":"ok"' in body
    until(
        lambda: any(line["protocol"] == "HTTP/2.0" for line in edge.nginx.requests("/_public/status")), "it"
    )


async def test_whoever_does_not_know_the_authority_does_not_trust_it(edge: Edge) -> None:
    async with edge.nginx.session(trust=ssl.create_default_context()) as stranger:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await stranger.ask("GET", "/_public/status")


async def test_plain_http_is_refused_and_not_redirected(edge: Edge) -> None:
    async with edge.nginx.session(url=edge.nginx.url.replace("https:", "http:")) as careless:
        answer = await careless.ask("GET", "/_public/status")
        assert (answer.status, answer.code) == (400, "malformed_request")


async def test_every_answer_has_the_headers_that_protect_browsers(edge: Edge) -> None:
    async with edge.nginx.session() as caller:
        for path, status in (("/docs", 200), ("/api/v1/jobs/nobody", 404), ("/_public/metrics", 403)):
            answer = await caller.ask("GET", path)
            assert answer.status == status
            assert answer.headers["Strict-Transport-Security"] == "max-age=31536000"
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert answer.headers["X-Frame-Options"] == "DENY"
            assert answer.headers["Server"] == "nginx"


# -- workers -----------------------------------------------------------------------------------------


def test_a_worker_streams_through_it_and_a_job_runs_to_its_end(edge: Edge) -> None:
    logged = edge.worker(WORKER_ID="streamer")
    until(lambda: "by stream" in logged(), "the stream")

    told = edge.said("jobs", "run", "greet", "--input", '{"name": "Ada"}', "--wait")

    assert told.splitlines()[-1] == '"Hello, Ada!"'
    edge.dismiss()
    until(lambda: bool(edge.nginx.requests("/_worker/ws/streamer")), "the end of the stream in the log")
    (stream,) = edge.nginx.requests("/_worker/ws/streamer")
    assert (stream["status"], stream["worker"]) == (101, "streamer")
    assert stream["orchestrator"] == f"127.0.0.1:{edge.orchestrators[0].port}"


def test_a_polling_worker_gets_its_task_at_once_and_its_204_when_the_time_is_up(edge: Edge) -> None:
    polls = "/_worker/workers/poller/tasks/next"
    logged = edge.worker(WORKER_ID="poller", WORKER_ENABLE_WEBSOCKETS="false", TASK_POLL_TIMEOUT="1")
    until(lambda: "by poll" in logged(), "the poll")
    until(lambda: bool(edge.nginx.requests(polls)), "the first poll")

    async def main() -> None:
        async with edge.nginx.session() as caller:
            wish = {"blueprint": "greet", "input": {"name": "Bob"}}
            began = time.monotonic()
            answer = await caller.ask("POST", "/api/v1/jobs?wait=5", json=wish)
            assert answer.json["result"] == "Hello, Bob!"
            assert time.monotonic() - began < 0.8  # one poll is a second: it did not wait for the next one

    asyncio.run(main())
    edge.dismiss()
    answered = {line["status"]: line["seconds"] for line in reversed(edge.nginx.requests(polls))}
    assert set(answered) >= {200, 204}
    assert 0.9 < answered[204] < 2.0


# -- events ------------------------------------------------------------------------------------------


@asynccontextmanager
async def watching(caller: Caller, job_id: str) -> AsyncIterator[AsyncIterator[Any]]:
    """The events of a job, each with the time of its arrival."""

    async def arrivals(answer: aiohttp.ClientResponse) -> AsyncIterator[Any]:
        parser = EventStreamParser("")
        async for chunk in answer.content.iter_any():
            for message in parser.feed(chunk):
                yield time.time(), msgspec.json.decode(message.data)

    async with caller.session.get(f"{caller.url}/api/v1/jobs/{job_id}/events") as answer:
        assert answer.status == 200
        yield arrivals(answer)


async def test_events_arrive_one_by_one_as_they_happen(edge: Edge) -> None:
    async with edge.nginx.session() as caller:
        answer = await caller.ask("POST", "/api/v1/jobs", json={"blueprint": "steps", "input": {}})
        job = answer.json
        async with watching(caller, job["id"]) as arrivals:
            seen = [(at, event) async for at, event in arrivals]
    late = [at - datetime.fromisoformat(event["at"]).timestamp() for at, event in seen]
    assert max(late[2:]) < 0.25, late  # the first ones had happened before anybody watched
    assert seen[-1][0] - seen[0][0] > 0.5  # and they did not all come together at the end


# -- refusals ----------------------------------------------------------------------------------------


async def test_a_body_too_large_is_refused_as_a_problem_and_the_largest_is_not(edge: Edge) -> None:
    most = Config().max_body_bytes

    async with edge.nginx.session() as caller:
        answer = await caller.ask("POST", "/api/v1/jobs", data=BytesIO(b" " * most))
        assert (answer.status, answer.code) == (
            400,
            "malformed_json",
        )  # the orchestrator has read all of it
        answer = await caller.ask("POST", "/api/v1/jobs", data=BytesIO(b" " * (most + 1)))
        assert (answer.status, answer.code) == (413, "body_too_large")


async def test_a_header_too_large_is_refused_as_a_problem_and_a_large_one_is_not(edge: Edge) -> None:
    most = Config().max_header_bytes

    async with edge.nginx.session() as caller:
        large, too_large = "x" * (most - 100), "x" * (most + 1)
        assert (await caller.ask("GET", "/_public/status", headers={"X-Large": large})).status == 200
        answer = await caller.ask("GET", "/_public/status", headers={"X-Large": too_large})
        assert (answer.status, answer.code) == (431, "headers_too_large")
        answer = await caller.ask("GET", f"/api/v1/jobs?_={too_large}")
        assert (answer.status, answer.code) == (431, "headers_too_large")


async def test_one_address_that_asks_too_much_is_told_to_wait_and_others_are_not(edge: Edge) -> None:
    async with edge.nginx.session("127.0.0.2") as wild, edge.nginx.session() as other:
        # What nginx answers by itself, and would refuse anyway: no orchestrator slows the storm down.
        answers = await asyncio.gather(*(wild.ask("GET", "/_public/metrics") for _ in range(1500)))
        assert {answer.status for answer in answers} == {403, 429}
        refused = [answer for answer in answers if answer.status == 429]
        assert refused[0].code == "rate_limited"
        assert refused[0].headers["Retry-After"] == "1"
        assert (await other.ask("GET", "/_public/live")).status == 200


@pytest.mark.parametrize("path", ["/_public/metrics", "/_public//metrics", "/x/../%5Fpublic/metrics?a=b"])
async def test_figures_are_not_public(edge: Edge, path: str) -> None:
    async with edge.nginx.session() as caller:
        answer = await caller.ask("GET", path)
        assert (answer.status, answer.code) == (403, "not_public")


# -- the log ------------------------------------------------------------------------------------------


def test_the_log_has_times_and_orchestrators_and_no_tokens(edge: Edge) -> None:
    async def main() -> None:
        async with edge.nginx.session() as caller:
            await caller.ask("GET", "/api/v1/jobs/%22quoted%22?token=secret-of-an-approval")

    asyncio.run(main())
    until(lambda: bool(edge.nginx.requests("/api/v1/jobs/%22quoted%22")), "the line in the log")
    (line,) = edge.nginx.requests("/api/v1/jobs/%22quoted%22")
    assert line["orchestrator"] == f"127.0.0.1:{edge.orchestrators[0].port}"
    assert line["orchestrator_status"] == str(line["status"]) == "400"
    assert 0 <= line["seconds"] < 5
    assert "secret-of-an-approval" not in (edge.nginx.folder / "access.log").read_text()
