"""Heads: whoever asks again with the same head is understood as before.

A client sends the same head with nearly every request over its connection, but for the length of the body. What aiohttp's parser
made of it the first time is remembered, so nothing is parsed here: a head that differs in any other byte, or a body that
has not come with it to its last byte, goes to the parser.
"""

from collections import deque

from aiohttp import hdrs
from aiohttp.base_protocol import BaseProtocol
from aiohttp.helpers import TimerNoop
from aiohttp.http import HttpVersion11, RawRequestMessage
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader

#: Heads that are remembered of one connection, and how large each may be: it is memory of ours, whoever sends them.
_MOST, _MOST_BYTES, _MOST_LINES = 4, 2048, 32
_END, _LINE = b"\r\n\r\n", b"\r\n"
#: At the beginning of a line it is a header, and never part of another one's value.
_LENGTH = b"\r\nContent-Length: "
#: Digits of a length: more than any body that comes in one piece.
_MOST_DIGITS = 9
_NO_TIMER = TimerNoop()

#: What the parser gives for a request.
Request = tuple[RawRequestMessage, StreamReader]


class Whole(StreamReader):
    """A body that came in one piece with its head. To be read as any other, or taken as it is."""

    __slots__ = ()

    def __init__(self, body: bytes, protocol: BaseProtocol) -> None:
        # All that `StreamReader` sets, as it is after the end was fed.
        self._protocol = protocol
        self._loop = protocol._loop
        self._low_water = self._high_water = self._low_water_chunks = self._high_water_chunks = len(body)
        self._size = self.total_bytes = len(body)
        self._cursor = self._buffer_offset = self._eof_counter = 0
        self._http_chunk_splits = self._waiter = self._eof_waiter = self._exception = None
        self._buffer = deque((body,))
        self._eof = True
        self._timer = _NO_TIMER
        self._eof_callbacks = []
        self.total_compressed_bytes = None

    def take(self) -> bytes | None:
        """All of it, unless somebody has read some."""
        if self._size != self.total_bytes or self._exception is not None:
            return None
        self._size, self._cursor = 0, self.total_bytes
        return self._buffer.popleft()


class Heads:
    """The last heads of one connection."""

    __slots__ = ("_known", "_left")

    def __init__(self) -> None:
        #: A head without its length → the length that it told last, and what the parser made of that.
        self._known: dict[bytes, tuple[bytes, RawRequestMessage]] = {}
        #: Bytes that the parser still expects of a body; None: nobody knows where the next request begins.
        self._left: int | None = 0

    def find(self, data: bytes, protocol: BaseProtocol) -> Request | None:
        """The request that this is, if it is one from its first byte to its last; None: ask the parser."""
        if self._left != 0 or not self._known:
            return None
        key, told, begin = _parted(data)
        known = self._known.get(key)
        if known is None or not _is_length(told) or begin + int(told) != len(data):
            return None
        before, message = known
        if told != before:
            message = _of_length(message, told.decode())
            self._known[key] = told, message
        return message, Whole(data[begin:], protocol) if begin < len(data) else EMPTY_PAYLOAD

    def parsed(self, data: bytes, messages: int, message: object) -> None:
        """The parser was fed with this, and has found so many messages in it, of which this is the last."""
        if self._left == 0 and messages == 1 and type(message) is RawRequestMessage:
            self._left = self._learn(data, message)
        elif self._left and not messages and len(data) <= self._left:
            self._left -= len(data)
        elif data:
            self._left = None

    def _learn(self, data: bytes, message: RawRequestMessage) -> int | None:
        """Remember a head; how much of its body is still to come."""
        key, told, begin = _parted(data)
        if not _is_plain(message, told) or not _is_length(told) or len(data) > begin + int(told):
            return None
        if len(key) <= _MOST_BYTES and len(message.raw_headers) <= _MOST_LINES:
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[key] = told, message
        return begin + int(told) - len(data)


def _parted(data: bytes) -> tuple[bytes, bytes, int]:
    """A head without the length of its body, that length, and where the body begins. With no whole head, nothing is known."""
    end = data.find(_END)
    begin = end + len(_END)
    at = data.find(_LENGTH, 0, end)
    if at < 0:
        return data[:begin], b"0", begin
    at += len(_LENGTH)
    stop = data.find(_LINE, at)
    return data[:at] + data[stop:begin], data[at:stop], begin


def _is_length(told: bytes) -> bool:
    """It can be understood in one way only."""
    return told.isdigit() and len(told) <= _MOST_DIGITS and (told[0] != 0x30 or told == b"0")


def _is_plain(message: RawRequestMessage, told: bytes) -> bool:
    """A request like most: the connection goes on after it, the length of its body is all that one has to know."""
    headers = message.headers
    return (
        message.version == HttpVersion11
        and message.method != hdrs.METH_CONNECT
        and not (message.should_close or message.upgrade or message.chunked or message.compression)
        and hdrs.EXPECT not in headers
        and hdrs.CONTENT_ENCODING not in headers
        and hdrs.TRANSFER_ENCODING not in headers
        and headers.getall(hdrs.CONTENT_LENGTH, ["0"]) == [told.decode(errors="replace")]
    )


def _of_length(message: RawRequestMessage, told: str) -> RawRequestMessage:
    """The same request with a body of another length."""
    headers = message.headers.copy()
    headers[hdrs.CONTENT_LENGTH] = told
    name = hdrs.CONTENT_LENGTH.encode().lower()
    raw = tuple(
        (each, told.encode() if each.lower() == name else value) for each, value in message.raw_headers
    )
    return message._replace(headers=type(message.headers)(headers), raw_headers=raw)
