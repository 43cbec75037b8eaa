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
            return (await transport.call("POST", "/x", {"key": 1})).body

    assert asyncio.run(call()) == b"{}"
    assert script.requests == [("secret", b'{"key":1}')] * 4


def test_what_is_not_safe_to_repeat_is_not_repeated() -> None:
    script = Script(web.Response(status=503, body=STOPPED), None)

    async def call() -> None:
        async with served(script.answer) as url, transport_to(url) as transport:
            with pytest.raises(Exception, match="stops"):
                await transport.call("POST", "/x", {}, again=False)
            with pytest.raises(Unreachable):
                await transport.call("POST", "/x", {}, again=False)

    asyncio.run(call())
    assert len(script.requests) == 2


def test_too_many_requests_are_repeated_after_the_pause_that_was_asked_for() -> None:
    script = Script(web.Response(status=429, headers={"Retry-After": "0.3"}, body=b"{}"))

    async def call() -> float:
        async with served(script.answer) as url, transport_to(url) as transport:
            began = time.monotonic()
            await transport.call("POST", "/x", {}, again=False)
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
                await transport.call("GET", "/x", again=False)  # refused: nobody heard it
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


def test_a_server_that_never_answers_is_given_up(tmp_path: Path) -> None:
    async def silent(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(30)
        return web.Response()

    async def call() -> None:
        async with served(silent) as url, transport_to(url, timeout_s=0.3) as transport:
            with pytest.raises(Unreachable):
                await transport.call("GET", "/x")

    asyncio.run(call())


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
                await transport.call("POST", "/x", {}, waits_s=25.0)
            return time.monotonic() - began

    assert asyncio.run(call()) < 2


def test_a_cut_connection_is_a_sign_of_life() -> None:
    script = Script(None, None)

    async def call() -> bytes:
        async with served(script.answer) as url, transport_to(url, first_contact_s=0.0) as transport:
            return (await transport.call("GET", "/x")).body

    assert asyncio.run(call()) == b"{}"
