"""What `Answer` sends is what aiohttp's own answer would send, byte by byte."""

import asyncio
import re
from typing import Any

import pytest
from aiohttp import web

from regista.api.answers import Answer, whole
from tests.ports import free_port

Facts = dict[str, Any]

PLAIN: Facts = {"body": b'{"a":1}', "content_type": "application/json"}


async def sent(kind: type[web.Response], facts: Facts, request: bytes, cookie: bool, hooked: bool) -> bytes:
    """All that comes over a connection which is closed after one answer."""

    async def handler(_: web.Request) -> web.Response:
        answer = kind(**facts)
        if cookie:
            answer.set_cookie("a", "b")
        return answer

    async def hook(_: web.Request, answer: web.StreamResponse) -> None:
        answer.headers["X-Hook"] = answer.headers["Content-Length"]

    app = web.Application()
    app.router.add_route("*", "/", handler)
    if hooked:
        app.on_response_prepare.append(hook)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    said = await reader.read()
    writer.close()
    await writer.wait_closed()
    await runner.cleanup()
    return re.sub(rb"Date: [^\r]+", b"Date: now", said)


def both(facts: Facts, request: bytes, cookie: bool = False, hooked: bool = False) -> tuple[bytes, bytes]:
    async def body() -> tuple[bytes, bytes]:
        return (
            await sent(Answer, facts, request, cookie, hooked),
            await sent(web.Response, facts, request, cookie, hooked),
        )

    return asyncio.run(body())


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize(
    "facts",
    [
        PLAIN,
        PLAIN | {"status": 404, "headers": {"X-A": "1", "Retry-After": "2"}},
        {"body": b""},
        {"body": b"unnamed"},
        {"text": "hello"},
        {"status": 204},
        {"status": 304, "body": b"x"},
        {"body": b"x", "headers": {"Date": "then", "Server": "mine", "Connection": "close"}},
    ],
)
def test_an_answer_is_sent_as_aiohttp_would(method: str, version: str, facts: Facts) -> None:
    request = f"{method} / HTTP/{version}\r\nHost: x\r\nConnection: close\r\n\r\n".encode()

    ours, theirs = both(facts, request)

    assert ours.startswith(b"HTTP/")
    assert ours == theirs


def test_a_connection_that_stays_open_carries_one_answer_after_the_other() -> None:
    one = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    last = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

    ours, theirs = both(PLAIN, one + one + last)

    assert ours.count(b'{"a":1}') == 3
    assert ours == theirs


def test_cookies_are_set() -> None:
    ours, theirs = both(PLAIN, b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", cookie=True)

    assert b"Set-Cookie: a=b" in ours
    assert ours == theirs


def test_an_application_around_ours_may_look_at_every_answer_before_it_leaves() -> None:
    ours, theirs = both(PLAIN, b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", hooked=True)

    assert b"X-Hook: 7" in ours
    assert ours == theirs


def test_an_answer_that_is_made_the_short_way_has_all_that_the_long_way_gives_it() -> None:
    short = whole(b"{}", 404, {"Content-Type": "application/json"})
    long = Answer(body=b"{}", status=404, headers={"Content-Type": "application/json"})

    assert {**long.__dict__, **short.__dict__} == long.__dict__
    assert (short.status, short.reason, short.body, short.content_type, short.content_length) == (
        404, "Not Found", b"{}", "application/json", 2,
    )  # fmt: skip
