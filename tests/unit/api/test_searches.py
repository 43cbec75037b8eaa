"""Lines that are made while they are read: a part is never taken for the whole."""

from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from regista.api.searches import stream
from regista.errors import HistoryUnavailable, StorageError
from tests.cut_kit import got


async def lines(count: int, error: Exception | None = None) -> AsyncIterator[bytes]:
    """So many lines, and then this."""
    for _ in range(count):
        yield b"{}\n"
    if error is not None:
        raise error


@pytest.mark.parametrize("error", [HistoryUnavailable("away"), StorageError("malformed"), ValueError("x")])
async def test_an_export_that_fails_in_the_middle_is_cut(error: Exception) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return await stream(request, lines(3, error))

    assert await got(handler) == (200, None)


async def test_an_export_that_fails_at_once_is_a_problem() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return await stream(request, lines(0, ValueError("x")))

    status, body = await got(handler)

    assert status == 500
    assert b"internal_error" in (body or b"")


@pytest.mark.parametrize("count", [0, 1, 3])
async def test_all_lines_come_where_nothing_fails(count: int) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return await stream(request, lines(count))

    assert await got(handler) == (200, b"{}\n" * count)
