"""Whatever comes in: a clear 4xx, nothing changed, and nothing in the log."""

import asyncio
import gzip
import json
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from regista.history.query import Query
from regista.schemas.pages import encode_position
from tests.acceptance.serving import House, serving
from tests.support import one_task


@pytest.fixture(autouse=True)
def nothing_is_logged(caplog: pytest.LogCaptureFixture) -> Any:
    with caplog.at_level(logging.WARNING):
        yield
    assert [record.getMessage() for record in caplog.get_records("call")] == []


def run(body: Callable[[House], Coroutine[Any, Any, None]], **settings: Any) -> None:
    async def main() -> None:
        async with serving(one_task(), **settings) as house:
            await body(house)
            assert (await house.get("/api/v1/jobs", token="t-ops")).json["items"] == []

    asyncio.run(main())


BODIES: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "malformed_json"),
    "half": (b'{"blueprint": "scr', "malformed_json"),
    "two": (b'{"blueprint": "script"} {}', "malformed_json"),
    "text": (b"blueprint=script", "malformed_json"),
    "not a number": (b'{"blueprint": "script", "input": {"x": NaN}}', "malformed_json"),
    "endless": (b'{"blueprint": "script", "priority": Infinity}', "malformed_json"),
    "beyond floats": (b'{"blueprint": "script", "input": {"x": 1e999}}', "invalid_body"),
    "beyond integers": (b'{"blueprint": "script", "input": {"x": 99999999999999999999}}', "not_serializable"),
    "not UTF-8": (b'{"blueprint": "script", "input": {"x": "\xff"}}', "malformed_json"),
    "half a surrogate": (b'{"blueprint": "script", "input": {"x": "\\ud800"}}', "malformed_json"),
    "UTF-16": ('{"blueprint": "script"}'.encode("utf-16"), "malformed_json"),
    "a list": (b"[]", "invalid_body"),
    "null": (b"null", "invalid_body"),
    "no blueprint": (b"{}", "invalid_body"),
    "a number for a name": (b'{"blueprint": 7}', "invalid_body"),
    "an empty name": (b'{"blueprint": ""}', "invalid_body"),
    "a list for input": (b'{"blueprint": "script", "input": []}', "invalid_body"),
    "a text for a priority": (b'{"blueprint": "script", "priority": "high"}', "invalid_body"),
    "no time at all": (b'{"blueprint": "script", "result_timeout": 0}', "invalid_body"),
    "negative time": (b'{"blueprint": "script", "dispatch_timeout": -1}', "invalid_body"),
    "an empty key": (b'{"blueprint": "script", "idempotency_key": ""}', "invalid_body"),
    "a webhook that is no URL": (b'{"blueprint": "script", "webhook_url": "ftp://x"}', "invalid_body"),
    "a typing mistake": (b'{"blueprint": "script", "inptu": {}}', "unknown_member"),
    "a member of tomorrow": (b'{"blueprint": "script", "concurrency_key": "x"}', "unknown_member"),
    "a deep well": (
        b'{"blueprint": "script", "input": {"x": ' + b"[" * 900 + b"]" * 900 + b"}}",
        "not_serializable",
    ),
    "a bottomless one": (b'{"blueprint": "script", "input": {"x": ' + b"[" * 200_000, "malformed_json"),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_body_that_is_no_job_is_refused_and_the_reason_told(name: str) -> None:
    sent, code = BODIES[name]

    async def body(house: House) -> None:
        answer = await house.post("/api/v1/jobs", raw=sent)
        assert (answer.status, answer.code) == (400, code), answer.body
        assert len(answer.json["detail"]) > 10

    run(body)


def test_an_unknown_member_is_named_with_the_nearest_known_one() -> None:
    async def body(house: House) -> None:
        answer = await house.post("/api/v1/jobs", {"blueprint": "script", "prority": 1})
        assert answer.json["member"] == "prority"
        assert "did you mean priority?" in answer.json["detail"]

    run(body)


def test_an_unknown_blueprint_is_not_found_and_the_known_ones_are_named() -> None:
    async def body(house: House) -> None:
        answer = await house.post("/api/v1/jobs", {"blueprint": "scirpt"})
        assert (answer.status, answer.code) == (404, "blueprint_not_found")
        assert "registered: script" in answer.json["detail"]

    run(body)


