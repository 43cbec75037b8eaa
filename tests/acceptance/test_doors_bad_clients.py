"""Clients that mean no good, or know no better: whatever they do is theirs alone, and others notice nothing."""

import asyncio
import gc
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from regista.workers.protocol import frames
from tests.acceptance.serving import House, serving
from tests.acceptance.test_bad_input import connect, head, heard
from tests.support import one_task

GET = b"GET /_public/status HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture(autouse=True)
def nothing_is_logged(caplog: pytest.LogCaptureFixture) -> Any:
    with caplog.at_level(logging.WARNING):
        yield
    assert [record.getMessage() for record in caplog.get_records("call")] == []


def run(body: Callable[[House], Coroutine[Any, Any, None]], **settings: Any) -> None:
    async def main() -> None:
        async with serving(one_task(), **settings) as house:
            await body(house)
            assert (await house.get("/_public/status", token=None)).status == 200

    asyncio.run(main())


@asynccontextmanager
async def connections(house: House, count: int) -> AsyncIterator[list[Any]]:
    made = await asyncio.gather(*(connect(house) for _ in range(count)))
    try:
        yield list(made)
    finally:
        for _, writer in made:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for _, writer in made), return_exceptions=True)
        gc.collect()


async def drip(writer: asyncio.StreamWriter, first: bytes, drop: bytes, every_s: float = 0.05) -> None:
    """Send something that never ends, little by little."""
    try:
        writer.write(first)
        while True:
            writer.write(drop)
            await writer.drain()
            await asyncio.sleep(every_s)
    except ConnectionError:
        pass


async def closed(reader: asyncio.StreamReader, within_s: float = 5.0) -> bytes:
    """What came before the connection was closed."""
    heard = b""
    async with asyncio.timeout(within_s):
        try:
            while chunk := await reader.read(65536):
                heard += chunk
        except ConnectionError:
            pass  # it was cut off while we were still sending
    return heard


@pytest.mark.parametrize("later", [False, True], ids=["first request", "a later one"])
def test_a_head_that_drips_is_cut_off_and_others_are_served_meanwhile(later: bool) -> None:
    async def body(house: House) -> None:
        async with connections(house, 40) as lorises:
            if later:
                for reader, writer in lorises:
                    writer.write(GET)
                    assert (await heard(reader))[0] == 200
            first = b"GET /api/v1/jobs HTTP/1.1\r\nHost: x\r\n"
            drips = [asyncio.create_task(drip(writer, first, b"X-A: b\r\n")) for _, writer in lorises]
            began = time.monotonic()
            while time.monotonic() - began < 0.3:
                assert (await house.get("/api/v1/blueprints")).status == 200
            await asyncio.gather(*(closed(reader) for reader, _ in lorises))
            for one in drips:
                one.cancel()
            await asyncio.gather(*drips, return_exceptions=True)

    run(body, body_timeout_s=0.5)


def test_a_body_that_drips_is_cut_off_and_others_are_served_meanwhile() -> None:
    async def body(house: House) -> None:
        async with connections(house, 40) as lorises:
            first = head("POST", "/api/v1/jobs", **{"Content-Length": "100000"}) + b'{"blueprint": "'
            drips = [asyncio.create_task(drip(writer, first, b"x")) for _, writer in lorises]
            began = time.monotonic()
            while time.monotonic() - began < 0.3:
                assert (await house.get("/api/v1/blueprints")).status == 200
            answers = await asyncio.gather(*(closed(reader) for reader, _ in lorises))
            assert all(answer.startswith(b"HTTP/1.1 408 ") for answer in answers)
            for one in drips:
                one.cancel()
            await asyncio.gather(*drips, return_exceptions=True)

    run(body, body_timeout_s=0.5)


def test_a_body_that_nobody_wants_is_not_waited_for() -> None:
    async def body(house: House) -> None:
        reader, writer = await connect(house)
        unknown = head("POST", "/api/v1/jobs", **{"Content-Length": "100000"}).replace(b"t-ada", b"wrong")
        dripping = asyncio.create_task(drip(writer, unknown, b"x"))
        answer = await closed(reader)
        assert answer.startswith(b"HTTP/1.1 401 ")
        dripping.cancel()
        await asyncio.gather(dripping, return_exceptions=True)
        writer.close()

    run(body)


