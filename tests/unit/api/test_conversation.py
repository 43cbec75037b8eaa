"""Conversations: one request after the other, whatever came of the one before."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop
from aiohttp import web

from regista.api import conversation
from regista.api.app import handler_args
from regista.api.connection import Runner
from regista.api.stage import STAGE
from tests.acceptance.serving import serving
from tests.support import one_task

Ask = Callable[[bytes], Coroutine[Any, Any, bytes]]


async def whose(request: web.Request) -> web.Response:
    """The task that answers."""
    task = asyncio.current_task()
    assert task is not None
    return web.Response(text=task.get_name())


async def size(request: web.Request) -> web.Response:
    return web.Response(text=str(len(await request.read())))


async def moved(request: web.Request) -> web.Response:
    raise web.HTTPFound("/whose")


async def slow(request: web.Request) -> web.Response:
    raise TimeoutError


async def broken(request: web.Request) -> web.Response:
    raise ValueError("broken")


def with_a_connection(body: Callable[[Ask], Coroutine[Any, Any, None]]) -> None:
    """Run this with one connection to the handlers above; what it sends is answered up to the end of the body."""

    async def main() -> None:
        async with serving(one_task()) as house:
            app = web.Application(client_max_size=2**24)
            app[STAGE] = house.director.app[STAGE]
            for handler in (whose, size, moved, slow, broken):
                app.router.add_route("*", f"/{handler.__name__}", handler)
            runner = Runner(app, handler_args(app[STAGE].config), 1.0)
            await runner.setup()
            try:
                await web.TCPSite(runner, "127.0.0.1", 0).start()
                reader, writer = await asyncio.open_connection(*runner.addresses[0][:2])

                async def ask(sent: bytes) -> bytes:
                    writer.write(sent)
                    head = await reader.readuntil(b"\r\n\r\n")
                    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r")[0])
                    return head.split()[1] + b" " + await reader.readexactly(length)

                try:
                    await body(ask)
                finally:
                    writer.close()
                    await asyncio.gather(writer.wait_closed(), return_exceptions=True)
            finally:
                await runner.cleanup()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


def post(path: str, body: bytes) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def test_all_requests_of_a_connection_are_answered_in_its_one_task() -> None:
    async def body(ask: Ask) -> None:
        assert len({await ask(get("/whose")) for _ in range(3)}) == 1

    with_a_connection(body)


def test_an_aiohttp_that_we_do_not_know_goes_its_own_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "IS_KNOWN", False)

    async def body(ask: Ask) -> None:
        assert len({await ask(get("/whose")) for _ in range(3)}) > 1
        assert await ask(post("/size", b"x" * 3_000_000)) == b"200 3000000"

    with_a_connection(body)


def test_requests_that_come_together_are_answered_in_their_order() -> None:
    async def body(ask: Ask) -> None:
        sent = b"".join(post("/size", b"x" * n) for n in range(1, 200))
        assert await ask(sent) == b"200 1"
        assert [await ask(b"") for _ in range(2, 200)] == [f"200 {n}".encode() for n in range(2, 200)]

    with_a_connection(body)


def test_many_requests_after_a_body_that_came_late_are_all_answered() -> None:
    """aiohttp's parser counts such a body's request for ever, and would keep the last of the others back."""

    async def body(ask: Ask) -> None:
        late = post("/size", b"hello")
        assert await ask(get("/size") + late[:-5]) == b"200 0"
        await asyncio.sleep(0.05)
        assert await ask(b"hello") == b"200 5"
        async with asyncio.timeout(5):
            for many in (get("/size"), late):
                assert (await ask(many * 40)).startswith(b"200")
                assert [(await ask(b"")).split()[0] for _ in range(39)] == [b"200"] * 39

    with_a_connection(body)


def test_requests_that_come_together_leave_others_their_turn() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async def body(ask: Ask) -> None:
        counting = asyncio.get_running_loop().create_task(count())
        await ask(get("/whose") * 200)
        for _ in range(199):
            await ask(b"")
        counting.cancel()

    with_a_connection(body)
    assert turns >= 200


def test_a_body_that_is_larger_than_what_is_held_at_a_time_comes_through() -> None:
    async def body(ask: Ask) -> None:
        for _ in range(3):
            assert await ask(post("/size", b"x" * 5_000_000) + get("/whose")) == b"200 5000000"
            assert (await ask(b"")).startswith(b"200")

    with_a_connection(body)


def test_what_a_handler_raises_is_answered_and_ends_nothing_but_itself() -> None:
    async def body(ask: Ask) -> None:
        assert (await ask(get("/moved"))).startswith(b"302")
        assert (await ask(get("/whose"))).startswith(b"200")
        assert (await ask(get("/slow"))).startswith(b"504")

    async def last(ask: Ask) -> None:
        assert (await ask(get("/broken"))).startswith(b"500")

    with_a_connection(body)
    with_a_connection(last)


def test_the_rest_of_a_body_that_nobody_wants_is_taken_and_the_next_request_answered() -> None:
    async def body(ask: Ask) -> None:
        begun = post("/whose", b"x" * 100_000)
        assert (await ask(begun[:1000])).startswith(b"200")
        assert await ask(begun[1000:] + post("/size", b"abc")) == b"200 3"

    with_a_connection(body)
