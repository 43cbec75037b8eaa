"""Connection: one HTTP/1.1 connection to a server, for one request at a time. Kept: those that wait for the next."""

import asyncio
import errno
import re
from collections.abc import Hashable, Mapping
from typing import cast

from .http_answer import UNCLEAR, BadAnswer, Body, Head, body_of, read_head

#: Bytes of a head, and of a body that nobody waits for on a connection that shall be used again, at most.
_MOST_HEAD, _MOST_BODY = 16 * 1024, 64 * 1024
#: Words before the answer (100 Continue and the like) that are passed over.
_MOST_WORDS = 5
_HEAD_END = re.compile(rb"\n\r?\n")
_SWITCHING = 101


class Cut(ConnectionResetError):
    """The connection was closed before the answer was there."""

    def __init__(self, os_error: Exception | None = None) -> None:
        super().__init__(errno.ECONNRESET, "the connection was closed")
        #: What the system, or TLS, has said about it.
        self.os_error = os_error


def header_lines(headers: Mapping[str, str]) -> str:
    """Headers as they are sent; ValueError where one would be more than one."""
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if lines.count("\n") != len(headers) or lines.count("\r") != len(headers):
        raise ValueError("expected headers of one line each")
    return lines


class Connection(asyncio.Protocol):
    """One request at a time. It is `free` for the next when one whole answer has come, and nothing besides."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[Head] | None = None
        #: The body is waited for, too.
        self._whole = False
        self._head: Head | None = None
        self._body: Body | None = None
        #: What has come of a head.
        self._came = b""
        #: When the answer must be there, and when that is looked at; all by the loop's time.
        self._due = self._look_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        #: Kept by whoever keeps the connection.
        self.idle_since = 0.0

    async def ask(self, request: bytes, timeout_s: float, whole: bool = False) -> Head:
        """Send a request, return the head of the answer; `whole`: not before its body is there (see `content`).

        TimeoutError, BadAnswer or ConnectionError where there is none; the connection is of no use then.
        """
        if self._transport is None or self._transport.is_closing():
            raise Cut
        if self._came:
            raise BadAnswer("expected an answer in HTTP/1.1, got words before anything was asked")
        self._head = self._body = None
        self._whole = whole
        self._waiter = self._loop.create_future()
        self._watch(timeout_s)
        self._transport.write(request)
        try:
            return await self._waiter
        finally:
            self._waiter = None

    def content(self) -> bytes:
        """The body of the answer, where it was waited for."""
        return b"" if self._body is None else self._body.content()

    @property
    def silent(self) -> bool:
        """Nothing has come since the last request."""
        return self._head is None and not self._came

    @property
    def free(self) -> bool:
        """It can be used for another request: the last one has left, too, and is not read so late."""
        head, body, transport = self._head, self._body, self._transport
        if transport is None or transport.is_closing() or head is None or body is None or not head.keeps:
            return False
        return body.whole and not body.overrun and not transport.get_write_buffer_size()

    @property
    def may_be_free(self) -> bool:
        """It is free, or will be as soon as all of a short answer is there."""
        head = self._head
        return self._transport is not None and head is not None and head.keeps and head.length <= _MOST_BODY

    def close(self) -> None:
        """Break it off. Twice is fine."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    # -- called by the loop ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            if self._body is None:
                self._read(data)
            else:
                self._body.feed(data)
        except BadAnswer as error:
            self._fail(error)
            self.close()
        else:
            self._settle()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self.close()
        if error is None and self._body is not None:
            self._body.close()
            self._settle()
        self._fail(Cut(error))

    # -- reading ---------------------------------------------------------------------------------

    def _read(self, data: bytes) -> None:
        """Read the head of the answer, if it is there."""
        start = max(0, len(self._came) - 2)  # no end of it lies before
        self._came = self._came + data if self._came else data
        if self._waiter is None or self._waiter.done():
            return
        for _ in range(_MOST_WORDS):
            end = _HEAD_END.search(self._came, start)
            if (len(self._came) if end is None else end.start()) > _MOST_HEAD:
                raise BadAnswer("expected the head of an answer in 16 KiB")
            if end is None:
                return
            head, self._came, start = read_head(self._came[: end.start()]), self._came[end.end() :], 0
            if head.status >= 200 or head.status == _SWITCHING:
                self._begin(head)
                return
        raise BadAnswer("expected an answer, got words before it without end")

    def _begin(self, head: Head) -> None:
        """What comes from here on is the body."""
        if self._whole and head.length == UNCLEAR:
            raise BadAnswer("expected an answer whose length is clear")
        rest, self._came = self._came, b""
        self._head, self._body = head, body_of(head)
        if rest:
            self._body.feed(rest)

    def _settle(self) -> None:
        """Tell whoever waits, once what it waits for is there."""
        head, body, waiter = self._head, self._body, self._waiter
        if head is None or body is None:
            return
        if waiter is not None and not waiter.done() and (body.whole or not self._whole):
            waiter.set_result(head)
        elif not self._whole and body.size > _MOST_BODY:
            self.close()

    def _fail(self, error: Exception) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)

    # -- time ------------------------------------------------------------------------------------

    def _watch(self, timeout_s: float) -> None:
        """Fail when the time is up. One timer does for many requests: it looks, and is mostly told to look again later."""
        self._due = self._loop.time() + timeout_s
        if self._timer is not None:
            if self._look_at <= self._due:
                return
            self._timer.cancel()
        self._look_at = self._due
        self._timer = self._loop.call_later(timeout_s, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._waiter is None:
            return
        left_s = self._due - self._loop.time()
        if left_s <= 0:
            self._fail(TimeoutError())
        else:
            self._watch(left_s)


class Kept:
    """Connections that wait for the next request, and the places that they lead to. Of several the last used is taken."""

    def __init__(self, most: int, for_s: float) -> None:
        self._most = most
        self._for_s = for_s
        #: In the order in which they were used.
        self._waiting: list[tuple[Hashable, Connection]] = []
        self._sweep: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def find(self, place: Hashable) -> Connection | None:
        """A connection to this place that is open and free. It is not kept any more."""
        for number in range(len(self._waiting) - 1, -1, -1):
            there, connection = self._waiting[number]
            if there == place:
                del self._waiting[number]
                if connection.free:
                    return connection
                connection.close()
        return None

    def keep(self, place: Hashable, connection: Connection) -> None:
        """Keep it for the next request to the same place."""
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._waiting.append((place, connection))
        if len(self._waiting) > self._most:
            self._waiting.pop(0)[1].close()
        if self._sweep is None:
            self._sweep = loop.call_later(self._for_s, self._close_old)

    def close(self) -> None:
        """Close them all. Twice is fine."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        waiting, self._waiting = self._waiting, []
        for _, connection in waiting:
            connection.close()

    def _close_old(self) -> None:
        """Close what nobody has needed for long."""
        loop = asyncio.get_running_loop()
        while self._waiting and self._waiting[0][1].idle_since <= loop.time() - self._for_s:
            self._waiting.pop(0)[1].close()
        self._sweep = loop.call_later(self._for_s, self._close_old) if self._waiting else None
