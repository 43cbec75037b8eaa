"""What goes wrong becomes a problem, unless an answer was begun: then the connection is cut."""

import pytest
from aiohttp import web

from regista.errors import FileMissing, PayloadUnavailable
from tests.cut_kit import got


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (FileMissing("a"), 404, b"file_not_found"),
        (PayloadUnavailable("away"), 503, b"payload"),
        (web.HTTPNotFound(), 404, b"not_found"),
        (ValueError("x"), 500, b"internal_error"),
    ],
)
async def test_what_fails_before_the_answer_is_a_problem(error: Exception, status: int, code: bytes) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        raise error

    told, body = await got(handler)

    assert told == status
    assert body is not None
    assert code in body


@pytest.mark.parametrize("error", [PayloadUnavailable("away"), ValueError("x"), web.HTTPNotFound()])
async def test_an_answer_that_was_begun_is_never_followed_by_a_second_one(error: Exception) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        answer.content_length = 100_000  # long enough for a problem to be taken for a part of it
        await answer.prepare(request)
        await answer.write(b"x" * 99_000)
        raise error

    assert await got(handler) == (200, None)


async def test_a_refusal_below_400_is_passed_on() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        raise web.HTTPNotModified

    assert await got(handler) == (304, b"")
