"""Against a real server that misbehaves on purpose."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from regista.client.transport import Transport
from regista.config import Connection
from regista.errors import ApiError, JobNotFound, Unreachable
from regista.trace_context import REQUEST_TRACE

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
STOPPED = b'{"status": 503, "code": "stopped", "detail": "the orchestrator stops"}'


@asynccontextmanager
async def served(handler: Handler, port: int = 0) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def transport_to(url: str, timeout_s: float = 5.0, **more: Any) -> AsyncIterator[Transport]:
    transport = Transport(Connection(url=url, token="secret", timeout_s=timeout_s), **more)
    try:
        yield transport
    finally:
        await transport.close()
        await transport.close()  # twice is fine


class Script:
    """Answers as it is told, one answer after the other; then with 200."""

    def __init__(self, *answers: web.Response | None) -> None:
        self.answers = list(answers)
        self.requests: list[tuple[str, bytes]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.headers.get("X-Client-Token", ""), await request.read()))
        answer = self.answers.pop(0) if self.answers else web.Response(body=b"{}")
        if answer is None:
            assert request.transport is not None
            request.transport.abort()  # the connection is cut: nobody knows whether it was done
            return web.Response()
        return answer


def test_a_cut_connection_and_a_stopping_orchestrator_are_tried_again_with_the_same_body() -> None:
    script = Script(None, web.Response(status=503, body=STOPPED), web.Response(status=502))

    async def call() -> bytes:
        async with served(script.answer) as url, transport_to(url) as transport:
            return await transport.call("POST", "/x", {"key": 1})

    assert asyncio.run(call()) == b"{}"
    assert script.requests == [("secret", b'{"key":1}')] * 4


def test_what_is_not_safe_to_repeat_is_not_repeated() -> None:
    script = Script(web.Response(status=503, body=STOPPED), None)

    async def call() -> None:
        async with served(script.answer) as url, transport_to(url) as transport:
            with pytest.raises(Exception, match="stops"):
                await transport.call("POST", "/x", {}, idempotent=False)
            with pytest.raises(Unreachable):
                await transport.call("POST", "/x", {}, idempotent=False)

    asyncio.run(call())
    assert len(script.requests) == 2


def test_too_many_requests_are_repeated_after_the_pause_that_was_asked_for() -> None:
    script = Script(web.Response(status=429, headers={"Retry-After": "0.3"}, body=b"{}"))

    async def call() -> float:
        async with served(script.answer) as url, transport_to(url) as transport:
            began = time.monotonic()
            await transport.call("POST", "/x", {}, idempotent=False)
            return time.monotonic() - began

    assert 0.2 <= asyncio.run(call()) < 2
    assert len(script.requests) == 2


def test_a_refusal_is_raised_at_once() -> None:
    script = Script(
        web.Response(
            status=404, body=b'{"code": "job_not_found", "detail": "job j1: not found", "job_id": "j1"}'
        )
    )

    async def call() -> None:
        async with served(script.answer) as url, transport_to(url) as transport:
            await transport.call("GET", "/x")

    with pytest.raises(JobNotFound):
        asyncio.run(call())
    assert len(script.requests) == 1


def test_trouble_is_put_up_with_for_the_timeout_and_no_longer() -> None:
    async def call() -> float:
        async with transport_to("http://127.0.0.1:9", timeout_s=0.4) as transport:
            began = time.monotonic()
            with pytest.raises(Unreachable, match="connection refused"):
                await transport.call("GET", "/x", idempotent=False)  # refused: nobody heard it
            return time.monotonic() - began

    assert 0.15 < asyncio.run(call()) < 2


def test_the_first_contact_may_have_less_patience() -> None:
    async def call() -> float:
        async with transport_to("http://127.0.0.1:9", timeout_s=60, first_contact_s=0.0) as transport:
            began = time.monotonic()
            with pytest.raises(Unreachable):
                await transport.call("GET", "/x")
            return time.monotonic() - began

    assert asyncio.run(call()) < 1


async def test_a_server_that_never_answers_is_given_up(tmp_path: Path) -> None:
    async def silent(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(30)
        return web.Response()

    async with served(silent) as url, transport_to(url, timeout_s=0.3) as transport:
        with pytest.raises(Unreachable):
            await transport.call("GET", "/x")


def test_the_token_file_is_found_even_when_it_appears_late(tmp_path: Path) -> None:
    script = Script()

    async def call() -> None:
        async with served(script.answer) as url:
            transport = Transport(Connection(url=url, state_dir=str(tmp_path)))
            await transport.call("GET", "/x")
            (tmp_path / "client.token").write_text("late\n")
            await transport.call("GET", "/x")
            await transport.close()

    asyncio.run(call())
    assert [token for token, _ in script.requests] == ["", "late"]


def test_a_stream_goes_on_where_it_was_cut() -> None:
    seen: list[str] = []

    async def stream(request: web.Request) -> web.StreamResponse:
        after = int(request.headers.get("Last-Event-ID", "0"))
        seen.append(request.headers.get("Last-Event-ID", ""))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b": hello\n\n")
        for number in range(after + 1, after + 3):
            await response.write(f"id: {number}\ndata: {number}\n\n".encode())
        await response.write(b"data: never whole")
        assert request.transport is not None
        if len(seen) % 2:
            request.transport.close()
        return response

    async def read() -> list[str]:
        found = []
        async with served(stream) as url, transport_to(url) as transport:
            async for message in transport.messages("/events"):
                found.append(message.data)
                if len(found) == 6:
                    break
        return found

    assert asyncio.run(read()) == ["1", "2", "3", "4", "5", "6"]
    assert seen == ["", "2", "4"]


@pytest.mark.parametrize(("hello", "most"), [(b": hello\n\n", 6), (b"retry: 400\n\n", 3)])
async def test_reconnects_to_a_stream_that_ends_at_once_slow_down(hello: bytes, most: int) -> None:
    """Pauses of 50, 100, 200 and 400 ms allow five connections a second, `retry: 400` allows three."""
    opened = 0

    async def stream(request: web.Request) -> web.StreamResponse:
        nonlocal opened
        opened += 1
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(hello)
        return response

    async with served(stream) as url, transport_to(url) as transport:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(transport.messages("/events")), 1.0)
    assert 2 <= opened <= most


def test_a_stream_that_is_refused_says_why() -> None:
    script = Script(web.Response(status=401, body=b'{"code": "token_unknown", "detail": "not known here"}'))

    async def read() -> None:
        async with served(script.answer) as url, transport_to(url) as transport:
            async for _ in transport.messages("/events"):
                pass

    with pytest.raises(ApiError, match="not known here"):
        asyncio.run(read())


def test_a_stream_with_nothing_to_come_ends() -> None:
    script = Script(web.Response(status=204))

    async def read() -> list[str]:
        async with served(script.answer) as url, transport_to(url) as transport:
            return [message.data async for message in transport.messages("/events")]

    assert asyncio.run(read()) == []
    assert len(script.requests) == 1


def test_who_never_answered_is_not_waited_for_as_long_as_a_job(tmp_path: Path) -> None:
    async def call() -> float:
        async with transport_to("http://127.0.0.1:9", timeout_s=60, first_contact_s=0.2) as transport:
            began = time.monotonic()
            with pytest.raises(Unreachable):
                await transport.call("POST", "/x", {}, server_wait_s=25.0)
            return time.monotonic() - began

    assert asyncio.run(call()) < 2


@pytest.mark.parametrize("status", [307, 308])
def test_a_redirect_is_followed_with_the_same_body(status: int) -> None:
    """Whoever stands before an orchestrator may send its clients elsewhere."""
    seen: list[tuple[str, bytes]] = []

    async def elsewhere(request: web.Request) -> web.StreamResponse:
        seen.append((request.path_qs, await request.read()))
        if request.path == "/x":
            return web.Response(status=status, headers={"Location": f"/y?{request.query_string}"})
        return web.Response(body=b"{}")

    async def call() -> bytes:
        async with served(elsewhere) as url, transport_to(url) as transport:
            return await transport.call("POST", "/x", {}, params={"a": "b c"}, idempotent=False)

    assert asyncio.run(call()) == b"{}"
    assert {(path.replace("+", "%20"), body) for path, body in seen} == {
        ("/x?a=b%20c", b"{}"),
        ("/y?a=b%20c", b"{}"),
    }


def test_a_large_body_arrives_as_it_is() -> None:
    script = Script()
    words = "x" * 3_000_000

    async def call() -> None:
        app_limit = web.Application(client_max_size=10_000_000)
        app_limit.router.add_route("*", "/{path:.*}", script.answer)
        runner = web.AppRunner(app_limit, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            async with transport_to(f"http://127.0.0.1:{runner.addresses[0][1]}") as transport:
                await transport.call("POST", "/x", words)
                await transport.call("POST", "/x", "small")
        finally:
            await runner.cleanup()

    asyncio.run(call())
    assert script.requests == [("secret", f'"{words}"'.encode()), ("secret", b'"small"')]


def test_an_answer_says_what_time_it_is_there() -> None:
    script = Script(web.Response(body=b"{}", headers={"Date": "Mon, 16 Nov 2026 18:00:00 GMT"}))

    async def call() -> tuple[str | None, str | None]:
        async with served(script.answer) as url, transport_to(url) as transport:
            before = transport.server_time
            await transport.call("GET", "/x")
            return before, transport.server_time

    assert asyncio.run(call()) == (None, "Mon, 16 Nov 2026 18:00:00 GMT")


def test_an_address_with_a_name_and_a_password_shows_them() -> None:
    seen: list[str | None] = []

    async def look(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers.get("Authorization"))
        return web.Response(body=b"{}")

    async def call() -> None:
        async with (
            served(look) as url,
            transport_to(url.replace("http://", "http://ada:secret@")) as transport,
        ):
            await transport.call("GET", "/x")

    asyncio.run(call())
    assert seen == ["Basic YWRhOnNlY3JldA=="]


async def test_answers_are_compressed_only_when_they_leave_the_machine() -> None:
    seen: list[str | None] = []

    async def look(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers.get("Accept-Encoding"))
        return web.Response(body=b"{}")

    async with served(look) as url:
        for each in (url, url.replace("127.0.0.1", "0.0.0.0")):  # Linux takes it for this machine
            async with transport_to(each) as transport:
                await transport.call("GET", "/x")
    assert seen == ["identity", "gzip"]


async def test_an_address_that_is_none_is_unreachable() -> None:
    async with transport_to("http://here:port", first_contact_s=0.0) as transport:
        with pytest.raises(Unreachable):
            await transport.call("GET", "/x")


@pytest.mark.parametrize("path", ["/jobs/..", "/jobs/a%2Fb?wait=1.5", "/jobs/%C3%BC%20+", "/jobs:wait"])
async def test_a_path_is_sent_as_it_was_quoted(path: str) -> None:
    seen: list[str] = []

    async def look(request: web.Request) -> web.StreamResponse:
        seen.append(request.raw_path)
        return web.Response(body=b"{}")

    async with served(look) as url, transport_to(url + "/base/") as transport:
        await transport.call("GET", path)
    assert seen == ["/base" + path]


async def test_no_more_than_a_hundred_calls_are_sent_at_once_and_streams_do_not_count() -> None:
    here = most = 0

    async def slow(request: web.Request) -> web.StreamResponse:
        nonlocal here, most
        if request.path == "/events":
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            await response.write(b"id: 1\ndata: x\n\n")
            await asyncio.sleep(30)
        here += 1
        most = max(most, here)
        await asyncio.sleep(0.05)
        here -= 1
        return web.Response(body=b"{}")

    async with served(slow) as url, transport_to(url) as transport:
        streams = [transport.messages("/events") for _ in range(3)]
        await asyncio.gather(*[anext(stream) for stream in streams])
        await asyncio.gather(*[transport.call("GET", "/x") for _ in range(150)])
    assert 50 < most <= 100


def test_a_trace_goes_along() -> None:
    seen: list[str | None] = []
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    async def look(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers.get("traceparent"))
        return web.Response(body=b"{}")

    async def call() -> None:
        async with served(look) as url, transport_to(url) as transport:
            await transport.call("GET", "/x")
            REQUEST_TRACE.set({"traceparent": parent})
            await transport.call("GET", "/x")

    asyncio.run(call())
    assert seen == [None, parent]


def test_a_cut_connection_is_a_sign_of_life() -> None:
    script = Script(None, None)

    async def call() -> bytes:
        async with served(script.answer) as url, transport_to(url, first_contact_s=0.0) as transport:
            return await transport.call("GET", "/x")

    assert asyncio.run(call()) == b"{}"