@pytest.mark.parametrize("kind", ["text/plain", "application/xml", "nonsense", ""])
def test_the_content_type_does_not_matter_when_it_is_json(kind: str) -> None:
    async def body(house: House) -> None:
        wrong = await house.post("/api/v1/jobs:wait", {"ids": ["x"]}, headers={"Content-Type": kind})
        assert wrong.status == 200

    run(body)


@pytest.mark.parametrize(
    ("path", "parameter"),
    [
        ("/api/v1/jobs?limit=0", "limit"),
        ("/api/v1/jobs?limit=-5", "limit"),
        ("/api/v1/jobs?limit=many", "limit"),
        ("/api/v1/jobs?limit=1001", "limit"),
        ("/api/v1/jobs?limit=99999999999999999999999", "limit"),
        ("/api/v1/jobs?limit=%D9%A1", "limit"),
        ("/api/v1/jobs?status=sleeping", "status"),
        ("/api/v1/jobs?next=nonsense", "next"),
        ("/api/v1/jobs?next=%FF%00", "next"),
        (f"/api/v1/jobs?next={encode_position(17)}", "next"),
        (f"/api/v1/jobs?next={encode_position(['x', 'y'])}", "next"),
        ("/api/v1/jobs/x?wait=-1", "wait"),
        ("/api/v1/jobs/x?wait=nan", "wait"),
        ("/api/v1/jobs/x?wait=soon", "wait"),
        ("/api/v1/jobs/x/history?next=nonsense", "next"),
        ("/api/v1/jobs/x/events?after=-1", "after"),
        ("/api/v1/events?after=yesterday", "after"),
    ],
)
def test_a_parameter_that_makes_no_sense_is_refused_by_name(path: str, parameter: str) -> None:
    async def body(house: House) -> None:
        answer = await house.get(path)
        assert (answer.status, answer.code) == (400, "bad_parameter"), answer.body
        assert answer.json["parameter"] == parameter

    run(body)


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/api/v1/jobs?staus=failed", "did you mean status?"),
        ("/api/jobs?limit=5&cursor=x", "known are status, blueprint, limit, next"),
        ("/api/v1/jobs/x?WAIT=5", "known are wait"),
        ("/api/v1/workers?state=busy", "it takes none"),
    ],
)
def test_an_unknown_parameter_is_refused_with_the_nearest_known_one(path: str, hint: str) -> None:
    async def body(house: House) -> None:
        answer = await house.get(path)
        assert (answer.status, answer.code) == (400, "unknown_parameter"), answer.body
        assert hint in answer.json["detail"]
        assert f"?{answer.json['parameter']}=" in path.replace("&", "?")

    run(body)


def test_a_parameter_that_only_defeats_caches_is_let_in_and_the_public_may_carry_any() -> None:
    async def body(house: House) -> None:
        assert (await house.get("/api/v1/jobs?_=17&_t=x")).status == 200
        assert (await house.get("/_public/status?probe=7", token=None)).status == 200
        assert (await house.get("/api/v1/jobs?staus=x", token=None)).status == 401

    run(body)


def test_a_made_up_token_of_a_far_day_is_refused_like_any_other_that_no_page_gave() -> None:
    async def body(house: House) -> None:
        for moment in (-(2**60), 2**63 - 1, 0):
            for made_up in ([moment, "x"], [Query().restricted(client="ada").fingerprint, [moment, 5]]):
                answer = await house.get(f"/api/v1/jobs?next={encode_position(made_up)}")
                assert (answer.status, answer.code) == (400, "bad_parameter")

    run(body)


@pytest.mark.parametrize(
    "job_id", ["x", "%00", "%FF%FE", "..%2F..%2Fetc", "a%0D%0Ab", "%F0%9F%8E%AC", "';%20--", "x" * 4000]
)
def test_an_odd_id_is_just_not_found(job_id: str) -> None:
    async def body(house: House) -> None:
        for path in (
            f"/api/v1/jobs/{job_id}",
            f"/api/v1/jobs/{job_id}/history",
            f"/api/v1/jobs/{job_id}/events",
        ):
            answer = await house.get(path)
            assert (answer.status, answer.code) == (404, "job_not_found")
        assert (await house.post(f"/api/v1/jobs/{job_id}/cancel")).status == 404
        waited = await house.post("/api/v1/jobs:wait", {"ids": [job_id, "\0", ""], "timeout": 5})
        assert waited.json["items"] == []

    run(body)


