"""The timers of one connection, with a transport and a server protocol that only record."""

import asyncio
from typing import Any

import pytest
from aiohttp import StreamReader
from aiohttp.test_utils import make_mocked_request

from regista.api.connection_guard import ConnectionGuard, ConnectionGuards

TIMEOUT_S = 0.05


class RecordingTransport(asyncio.Transport):
    """A connection whose write buffer has the size that the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.aborted = False
        self.closed = False
        self.unread = 0

    def abort(self) -> None:
        self.aborted = True

    def close(self) -> None:
        self.closed = True

    def get_write_buffer_size(self) -> int:
        return self.unread


class RecordingProtocol(asyncio.Protocol):
    """The server's end of a connection."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        self.events.append(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost")


class Connection:
    """A guarded connection."""

    def __init__(self) -> None:
        self.guards = ConnectionGuards(TIMEOUT_S)
        self.guards.unread_timeout_s = TIMEOUT_S
        self.inner = RecordingProtocol()
        self.transport = RecordingTransport()
        made = self.guards.wrap(lambda: self.inner)()
        assert isinstance(made, ConnectionGuard)
        self.guard = made

    def open(self) -> None:
        self.guard.connection_made(self.transport)

    async def is_aborted(self) -> bool:
        await asyncio.sleep(3 * TIMEOUT_S)
        return self.transport.aborted


def empty_body() -> StreamReader:
    return make_mocked_request("GET", "/").content


def unfinished_body() -> StreamReader:
    return StreamReader(make_mocked_request("POST", "/").protocol, 2**16)


async def test_connection_that_sends_no_request_is_aborted() -> None:
    connection = Connection()
    connection.open()
    assert await connection.is_aborted()


async def test_connection_that_sends_its_headers_slowly_is_aborted() -> None:
    connection = Connection()
    connection.open()
    for _ in range(6):
        connection.guard.data_received(b"x")
        await asyncio.sleep(TIMEOUT_S / 5)
    assert await connection.is_aborted()


async def test_request_may_take_longer_than_its_headers() -> None:
    connection = Connection()
    connection.open()
    connection.guard.request_started(empty_body())
    assert not await connection.is_aborted()


async def test_connection_may_be_idle_after_a_request() -> None:
    connection = Connection()
    connection.open()
    connection.guard.request_started(empty_body())
    connection.guard.request_finished()
    assert not await connection.is_aborted()


async def test_second_request_must_arrive_in_time() -> None:
    connection = Connection()
    connection.open()
    connection.guard.request_started(empty_body())
    connection.guard.request_finished()
    connection.guard.data_received(b"GET /")
    assert await connection.is_aborted()


async def test_rest_of_a_body_begins_no_request() -> None:
    connection = Connection()
    connection.open()
    connection.guard.request_started(unfinished_body())
    connection.guard.request_finished()
    connection.guard.data_received(b"the rest")
    assert not await connection.is_aborted()


async def test_pipelined_request_waits_for_the_response_before_it() -> None:
    connection = Connection()
    connection.open()
    connection.guard.request_started(empty_body())
    connection.transport.unread = 1000
    connection.guard.request_finished()
    connection.guard.data_received(b"GET / HTTP/1.1\r\n\r\n")
    assert not await connection.is_aborted()
    connection.transport.unread = 0
    assert await connection.is_aborted()


@pytest.mark.parametrize("reads", [False, True])
async def test_client_that_reads_nothing_of_its_response_is_aborted(reads: bool) -> None:
    connection = Connection()
    connection.open()
    connection.guard.request_started(empty_body())
    connection.transport.unread = 1000
    connection.guard.pause_writing()
    for _ in range(6):
        connection.transport.unread -= reads
        await asyncio.sleep(TIMEOUT_S / 2)
    assert connection.transport.aborted is not reads


async def test_connection_that_opens_while_the_server_stops_is_closed_and_not_served() -> None:
    connection = Connection()
    connection.guards.closing = True
    connection.open()
    connection.guard.data_received(b"GET / HTTP/1.1\r\n\r\n")
    connection.guard.connection_lost(None)
    assert connection.transport.closed
    assert connection.inner.events == []


async def test_closed_connection_has_no_timers_left() -> None:
    connection = Connection()
    connection.open()
    connection.guard.pause_writing()
    connection.guard.connection_lost(None)
    assert not await connection.is_aborted()
    assert connection.inner.events == ["made", "lost"]
