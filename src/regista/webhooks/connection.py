"""Connection: one HTTP/1.1 connection to a receiver, of whose answers nothing is read but the head."""

import asyncio
import re
from typing import cast

from msgspec import Struct

#: Bytes of a head, and of what follows it on a connection that shall be used again, at most.
_MOST_HEAD, _MOST_BODY = 16 * 1024, 64 * 1024
#: Words before the answer (100 Continue and the like) that are passed over.
_MOST_WORDS = 5
_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-9]\d\d)(?: |$)")
#: A head whose every line is a name, a colon and a value, and goes on in no other line.
_PLAIN = re.compile(rb"[^\r\n]*(?:\r?\n[!#-'*+.^_`|~0-9A-Za-z-]+:[^\r\n\0]*)*\r?")
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,8})\r\n")
#: How a body ends that says no length: by a last chunk, or with the connection.
_CHUNKED, _WITH_CONNECTION = -1, -2
_SWITCHING, _NO_CONTENT, _NOT_MODIFIED = 101, 204, 304


class BadAnswer(ValueError):
    """What came is no answer in HTTP/1.1."""


class Head(Struct, frozen=True, gc=False):
    """What is known of an answer before its body."""

    status: int
    #: The bytes of its body, or how that ends.
    body: int
    #: Seconds or a date, as the receiver has written them.
    retry_after: str | None = None


def read_head(raw: bytes) -> Head:
    """What the head of an answer says; BadAnswer when it is none."""
    first, *lines = raw.split(b"\n")
    start = _STATUS.match(first.rstrip())
    if start is None:
        raise BadAnswer("expected an answer in HTTP/1.1")
    fields: dict[bytes, bytes] = {}
    for line in lines:
        name, _, value = line.partition(b":")
        name, value = name.lower(), value.strip(b" \t\r")
        # Said twice is said in a list: two lengths are none, and of two wishes neither is lost.
        fields[name] = fields[name] + b"," + value if name in fields else value
    status, told = int(start[2]), fields.get(b"retry-after")
    # Where others could see other lines than we do, what they say about the body is not believed.
    clear = start[1] == b"1" and _PLAIN.fullmatch(raw) is not None
    body = _body(status, fields) if clear else _WITH_CONNECTION
    return Head(status, body, None if told is None else told.decode("latin-1"))


def _body(status: int, fields: dict[bytes, bytes]) -> int:
    """How long the body is. Whatever can be understood in two ways ends with the connection, at the latest."""
    if status == _SWITCHING or b"close" in fields.get(b"connection", b"").lower():
        return _WITH_CONNECTION
    length = fields.get(b"content-length")
    if b"transfer-encoding" in fields:
        chunked = length is None and fields[b"transfer-encoding"].lower() == b"chunked"
        return _CHUNKED if chunked else _WITH_CONNECTION
    if status in (_NO_CONTENT, _NOT_MODIFIED):
        return 0
    return int(length) if length is not None and length.isdigit() and len(length) < 12 else _WITH_CONNECTION


def is_whole(head: Head, body: bytes) -> bool:
    """What came is all of the body, and nothing besides."""
    if head.body == _CHUNKED:
        return _has_last_chunk(body)
    return head.body == len(body)


def _has_last_chunk(body: bytes) -> bool:
    """These are chunks up to the last one. One with words of its own (trailers, extensions) counts as none."""
    at = 0
    while (line := _CHUNK.match(body, at)) is not None:
        size = int(line[1], 16)
        at = line.end() + size + 2
        if body[at - 2 : at] != b"\r\n":
            return False
        if not size:
            return at == len(body)
    return False


class Connection(asyncio.Protocol):
    """One request at a time. It is `free` for the next when one whole answer has come, and nothing besides."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[Head] | None = None
        self._head: Head | None = None
        #: What has come of the head, and after it of the body.
        self._came = b""
        #: By the loop's time; kept by whoever keeps the connection.
        self.idle_since = 0.0

    async def ask(self, request: bytes, timeout_s: float) -> Head:
        """Send a request, return the head of the answer.

        TimeoutError, BadAnswer or ConnectionError where there is none; the connection is of no use then.
        """
        if self._transport is None:
            raise ConnectionResetError("the connection was closed")
        if self._head is None and self._came:
            raise BadAnswer("expected an answer in HTTP/1.1, got words before anything was asked")
        loop = asyncio.get_running_loop()
        self._head, self._came = None, b""
        self._waiter = loop.create_future()
        timer = loop.call_later(timeout_s, self._fail, TimeoutError())
        self._transport.write(request)
        try:
            return await self._waiter
        finally:
            timer.cancel()
            self._waiter = None

    @property
    def silent(self) -> bool:
        """Nothing has come since the last request."""
        return self._head is None and not self._came

    @property
    def free(self) -> bool:
        """It can be used for another request: the last one has left, too, and is not read so late."""
        head, transport = self._head, self._transport
        if transport is None or head is None or transport.get_write_buffer_size():
            return False
        return is_whole(head, self._came)

    @property
    def may_be_free(self) -> bool:
        """It is free, or will be as soon as all of a short answer is there."""
        head = self._head
        return self._transport is not None and head is not None and _CHUNKED <= head.body <= _MOST_BODY

    def close(self) -> None:
        """Break it off. Twice is fine."""
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    # -- called by the loop ----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        before = len(self._came)
        self._came = self._came + data if before else data
        if self._head is not None:
            if len(self._came) > _MOST_BODY:
                self.close()
        elif self._waiter is not None and not self._waiter.done():
            try:
                self._read(self._waiter, max(0, before - 3))
            except BadAnswer as error:
                self._waiter.set_exception(error)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._fail(ConnectionResetError("the connection was closed"))

    def _read(self, waiter: "asyncio.Future[Head]", start: int) -> None:
        """Read the head of the answer, if it is there. No end of it lies before `start`."""
        for _ in range(_MOST_WORDS):
            end = _HEAD_END.search(self._came, start)
            if (len(self._came) if end is None else end.start()) > _MOST_HEAD:
                raise BadAnswer("expected the head of an answer in 16 KiB")
            if end is None:
                return
            head, self._came, start = read_head(self._came[: end.start()]), self._came[end.end() :], 0
            if head.status >= 200 or head.status == _SWITCHING:
                self._head = head
                waiter.set_result(head)
                return
        raise BadAnswer("expected an answer, got words before it without end")

    def _fail(self, error: Exception) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)