def test_a_huge_body_is_refused_before_it_is_read() -> None:
    async def body(house: House) -> None:
        reader, writer = await connect(house)
        writer.write(head("POST", "/api/v1/jobs", **{"Content-Length": str(10**12)}))
        status, answer = await heard(reader)
        assert status == 413
        assert b"body_too_large" in answer
        writer.close()
        await writer.wait_closed()

    run(body)


def test_a_huge_body_that_does_not_say_so_is_refused_when_it_is_too_much() -> None:
    async def body(house: House) -> None:
        reader, writer = await connect(house)
        writer.write(head("POST", "/api/v1/jobs", **{"Transfer-Encoding": "chunked"}))
        for _ in range(40):
            writer.write(b"1000\r\n" + b"x" * 4096 + b"\r\n")
        assert (await heard(reader))[0] == 413
        writer.close()

    run(body, max_body_bytes=64 * 1024)


def test_a_small_body_that_swells_when_unpacked_is_refused() -> None:
    async def body(house: House) -> None:
        bomb = gzip.compress(b"x" * 10_000_000)
        answer = await house.post("/api/v1/jobs", raw=bomb, headers={"Content-Encoding": "gzip"})
        assert (answer.status, answer.code) == (413, "body_too_large")
        broken = await house.post("/api/v1/jobs", raw=b"not gzip", headers={"Content-Encoding": "gzip"})
        assert (broken.status, broken.code) == (400, "malformed_body")

    run(body, max_body_bytes=64 * 1024)


def test_a_body_that_is_not_packed_as_it_says_gets_one_answer_and_no_more() -> None:
    async def body(house: House) -> None:
        reader, writer = await connect(house)
        said = head("POST", "/api/v1/jobs", **{"Content-Encoding": "gzip", "Content-Length": "8"})
        writer.write(said + b"not gzip" + head("GET", "/api/v1/jobs"))
        async with asyncio.timeout(5):
            answer = await reader.read()  # to its end: the connection is closed
        assert answer.count(b"HTTP/1.1 ") == 1
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"\r\nConnection: close\r\n" in answer
        writer.close()

    run(body)


def test_the_rest_of_a_body_that_nobody_wanted_may_be_wrong() -> None:
    async def body(house: House) -> None:
        reader, writer = await connect(house)
        said = head("POST", "/api/v1/jobs", **{"Content-Encoding": "gzip", "Content-Length": "8"})
        writer.write(said.replace(b"t-ada", b"unknown"))
        assert (await heard(reader))[0] == 401
        writer.write(b"not gzip" + head("GET", "/api/v1/jobs"))  # nobody has tried to unpack it
        assert (await heard(reader))[0] == 200
        writer.close()

    run(body)


@pytest.mark.parametrize("sent", [b"", b"GET /_public/status HTTP/1.1\r\nX: ", b"\r\n"])
def test_a_connection_that_never_finishes_its_first_head_is_closed(sent: bytes) -> None:
    async def body(house: House) -> None:
        reader, writer = await connect(house)
        writer.write(sent)
        async with asyncio.timeout(5):
            assert await reader.read() == b""
        writer.close()

    run(body, body_timeout_s=0.2)


def test_a_connection_may_be_silent_between_its_requests() -> None:
    async def body(house: House) -> None:
        reader, writer = await connect(house)
        for _ in range(2):
            writer.write(head("GET", "/api/v1/nothing"))
            assert (await heard(reader))[0] == 404
            await asyncio.sleep(0.5)
        writer.close()

    run(body, body_timeout_s=0.2)


@pytest.mark.parametrize("header", ["X-Client-Token: ", "Authorization: Bearer "])
def test_a_token_of_bytes_that_are_no_text_is_just_unknown(header: str) -> None:
    async def body(house: House) -> None:
        reader, writer = await connect(house)
        said = head("GET", "/api/v1/jobs").replace(b"X-Client-Token: t-ada", header.encode() + b"\xe9\xff")
        writer.write(said)
        status, answer = await heard(reader)
        assert status == 401
        assert b"token_unknown" in answer
        writer.close()

    run(body)