@pytest.mark.slow
@pytest.mark.timeout(30)
def test_hundreds_of_idle_connections_hinder_nobody() -> None:
    async def body(house: House) -> None:
        async with connections(house, 400) as idle:
            for reader, writer in idle[:200]:  # these have asked for something, and stay
                writer.write(GET)
                assert (await heard(reader))[0] == 200
            began = time.monotonic()
            for _ in range(20):
                assert (await house.get("/api/v1/blueprints")).status == 200
            assert time.monotonic() - began < 3
            # Those that never said a word are gone after a while, the others may stay.
            await asyncio.gather(*(closed(reader) for reader, _ in idle[200:]))
            for reader, writer in idle[:5]:
                writer.write(GET)
                assert (await heard(reader))[0] == 200

    run(body, body_timeout_s=2.0)


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00" * 1000,
        b"\xff\xfe" * 500,
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nxxxxxx",
        b"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n continued: y\r\n\r\n",
        b"GET / HTTP/1.1\nHost: x\n\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
@pytest.mark.parametrize("together", [True, False], ids=["in one go", "afterwards"])
def test_garbage_after_a_good_request_is_refused(garbage: bytes, together: bool) -> None:
    async def body(house: House) -> None:
        reader, writer = await connect(house)
        writer.write(GET + (garbage if together else b""))
        if not together:
            assert (await heard(reader))[0] == 200
            writer.write(garbage)
        answer = await closed_or_quiet(reader)
        assert b" 400 " in answer
        assert b" 50" not in answer
        assert b"Traceback" not in answer
        writer.close()

    run(body)


async def closed_or_quiet(reader: asyncio.StreamReader) -> bytes:
    answer = b""
    try:
        while True:
            chunk = await asyncio.wait_for(reader.read(65536), 0.5)
            if not chunk:
                return answer
            answer += chunk
    except (TimeoutError, ConnectionError):
        return answer


def test_hundreds_of_requests_in_one_go_are_answered_in_their_order() -> None:
    async def body(house: House) -> None:
        reader, writer = await connect(house)
        ask = b"".join(head("GET", f"/api/v1/jobs/n{number}") for number in range(300))
        writer.write(ask)
        async with asyncio.timeout(8):
            for number in range(300):
                answer = await reader.readuntil(b"}")
                assert f"job n{number}: not found".encode() in answer
        writer.close()

    run(body)


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/jobs/a%0d%0aX-Evil:%201",
        "/api/v1/blueprints/a%0d%0aSet-Cookie:%20x=1/graph",
        "/api/v1/workers/a%0d%0aX-Evil:%201",
        "/%0d%0aX-Evil:%201",
        "/_public/%0d%0aX-Evil:%201?x=%0d%0aX-Evil:%201",
        "/docs/%0d%0aX-Evil:%201",
        "//evil.example/%2e%2e",
    ],
)
def test_line_feeds_in_names_never_become_headers(path: str) -> None:
    async def body(house: House) -> None:
        answer = await house.get(path)
        assert answer.status < 500
        assert "X-Evil" not in answer.headers
        assert "Set-Cookie" not in answer.headers
        assert "evil" not in answer.headers.get("Location", "")

    run(body)


@pytest.mark.parametrize(
    "name", ["X-Protocol-Version", "X-Rxon-Version", "Idempotency-Key", "X-Request-ID", "Origin"]
)
@pytest.mark.parametrize("value", [b"a\rb", b"\xff\xfe", b"\x7f\x01", b"x" * 9000])
def test_odd_bytes_in_headers_come_back_in_none(name: str, value: bytes) -> None:
    async def body(house: House) -> None:
        for path in ("/api/v1/jobs", "/_worker/workers/w1/tasks/next?timeout=0"):
            reader, writer = await connect(house)
            sent = head("GET", path, **{"X-Worker-Token": "t-worker", "Connection": "close"})
            writer.write(sent[:-2] + name.encode() + b": " + value + b"\r\n\r\n")
            answer = await closed(reader)
            assert answer[9:10] in (b"2", b"4"), answer
            lines = answer.partition(b"\r\n\r\n")[0].split(b"\r\n")
            assert all(b"\r" not in line and b"\n" not in line for line in lines)
            writer.close()

    run(body)


