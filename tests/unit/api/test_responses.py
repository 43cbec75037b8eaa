"""Answers that are made while they are read come to their end, or are cut."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from regista.api.responses import abort_on_failure, stream_lines, write
from regista.errors import HistoryUnavailable, StorageError
from tests.cut_kit import got


@pytest.mark.parametrize("error", [None, HistoryUnavailable("away"), ValueError("x"), TimeoutError()])
async def test_an_answer_that_fails_in_the_middle_is_cut(error: Exception | None) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        with abort_on_failure(request):
            await answer.prepare(request)
            await write(answer, b"x" * 300_000, 5)
            if error is not None:
                raise error
            await answer.write_eof()
        return answer

    assert await got(handler) == (200, b"x" * 300_000 if error is None else None)


async def test_a_reader_that_reads_nothing_is_let_go() -> None:
    ended = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        with abort_on_failure(request):
            await answer.prepare(request)
            for _ in range(100):
                await write(answer, b"x" * 1_000_000, 0.2)
        ended.set()
        return answer

    app = web.Application()
    app.router.add_get("/", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    _, writer = await asyncio.open_connection(*runner.addresses[0], limit=1024)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")

    async with asyncio.timeout(5):
        await ended.wait()

    writer.transport.abort()
    await runner.cleanup()


async def lines(count: int, error: Exception | None = None) -> AsyncIterator[bytes]:
    """So many lines, and then this."""
    for _ in range(count):
        yield b"{}\n"
    if error is not None:
        raise error


@pytest.mark.parametrize("error", [HistoryUnavailable("away"), StorageError("malformed"), ValueError("x")])
async def test_an_export_that_fails_in_the_middle_is_cut(error: Exception) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return await stream_lines(request, lines(3, error))

    assert await got(handler) == (200, None)


async def test_an_export_that_fails_at_once_is_a_problem() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return await stream_lines(request, lines(0, ValueError("x")))

    status, body = await got(handler)

    assert status == 500
    assert b"internal_error" in (body or b"")


@pytest.mark.parametrize("count", [0, 1, 3])
async def test_all_lines_come_where_nothing_fails(count: int) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return await stream_lines(request, lines(count))

    assert await got(handler) == (200, b"{}\n" * count)