@pytest.mark.parametrize(
    "path", ["/api/v1/events", "/_worker/ws/w1", "/_worker/workers/w1/tasks/next?timeout=5"]
)
def test_whoever_hangs_up_at_once_leaves_nothing_in_the_log(path: str) -> None:
    async def body(house: House) -> None:
        upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
        more = {**upgrade, "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="} if "/ws/" in path else {}
        # Turns of the loop, which the server shares: it hears of it at every point of its way.
        for turns in range(12):
            _, writer = await connect(house)
            writer.write(head("GET", path, **{"X-Worker-Token": "t-worker"}, **more))
            for _ in range(turns):
                await asyncio.sleep(0)
            writer.transport.abort()
        await asyncio.sleep(0.1)

    run(body)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("events", '{"event_type": "progress", "target_task_id": "x-1", "payload": {"progress": %s}}'),
        ("events", '{"event": "progress_update", "task_id": "x-1", "progress": %s}'),
        ("workers/register", '{"worker_id": "w", "resources": {"properties": {"cpu_cores": %s}}}'),
        ("workers/register", '{"worker_id": "w", "resources": {"cpu_cores": %s}}'),
        (
            "workers/register",
            '{"worker_id": "w", "resources": {"devices": [{"type": "gpu", "properties": {"vram_gb": %s}}]}}',
        ),
        ("tasks/result", '{"job_id": "x", "task_id": "x_1_0-1", "costs": {"execution_time_seconds": %s}}'),
    ],
)
def test_a_number_of_a_worker_that_is_too_large_is_no_error_of_ours(path: str, said: str) -> None:
    async def body(house: House) -> None:
        sent = (said % 10**400).replace("{", '{"worker_id": "w", ', 1).encode()
        answer = await house.post(f"/_worker/{path}", raw=sent, headers={"X-Worker-Token": "t-worker"})
        assert answer.status in (200, 400), answer.body

    run(body)


