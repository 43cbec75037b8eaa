"""The socket under a stream, with aiohttp's own client at the other end."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import WSMessage, WSMsgType, web

from regista.api import stream_socket
from regista.api.stream_socket import StreamSocket

CLOSED = (WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED)


class Server:
    """Hears what `at_once` wants at once, and everything else in its turn, one each time that `goes_on` is set."""

    def __init__(self, at_once: Callable[[Any], bool] = lambda data: True) -> None:
        self.at_once = at_once
        self.heard: list[tuple[str, Any]] = []
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.socket: StreamSocket
        self.url = ""

    def _hear(self, message: WSMessage) -> WSMessage | None:
        if message.type is not WSMsgType.BINARY or not self.at_once(message.data):
            return message
        self.heard.append(("now", message.data))
        return None

    async def serve(self, request: web.Request) -> web.StreamResponse:
        self.socket = StreamSocket(max_msg_size=4 * 2**20, compress=False, writer_limit=0)
        await self.socket.prepare(request)
        while (message := await self.socket.next(self._hear)).type not in CLOSED:
            self.heard.append(("later", message.data))
            await self.goes_on.wait()
        return self.socket

    async def until(self, count: int) -> list[tuple[str, Any]]:
        async with asyncio.timeout(2):
            while len(self.heard) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        return self.heard


@asynccontextmanager
async def talking(server: Server) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    app = web.Application()
    app.router.add_get("/", server.serve)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        async with aiohttp.ClientSession() as http:
            socket = await http.ws_connect(f"http://127.0.0.1:{runner.addresses[0][1]}/", max_msg_size=0)
            yield socket
            await socket.close()
    finally:
        await runner.cleanup()


async def test_messages_are_heard_where_they_are_read() -> None:
    server = Server()
    async with talking(server) as client:
        for word in (b"one", b"two"):
            await client.send_bytes(word)
        assert await server.until(2) == [("now", b"one"), ("now", b"two")]


async def test_what_follows_one_that_takes_its_time_stands_in_line_behind_it() -> None:
    server = Server(lambda data: data != b"slow")
    async with talking(server) as client:
        server.goes_on.clear()
        for word in (b"one", b"slow", b"two", b"three"):
            await client.send_bytes(word)
        await server.until(2)
        await asyncio.sleep(0.02)
        assert server.heard == [("now", b"one"), ("later", b"slow")]
        server.goes_on.set()
        assert [word for _, word in await server.until(4)] == [b"one", b"slow", b"two", b"three"]
        await client.send_bytes(b"four")
        assert (await server.until(5))[-1] == ("now", b"four")


async def test_what_is_put_in_line_is_heard_in_its_turn_and_after_the_close_not_at_all() -> None:
    server = Server()
    async with talking(server) as client:
        await client.send_bytes(b"one")
        await server.until(1)
        assert server.socket.hear_later("rest")
        assert (await server.until(2))[1] == ("later", "rest")
        await client.close()
        async with asyncio.timeout(2):
            while not server.socket.closed:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        assert not server.socket.hear_later("late")


async def test_a_ping_between_messages_is_answered_and_the_next_message_is_heard() -> None:
    server = Server()
    async with talking(server) as client:
        await client.ping(b"x")
        await client.send_bytes(b"one")
        await client.send_bytes(b"two")
        assert [word for _, word in await server.until(2)] == [b"one", b"two"]


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 1000, 65_535])
async def test_a_message_of_any_small_size_leaves_at_once_and_arrives_whole(size: int) -> None:
    server = Server()
    async with talking(server) as client:
        await client.send_bytes(b"x")
        await server.until(1)
        message = bytes(index % 251 for index in range(size))
        assert server.socket.say(message)
        assert await client.receive_bytes(timeout=2) == message


async def test_a_large_message_is_not_sent_at_once() -> None:
    server = Server()
    async with talking(server) as client:
        await client.send_bytes(b"x")
        await server.until(1)
        assert not server.socket.say(bytes(65_536))
        assert server.socket.say(b"small")
        assert await client.receive_bytes(timeout=2) == b"small"


async def test_nothing_more_is_sent_at_once_to_somebody_who_does_not_read() -> None:
    server = Server()
    async with talking(server) as client:
        await client.send_bytes(b"x")
        await server.until(1)
        connection = client.get_extra_info("socket")
        assert connection is not None
        transport = client._response.connection.transport  # type: ignore[union-attr]
        assert transport is not None
        transport.pause_reading()
        for _ in range(10_000):
            if not server.socket.say(bytes(60_000)):
                break
            await asyncio.sleep(0)
        else:
            pytest.fail("600 MB were taken")
        transport.resume_reading()
        async with asyncio.timeout(5):
            while not server.socket.say(b"again"):
                await client.receive()


async def test_a_closed_socket_says_so() -> None:
    server = Server()
    async with talking(server) as client:
        await client.send_bytes(b"x")
        await server.until(1)
        await asyncio.gather(server.socket.close(), client.receive())
        with pytest.raises(ConnectionError):
            server.socket.say(b"late")


async def test_with_an_aiohttp_that_we_do_not_know_everything_stands_in_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream_socket, "IS_KNOWN", False)

    server = Server()
    async with talking(server) as client:
        await client.send_bytes(b"one")
        await client.send_bytes(b"two")
        assert await server.until(2) == [("later", b"one"), ("later", b"two")]
        assert not server.socket.say(b"x")
        assert not server.socket.hear_later("rest")


async def test_however_much_stands_in_line_nothing_overtakes() -> None:
    server = Server(lambda data: data[:4] != b"slow")
    async with talking(server) as client:
        server.goes_on.clear()
        words = [b"slow", *(b"%4d" % number + bytes(20_000) for number in range(150))]
        sending = asyncio.ensure_future(asyncio.gather(*(client.send_bytes(word) for word in words)))
        await asyncio.sleep(0.05)
        server.goes_on.set()
        await sending
        assert [word[:4] for _, word in await server.until(len(words))] == [word[:4] for word in words]
        await client.send_bytes(b"last")
        assert (await server.until(len(words) + 1))[-1] == ("now", b"last")
