"""Requests that are HTTP, but odd: each gets the answer that it should, and nothing is in the log."""

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from regista import ActionFactory, JobContext, StateMachineBlueprint
from tests.acceptance.serving import House, serving
from tests.acceptance.test_bad_input import connect, head
from tests.support import one_task

JOB = b'{"blueprint": "script"}'
PARENT = f"00-{'a' * 32}-{'b' * 16}-01".encode()
BYTES = b"\xff\xfe"
WORKER = {"X-Worker-Token": "t-worker"}


@pytest.fixture(autouse=True)
def nothing_is_logged(caplog: pytest.LogCaptureFixture) -> Any:
    with caplog.at_level(logging.WARNING):
        yield
    assert [record.getMessage() for record in caplog.get_records("call")] == []


def run(
    body: Callable[[House], Coroutine[Any, Any, None]], *blueprints: StateMachineBlueprint, **more: Any
) -> None:
    async def main() -> None:
        async with serving(one_task(), *blueprints, **more) as house:
            await body(house)
            assert (await house.get("/_public/status", token=None)).status == 200

    asyncio.run(main())


async def said(house: House, head: bytes, body: bytes = b"", **headers: bytes) -> bytes:
    """Everything that is answered, to its end."""
    lines = [name.replace("_", "-").encode() + b": " + value for name, value in headers.items()]
    lines += [b"Content-Length: %d" % len(body), b"Connection: close"]
    reader, writer = await connect(house)
    try:
        writer.write(head[:-2] + b"\r\n".join(lines) + b"\r\n\r\n" + body)
        async with asyncio.timeout(5):
            return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


def endpoint(name: str, path: str, version: str) -> StateMachineBlueprint:
    blueprint = StateMachineBlueprint(name, api_endpoint=path, api_version=version)

    @blueprint.handler_for("start", is_start=True, is_end=True)
    def start(context: JobContext, actions: ActionFactory) -> None:
        pass

    return blueprint


# -- what is expected of us ------------------------------------------------------------------------


@pytest.mark.parametrize("expected", [b"200-ok", b"100-continue, x", BYTES])
@pytest.mark.parametrize(
    ("path", "token", "status"),
    [
        ("/api/v1/jobs", b"t-ada", b"202"),
        ("/api/v1/jobs", b"t-nobody", b"401"),
        ("/nowhere", b"t-ada", b"404"),
        ("/_public/status", b"t-ada", b"405"),
    ],
)
def test_an_expectation_that_nobody_knows_changes_no_answer(
    expected: bytes, path: str, token: bytes, status: bytes
) -> None:
    async def body(house: House) -> None:
        asked = head("POST", path).replace(b"t-ada", token)
        answer = await said(house, asked, JOB, Expect=expected)
        assert answer.startswith(b"HTTP/1.1 " + status), answer
        assert (b"application/problem+json" in answer) is (status != b"202")

    run(body)


@pytest.mark.parametrize(("path", "status"), [("/api/v1/jobs", b"202"), ("/nowhere", b"404")])
def test_whoever_waits_for_the_word_that_a_body_may_come_is_told(path: str, status: bytes) -> None:
    async def body(house: House) -> None:
        answer = await said(house, head("POST", path), JOB, Expect=b"100-Continue")
        assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 " + status)

    run(body)


# -- bytes that are no text ------------------------------------------------------------------------


def test_a_worker_whose_version_is_no_text_is_let_in_and_told_ours() -> None:
    async def body(house: House) -> None:
        who = {"worker_id": "w1", "worker_type": "t", "supported_skills": ["x"], "resources": {}}
        asked = head("POST", "/_worker/workers/register", **WORKER)
        answer = await said(house, asked, json.dumps(who).encode(), X_RXON_Version=BYTES)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert BYTES not in answer
        assert (await house.get("/api/v1/workers/w1")).status == 200

    run(body)


@pytest.mark.parametrize(
    "trace",
    [
        {"traceparent": PARENT, "tracestate": BYTES},
        {"traceparent": PARENT.replace(b"00-", b"01-", 1) + b"-" + BYTES},
    ],
    ids=["state", "parent"],
)
def test_a_trace_that_is_no_text_hinders_no_job(trace: dict[str, bytes]) -> None:
    async def body(house: House) -> None:
        answer = await said(house, head("POST", "/api/v1/jobs"), JOB, **trace)
        assert answer.startswith(b"HTTP/1.1 202 "), answer

    run(body)


def test_a_link_to_a_file_of_a_host_that_is_no_text_is_refused(tmp_path: Path) -> None:
    async def body(house: House) -> None:
        job = await house.submit("script")
        asked = head("POST", f"/api/v1/jobs/{job['id']}/files").replace(b"Host: x", b"Host: \xff")
        answer = await said(house, asked, b'{"name": "a.txt"}')
        assert answer.startswith(b"HTTP/1.1 400 "), answer
        assert b'"malformed_request"' in answer

    run(body, payloads=f"file:{tmp_path}")


# -- bodies that do not come to their end ----------------------------------------------------------


