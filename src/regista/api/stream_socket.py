"""The socket under a stream: what comes is heard where it is read, and what is said leaves at once.

aiohttp puts every message into a queue, wakes the task that reads it, and sends from a coroutine: two turns of the loop
and two wake-ups for each word of a worker. With thousands of workers that say mostly the same, that is most of the work.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from aiohttp import WSMessage, WSMsgType, web
from aiohttp._websocket.reader import WebSocketDataQueue, WebSocketReader
from aiohttp.http import WebSocketWriter

from .insides import IS_KNOWN

#: Bytes that may wait in the queue; twice as many stop the reading. As aiohttp has it.
_LIMIT = 2**18
#: A larger message is not sent at once: somebody shall wait until the other side has read it.
_LARGE = 2**16 - 1
#: How a whole binary message begins that is as long as that, and one that is longer, before two bytes with its length.
_HEADS = [bytes([0x82, size]) for size in range(126)]
_HEAD = bytes([0x82, 126])
_BINARY = WSMsgType.BINARY

#: Hears a message at once: None, or the message that has to be heard in its turn, by whoever reads.
Hear = Callable[[Any], Any]


class Ear(WebSocketDataQueue):
    """The queue of a socket, for messages that cannot be heard at once."""

    __slots__ = ("hear",)

    def __init__(self, protocol: Any, limit: int, *, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(protocol, limit, loop=loop)
        #: Whoever hears messages as they come; None while one before them is still in somebody's hands.
        self.hear: Hear | None = None

    def feed_data(self, data: Any, size: int) -> None:
        """A message has come. `hear` raises nothing."""
        if self.hear is not None:
            data = self.hear(data)
            if data is None:
                return
            self.hear = None
        super().feed_data(data, size)

    def put(self, data: Any) -> None:
        """Let the reader have this next, after what waits already."""
        self.hear = None
        super().feed_data(WSMessage(_BINARY, data, ""), 0)


class StreamSocket(web.WebSocketResponse):
    """A WebSocket whose messages are heard in the order in which they come, most of them without a queue."""

    _ear: Ear | None = None

    def _post_start(self, request: web.BaseRequest, protocol: str | None, writer: WebSocketWriter) -> None:
        if not IS_KNOWN or self._loop is None:
            super()._post_start(request, protocol, writer)
            return
        # As aiohttp does it, but for the queue, and for pings of our own, which a stream has no use for.
        self._ws_protocol, self._writer = protocol, writer
        self._reader = self._ear = Ear(request.protocol, _LIMIT, loop=self._loop)
        self._parser = WebSocketReader(
            self._ear, self._max_msg_size, compress=bool(self._compress), decode_text=True
        )
        request.protocol.set_parser(self._parser)
        request.protocol.keep_alive(False)

    async def next(self, hear: Hear) -> WSMessage:
        """The next message that is not heard at once. While it is waited for, `hear` gets every one that comes."""
        ear = self._ear
        if ear is None or ear._buffer:  # what stands in line was there before what is read meanwhile
            return await self.receive()
        ear.hear = hear
        try:
            return await self.receive()
        finally:
            ear.hear = None

    def say(self, message: bytes) -> bool:
        """Send a binary message at once. ConnectionError when the socket is closed.

        False, and nothing is sent, while the other side is behind with reading, or would be.
        """
        writer, size = self._writer, len(message)
        if self._ear is None or writer is None or size > _LARGE or writer.protocol.writing_paused:
            return False
        if self._closed or writer.transport.is_closing():
            raise ConnectionResetError("the socket is closed")
        head = _HEADS[size] if size < len(_HEADS) else _HEAD + size.to_bytes(2, "big")
        writer.transport.write(head + message)
        return True

    def hear_later(self, data: Any) -> bool:
        """Let this be heard in its turn, as a message is. False where that cannot be done."""
        if self._ear is None or self._closed:
            return False
        self._ear.put(data)
        return True
