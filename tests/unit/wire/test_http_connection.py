"""Connection: one request at a time, against servers that say these very bytes. More of it in test_http_line.py."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from regista.wire.http_answer import BadAnswer
from regista.wire.http_connection import Connection, Cut, Kept, header_lines

REQUEST = b"GET / HTTP/1.1\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@asynccontextmanager
async def connected(
    *answers: tuple[bytes, ...], pause_s: float = 0.01, linger: bool = False
) -> AsyncIterator[Connection]:
    """A connection whose other end gives these answers, each in its pieces, and then hangs up, or waits for that."""

    served = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            for answer in answers:
                await reader.readuntil(b"\r\n\r\n")
                for piece in answer:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(pause_s)
            if linger:
                await reader.read()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        served.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, asyncio.timeout(8):
        address = server.sockets[0].getsockname()[:2]
        _, connection = await asyncio.get_running_loop().create_connection(Connection, *address)
        yield connection
        connection.close()
        connection.close()  # twice is fine
        await served.wait()


@pytest.mark.parametrize(
    "pieces",
    [
        (OK,),
        (b"HTTP/1.1 200 OK\r\nContent-", b"Length: 2\r\n\r", b"\n", b"o", b"k"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", OK),
        (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n", b"1\r\nk\r\n0\r\n", b"\r\n"),
    ],
)
async def test_a_whole_answer_is_waited_for_however_it_is_cut(pieces: tuple[bytes, ...]) -> None:
    async with connected(pieces, pieces) as connection:
        for _ in range(2):
            head = await connection.ask(REQUEST, 5.0, whole=True)
            assert (head.status, connection.content(), connection.free) == (200, b"ok", True)


async def test_the_head_alone_is_there_before_the_body() -> None:
    async with connected((OK[:-2], b"ok")) as connection:
        assert (await connection.ask(REQUEST, 5.0)).status == 200
        assert (connection.free, connection.may_be_free) == (False, True)
        await asyncio.sleep(0.05)
        assert connection.content() == b"ok"


async def test_an_answer_that_ends_with_the_connection_is_read_to_that_end() -> None:
    async with connected((b"HTTP/1.1 200 OK\r\n\r\n", b"o", b"k")) as connection:
        await connection.ask(REQUEST, 5.0, whole=True)
        assert (connection.content(), connection.free) == (b"ok", False)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200", b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok"])
async def test_half_an_answer_is_none(answer: bytes) -> None:
    async with connected((answer,)) as connection:
        with pytest.raises(Cut):
            await connection.ask(REQUEST, 5.0, whole=True)
        assert connection.silent is not bool(answer)
        assert not connection.free
        with pytest.raises(Cut):
            await connection.ask(REQUEST, 5.0, whole=True)


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
        b"HTTP/1.1 101 Fine\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 20_000,
        b"HTTP/1.1 102 Wait\r\n\r\n" * 10,
    ],
)
async def test_what_is_no_answer_is_said_at_once_and_ends_the_connection(answer: bytes) -> None:
    async with connected((answer, OK), pause_s=0.2) as connection:
        with pytest.raises(BadAnswer):
            await connection.ask(REQUEST, 5.0, whole=True)
        assert not connection.free


async def test_the_time_is_up_for_each_request_by_itself() -> None:
    """One timer does for all of them, whether the next must be quicker or may be slower."""
    async with connected((OK,), (OK,), (), pause_s=0.15, linger=True) as connection:
        await connection.ask(REQUEST, 30.0, whole=True)
        await connection.ask(REQUEST, 0.4, whole=True)
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            await connection.ask(REQUEST, 0.1)
        assert 0.05 < time.monotonic() - began < 3
        assert not connection.free


async def test_a_slow_answer_may_come_after_the_time_of_an_earlier_request() -> None:
    slow = (b"HTTP/1.1 200 OK\r\n", b"Content-Length: 2\r\n", b"\r\n", b"ok")
    async with connected((OK,), slow, pause_s=0.1) as connection:
        await connection.ask(REQUEST, 0.15, whole=True)
        assert (await connection.ask(REQUEST, 5.0, whole=True)).status == 200


async def test_a_request_that_is_given_up_leaves_no_connection_to_be_used() -> None:
    async with connected((OK[:-1],), linger=True) as connection:
        asking = asyncio.ensure_future(connection.ask(REQUEST, 5.0, whole=True))
        await asyncio.sleep(0.1)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert not connection.free


async def test_who_speaks_before_it_is_asked_is_no_server() -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        address = server.sockets[0].getsockname()[:2]
        _, connection = await asyncio.get_running_loop().create_connection(Connection, *address)
        connection.data_received(b"220 mail.example.com")
        with pytest.raises(BadAnswer, match="before anything was asked"):
            await connection.ask(b"GET / HTTP/1.1\r\n\r\n", 1.0)
        connection.close()
        await asyncio.sleep(0)


async def test_what_comes_after_the_answer_spoils_the_connection() -> None:
    async with connected((OK, b"HTTP/1.1 410 Gone\r\n\r\n"), pause_s=0.05) as connection:
        await connection.ask(REQUEST, 5.0, whole=True)
        assert connection.free
        await asyncio.sleep(0.08)
        assert not connection.free


async def test_a_connection_that_is_being_closed_is_not_free_though_nobody_was_told_yet() -> None:
    """What is written on it now would be thrown away."""
    async with connected((OK,), linger=True) as connection:
        await connection.ask(REQUEST, 5.0, whole=True)
        assert connection._transport is not None
        before = connection.free
        connection._transport.close()
        assert (before, connection.free) == (True, False)
        with pytest.raises(Cut):
            await connection.ask(REQUEST, 5.0, whole=True)


async def test_a_connection_that_was_closed_or_spoilt_is_not_found() -> None:
    kept = Kept(most=2, for_s=5.0)
    async with connected((OK,)) as connection:
        await connection.ask(REQUEST, 5.0, whole=True)
        kept.keep("here", connection)
        assert kept.find("there") is None
        assert kept.find("here") is connection
        assert kept.find("here") is None
        kept.keep("here", connection)
        await asyncio.sleep(0.1)  # it is hung up
        assert kept.find("here") is None
        assert len(kept) == 0
    kept.close()
    kept.close()


def test_a_header_is_one_line() -> None:
    assert header_lines({"a": "1", "b": "2"}) == "a: 1\r\nb: 2\r\n"
    for value in ("1\r\nX: y", "1\n", "1\r"):
        with pytest.raises(ValueError, match="one line each"):
            header_lines({"a": value})