@pytest.mark.parametrize("garbage", [b"zz\r\n", b"3\r\nabcde\r\n"])
@pytest.mark.parametrize("before", [b"", b"GET /api/v1/jobs/x?wait=0 HTTP/1.1\r\nHost: x\r\n\r\n"])
def test_chunks_that_end_in_something_else_are_refused_when_the_body_timeout_is_over(
    garbage: bytes, before: bytes
) -> None:
    async def body(house: House) -> None:
        reader, writer = await connect(house)
        writer.write(
            before + head("POST", "/api/v1/jobs", **{"Transfer-Encoding": "chunked"}) + b"3\r\nabc\r\n"
        )
        await asyncio.sleep(0.1)
        writer.write(garbage)
        async with asyncio.timeout(5):
            answer = await reader.read()
        # aiohttp finds the garbage only after the request before it: the body counts as unfinished until then.
        assert b'"malformed_body"' in answer or b'"body_timeout"' in answer
        assert answer.count(b"HTTP/1.1 ") == (2 if before else 1)
        writer.close()

    run(body, body_timeout_s=0.5)


def test_connection_ends_after_a_transfer_encoding_that_is_more_than_chunked() -> None:
    async def body(house: House) -> None:
        reader, writer = await connect(house)
        sent = head("POST", "/api/v1/jobs", **{"Transfer-Encoding": "gzip, chunked"})
        writer.write(sent + b"0\r\n\r\n" + head("GET", "/api/v1/jobs"))
        async with asyncio.timeout(5):
            answer = await reader.read()
        assert answer.count(b"HTTP/1.") == 1
        assert answer.startswith((b"HTTP/1.1 4", b"HTTP/1.0 4"))
        writer.close()

    run(body)


async def upload(house: House) -> bytes:
    """The head of a request that writes a file, but for what it says of the body."""
    job = await house.submit("script")
    link = await house.post(f"/api/v1/jobs/{job['id']}/files", {"name": "a.txt"})
    path = link.json["url"].removeprefix(house.url)
    return f"PUT {path} HTTP/1.1\r\nHost: x\r\n".encode()


def test_a_file_whose_sender_hangs_up_is_not_there_and_that_is_no_error_of_ours(tmp_path: Path) -> None:
    async def body(house: House) -> None:
        for turns in range(1, 6):
            _, writer = await connect(house)
            writer.write(await upload(house) + b"Content-Length: 500\r\n\r\nabc")
            await asyncio.sleep(0.02 * turns)
            writer.transport.abort()
        await asyncio.sleep(0.1)
        for job in (await house.get("/api/v1/jobs")).json["items"]:
            assert (await house.get(f"/api/v1/jobs/{job['id']}/files")).json["items"] == []

    run(body, payloads=f"file:{tmp_path}")


def test_a_file_in_chunks_that_are_none_is_refused_and_is_not_there(tmp_path: Path) -> None:
    async def body(house: House) -> None:
        reader, writer = await connect(house)
        writer.write(await upload(house) + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        await asyncio.sleep(0.1)
        writer.write(b"zz\r\n")
        async with asyncio.timeout(5):
            answer = await reader.read()
        assert b'"malformed_body"' in answer or b'"body_timeout"' in answer
        writer.close()
        (job,) = (await house.get("/api/v1/jobs")).json["items"]
        assert (await house.get(f"/api/v1/jobs/{job['id']}/files")).json["items"] == []

    run(body, payloads=f"file:{tmp_path}", body_timeout_s=0.5)


# -- methods and paths -----------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/_worker/ws", "/_worker/ws/w1"])
def test_a_socket_is_opened_by_nothing_but_a_get(path: str) -> None:
    async def body(house: House) -> None:
        shake = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
        shake |= {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
        answer = await house.call("HEAD", path, headers=WORKER | shake)
        assert (answer.status, answer.headers["Allow"]) == (405, "GET")

    run(body)


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("PUT", "/api/v1/jobs", "GET,POST"),
        ("PUT", "/api/v1/jobs/greet", "GET,POST"),
        ("GET", "/api/v1/greet", "POST"),
    ],
)
def test_where_a_blueprint_shares_a_path_with_us_all_methods_are_told(
    method: str, path: str, allow: str
) -> None:
    async def body(house: House) -> None:
        answer = await house.call(method, path)
        assert (answer.status, answer.headers["Allow"]) == (405, allow)

    own = [endpoint("a", "/jobs", "v1"), endpoint("b", "/jobs/greet", "v1"), endpoint("c", "/greet", "v1")]
    run(body, *own)


def test_a_version_with_slashes_around_it_is_the_one_between_them() -> None:
    async def body(house: House) -> None:
        created = await house.post("/api/v2/greet", {})
        assert created.status == 202
        assert (await house.get(f"/api/v2/jobs/{created.json['job_id']}")).status == 200

    run(body, endpoint("greet", "/greet", "/v2/"))


# -- parameters ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/jobs?status=failed&status=finished",
        "/api/v1/jobs?limit=1&limit=1",
        "/api/v2/jobs?status=failed&status=finished",
        "/api/v1/jobs/x?wait=1&wait=nan",
    ],
)
def test_a_parameter_that_comes_twice_is_refused_for_only_one_could_count(path: str) -> None:
    async def body(house: House) -> None:
        answer = await house.get(path)
        assert (answer.status, answer.code) == (400, "bad_parameter")
        assert "more than once" in answer.json["detail"]

    run(body, endpoint("greet", "/greet", "v2"))


def test_a_mistyped_parameter_is_refused_below_a_blueprints_version_too() -> None:
    async def body(house: House) -> None:
        typo = await house.get("/api/v2/jobs?statsu=failed")
        assert (typo.status, typo.code) == (400, "unknown_parameter")
        assert (await house.get("/api/v2/jobs?_=1&_=2&status=failed")).status == 200
        assert (await house.get("/api/v3/jobs?statsu=failed")).status == 404

    run(body, endpoint("greet", "/greet", "v2"))