def test_a_body_that_dawdles_is_not_waited_for() -> None:
    async def body(house: House) -> None:
        reader, writer = await connect(house)
        writer.write(head("POST", "/api/v1/jobs", **{"Content-Length": "100"}) + b'{"blue')
        status, answer = await heard(reader)
        assert status == 408
        assert b"body_timeout" in answer
        writer.close()
        await writer.wait_closed()

    run(body, body_timeout_s=0.2)


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /api/v1/jobs HTTP/1.1\r\nHost: x\r\nX-Much: " + b"x" * 100_000 + b"\r\n\r\n",
        b"GET /api/v1/jobs HTTP/1.1\r\nHost: x\r\n" + b"X-A: 1\r\n" * 500 + b"\r\n",
        b"NONSENSE\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"GET /api/v1/jobs HTTP/1.1\r\nHost: x\r\nBad Header: x\r\n\r\n",
    ],
    ids=["long line", "long header", "many headers", "nonsense", "TLS", "negative length", "bad name"],
)
def test_request_that_is_not_http_is_answered_400(sent: bytes) -> None:
    async def body(house: House) -> None:
        reader, writer = await connect(house)
        writer.write(sent)
        async with asyncio.timeout(5):
            answer = await reader.read()  # the server closes the connection
        assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.0 400 "))
        assert b"Traceback" not in answer
        writer.close()

    run(body)


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("/api/v1/jobs:batch", {}),
        ("/api/v1/jobs:batch", {"jobs": []}),
        ("/api/v1/jobs:batch", {"jobs": "script"}),
        ("/api/v1/jobs:batch", [{"blueprint": "script"}]),
        ("/api/v1/jobs:wait", {"ids": []}),
        ("/api/v1/jobs:wait", {"ids": [1]}),
        ("/api/v1/jobs:wait", {"ids": ["x"], "timeout": -1}),
        ("/api/v1/jobs:wait", {"ids": ["x"], "linger": 60}),
        ("/api/v1/jobs/x/cancel", {"reason": 5}),
        ("/api/v1/jobs/x/cancel", {"raeson": "typo"}),
        ("/api/v1/jobs/x/approval", {}),
        ("/api/v1/jobs/x/approval", {"decision": None}),
        ("/api/v1/jobs/x/release", {"data": []}),
        ("/api/v1/jobs/x/fork", {"input": 1}),
        ("/api/v1/workers/x/drain", {"on": "yes"}),
    ],
)
def test_every_other_body_is_checked_as_well(path: str, sent: Any) -> None:
    async def body(house: House) -> None:
        answer = await house.post(path, sent, token="t-ops")
        assert answer.status == 400
        assert answer.code in ("invalid_body", "unknown_member")

    run(body)


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("/api/v1/jobs", {"blueprint": "script", "input": {"x": "DEEP"}}),
        ("/api/v1/jobs", {"blueprint": "script", "search_attributes": {"x": "DEEP"}}),
        ("/api/v1/jobs:batch", {"jobs": [{"blueprint": "script", "input": {"x": "DEEP"}}]}),
        ("/api/v1/jobs/{id}/release", {"data": {"x": "DEEP"}}),
        ("/api/v1/jobs/{id}/fork", {"input": {"x": "DEEP"}}),
        ("/api/v1/jobs/{id}/approval", {"decision": "yes", "data": {"x": "DEEP"}}),
        (
            "/api/v1/schedules",
            {"name": "s", "blueprint": "script", "cron": "* * * * *", "input": {"x": "DEEP"}},
        ),
    ],
)
@pytest.mark.parametrize("depth", [200, 500, 900])
async def test_deep_data_is_stored_and_shown_or_refused_and_never_an_error(
    path: str, sent: Any, depth: int, caplog: pytest.LogCaptureFixture
) -> None:
    raw = json.dumps(sent).encode().replace(b'"DEEP"', b"[" * depth + b"]" * depth)
    async with serving(one_task()) as house:
        job = await house.submit("script")
        answer = await house.post(path.replace("{id}", job["id"]), raw=raw, token="t-ops")
        assert answer.status < 500, answer.body
        for looked_at in (f"/api/v1/jobs/{job['id']}", "/api/v1/jobs", "/api/v1/schedules"):
            assert (await house.get(looked_at, token="t-ops")).status == 200
        if answer.status == 202:
            made = f"/api/v1/jobs/{answer.json['id']}"
            for looked_at in (made, f"{made}/history", f"{made}/explain"):
                assert (await house.get(looked_at, token="t-ops")).status == 200
    assert [one for one in caplog.records if one.levelname == "ERROR"] == []


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("DELETE", "/api/v1/jobs", "GET,POST"),
        ("PUT", "/api/v1/jobs/x", "GET"),
        ("GET", "/api/v1/jobs/x/cancel", "POST"),
        ("GET", "/api/jobs:wait", "POST"),
        ("POST", "/api/v1/blueprints", "GET"),
        ("POST", "/_public/status", "GET"),
    ],
)
def test_another_method_is_refused_with_those_that_are_allowed(method: str, path: str, allow: str) -> None:
    async def body(house: House) -> None:
        answer = await house.call(method, path)
        assert (answer.status, answer.code) == (405, "method_not_allowed")
        assert answer.headers["Allow"] == allow

    run(body)


def test_a_path_that_is_not_there_is_not_found_under_every_method() -> None:
    async def body(house: House) -> None:
        for method in ("GET", "POST", "DELETE", "PATCH"):
            for path in (
                "/nothing",
                "/api/v1/nothing",
                "/api/nothing/at/all",
                "/jobs",
                "/_public/debug/flush_db",
            ):
                answer = await house.call(method, path)
                assert (answer.status, answer.code) == (404, "not_found"), (method, path)

    run(body)


async def connect(house: House) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = house.url.removeprefix("http://").partition(":")
    return await asyncio.open_connection(host, int(port))


def head(method: str, path: str, **headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: x", "X-Client-Token: t-ada"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode()


async def heard(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """The status, and everything up to the end of the problem."""
    async with asyncio.timeout(5):
        answer = await reader.readuntil(b"}")
    return int(answer.split()[1]), answer
