"""A stretch of network between two programs that can be cut, stalled and closed, and that can swallow what it carries."""

import asyncio
from typing import Self

#: What a gateway says that does not let WebSockets through.
NO_UPGRADE = b"HTTP/1.1 426 Upgrade Required\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Proxy:
    """Passes bytes from a port of its own to another, as long as nothing is wrong with it."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._lines: set[asyncio.Task[None]] = set()
        self._open = asyncio.Event()
        self._open.set()
        #: Answer a request for a WebSocket with an error.
        self.refuse_upgrades = False
        #: Close new connections at once.
        self.refuse_all = False
        #: Swallow what the orchestrator says.
        self.deaf = False
        #: Cut a connection after so many bytes of what the orchestrator says; once, then None again.
        self.cut_after: int | None = None
        #: Let the upgrade through, and nothing after it.
        self.swallow_frames = False
        self.upgrades = 0
        #: Seconds that every 64 KiB take, in both directions.
        self.slowness_s = 0.0

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await asyncio.gather(*self._lines, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def will_cut(self) -> bool:
        """The cut that `cut_after` orders has not happened yet."""
        return self.cut_after is not None

    def cut(self) -> None:
        """Every connection that is there breaks, without a goodbye."""
        for line in self._lines:
            line.cancel()

    def close_the_line(self) -> None:
        """Nobody gets through, neither the old connections nor new ones."""
        self.refuse_all = True
        self.cut()

    def open_the_line(self) -> None:
        self.refuse_all = False

    def stall(self) -> None:
        """Let nothing through, and close nothing."""
        self._open.clear()

    def go_on(self) -> None:
        self._open.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = asyncio.current_task()
        assert line is not None
        self._lines.add(line)
        try:
            if not self.refuse_all:
                await self._carry(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # a broken line is what this is for
        finally:
            self._lines.discard(line)
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there = await asyncio.open_connection("127.0.0.1", self._target)
        ways = [
            asyncio.ensure_future(self._up(reader, there, writer)),
            asyncio.ensure_future(self._down(there_reader, writer)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            there.transport.abort()  # first: a second cut may end the waiting below
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _up(
        self, reader: asyncio.StreamReader, there: asyncio.StreamWriter, back: asyncio.StreamWriter
    ) -> None:
        upgraded = False
        while data := await reader.read(65536):
            await asyncio.sleep(self.slowness_s)
            await self._open.wait()
            if upgraded and self.swallow_frames:
                continue
            if b"upgrade: websocket" in data.lower():
                self.upgrades += 1
                upgraded = True
                if self.refuse_upgrades:
                    back.write(NO_UPGRADE)
                    await back.drain()
                    return
            there.write(data)
            await there.drain()

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await asyncio.sleep(self.slowness_s)
            await self._open.wait()
            if self.deaf:
                continue
            if self.cut_after is not None:
                writer.write(data[: self.cut_after])
                await writer.drain()
                self.cut_after = None
                return
            writer.write(data)
            await writer.drain()