@pytest.mark.parametrize(
    "name",
    [
        "../../etc/passwd",
        "..%2f..%2fetc%2fpasswd",
        "%2e%2e/%2e%2e/etc/passwd",
        "....//etc/passwd",
        "/etc/passwd",
        "%00",
    ],
)
def test_a_path_that_climbs_leads_nowhere(name: str) -> None:
    async def body(house: House) -> None:
        for path in (
            f"/api/v1/jobs/{name}",
            f"/api/v1/jobs/{name}/history",
            f"/api/v1/jobs/x/files/{name}",
            f"/api/v1/blueprints/{name}",
            f"/api/v1/blueprints/{name}/graph",
            f"/api/v1/workers/{name}",
            f"/docs/{name}",
            f"/_public/{name}",
            f"/{name}",
        ):
            answer = await house.get(path)
            assert answer.status in (400, 404, 501), (path, answer.status)
            assert b"root:" not in answer.body

    run(body)


def test_a_worker_id_that_climbs_or_breaks_lines_is_refused() -> None:
    async def body(house: House) -> None:
        for name in ("../w", "a/b", "a\r\nb", "a\0b", "", " ", "x" * 5000):
            said = {"worker_id": name, "worker_type": "t", "supported_skills": ["x"], "resources": {}}
            headers = {"X-Worker-Token": "t-worker"}
            answer = await house.post("/_worker/workers/register", said, token=None, headers=headers)
            assert answer.status in (400, 401), (name, answer.body)
        assert (await house.get("/api/v1/workers")).json["items"] == []

    run(body)


def test_many_large_headers_are_refused() -> None:
    async def body(house: House) -> None:
        for lines in (b"X-A: " + b"x" * 20_000 + b"\r\n", b"".join(b"X-%d: y\r\n" % n for n in range(200))):
            reader, writer = await connect(house)
            writer.write(b"GET /_public/status HTTP/1.1\r\nHost: x\r\n" + lines + b"\r\n")
            answer = await closed(reader)
            assert answer[9:12] in (b"400", b"431"), answer
            writer.close()

    run(body)


@pytest.mark.parametrize(
    "name", ["Connection", "Upgrade", "Sec-WebSocket-Version", "Sec-WebSocket-Key", "Sec-WebSocket-Protocol"]
)
def test_a_handshake_of_bytes_that_are_no_text_is_refused(name: str) -> None:
    async def body(house: House) -> None:
        reader, writer = await connect(house)
        said = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
        said |= {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
        said.pop(name, None)
        sent = head("GET", "/_worker/ws/w1", **{"X-Worker-Token": "t-worker"}, **said)
        writer.write(sent[:-2] + name.encode() + b": \xe9\xff\r\n\r\n")
        assert (await heard(reader))[0] == 400
        writer.close()

    run(body)


@pytest.mark.parametrize(
    "message",
    [
        b"\x91\x92\xa5hello\xa3\xff\xfe\xea",  # not UTF-8
        b"\x91" * 5000,  # a bottomless nest
        b"\x91\x93\xa8progress\xa1x" + b"\x91" * 4000,
        b"\xdd\xff\xff\xff\xff",  # a list of four billion
        b"\xc1",
        b"",
    ],
)
def test_a_message_on_the_stream_that_is_none_closes_it_and_no_more(message: bytes) -> None:
    async def body(house: House) -> None:
        said = {"worker_id": "w1", "worker_type": "t", "supported_skills": ["x"], "resources": {}}
        headers = {"X-Worker-Token": "t-worker"}
        registered = await house.post("/_worker/workers/register", said, token=None, headers=headers)
        for greeting in (False, True):
            async with house.session.ws_connect(
                f"{house.url}/_worker/ws/w1", protocols=[frames.PROTOCOL], headers=headers
            ) as ws:
                if greeting:
                    await ws.send_bytes(frames.encode([frames.HelloFrame(registered.json["session"], [])]))
                await ws.send_bytes(message)
                async with asyncio.timeout(5):
                    while not ws.closed:
                        await ws.receive()
                assert ws.close_code in (1000, 1003, 1007, 1008)

    run(body)
