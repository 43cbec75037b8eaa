"""Answers in HTTP/1.1, as whoever asks reads them: a head, and a body however that is cut. Pure."""

import re
import zlib

from msgspec import Struct

#: How a body ends that says no length: by a last chunk, or with the connection; or nobody can be sure.
CHUNKED, UNTIL_CLOSED, UNCLEAR = -1, -2, -3
#: Bytes of a line between chunks, at most.
_MOST_LINE = 4 * 1024
_STATUS = rb"HTTP/1\.([01]) ([1-9]\d\d)(?![^\s])"
_BEGIN = re.compile(_STATUS)
#: A head whose every line is a name, a colon and a value, and goes on in no other line.
_PLAIN = re.compile(_STATUS + rb"[^\r\n\0]*(?:\r?\n[!#-'*+.^_`|~0-9A-Za-z-]+:[^\r\n\0]*)*\r?")
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})(?:[ \t]*;[^\r\n\0]*)?")
#: What does not belong to a value, at its ends.
_BLANK = b" \t\r"
_SWITCHING, _NO_CONTENT, _NOT_MODIFIED = 101, 204, 304


class BadAnswer(ValueError):
    """What came is no answer in HTTP/1.1."""


class Head(Struct, frozen=True):
    """What is known of an answer before its body."""

    status: int
    #: The bytes of its body, or how that ends.
    length: int
    #: Another request may follow on the same connection.
    keeps: bool
    #: By their names in small letters, with what stands around them; said twice is said in a list.
    fields: dict[bytes, bytes]

    def find(self, name: bytes) -> str | None:
        """What it says by this name, if it does."""
        value = self.fields.get(name)
        return None if value is None else value.strip(_BLANK).decode("latin-1")


def read_head(raw: bytes) -> Head:
    """What the head of an answer says; BadAnswer when it is none."""
    start = plain = _PLAIN.fullmatch(raw)
    if start is None and (start := _BEGIN.match(raw)) is None:
        raise BadAnswer("expected an answer in HTTP/1.1")
    fields: dict[bytes, bytes] = {}
    for line in raw.split(b"\n")[1:]:
        name, _, value = line.partition(b":")
        name = name.lower()
        # Two lengths are none, and of two wishes neither is lost.
        fields[name] = value if name not in fields else fields[name].rstrip(_BLANK) + b"," + value
    status = int(start[2])
    # Where others could see other lines than we do, what they say about the body is not believed.
    length = UNCLEAR if plain is None else _length(status, fields)
    keeps = length >= CHUNKED and start[1] == b"1" and not _closes(fields)
    return Head(status, length, keeps, fields)


def _closes(fields: dict[bytes, bytes]) -> bool:
    wish = fields.get(b"connection")
    return wish is not None and b"close" in wish.lower()


def _length(status: int, fields: dict[bytes, bytes]) -> int:
    """How long the body is, unless that can be understood in two ways."""
    if status == _SWITCHING:
        return UNCLEAR
    length = fields.get(b"content-length")
    if b"transfer-encoding" in fields:
        chunked = length is None and fields[b"transfer-encoding"].strip(_BLANK).lower() == b"chunked"
        return CHUNKED if chunked else UNCLEAR
    if status in (_NO_CONTENT, _NOT_MODIFIED):
        return 0
    if length is None:
        return UNTIL_CLOSED
    length = length.strip(_BLANK)
    return int(length) if length.isdigit() and len(length) < 16 else UNCLEAR


class Body:
    """What has come of a body, and whether that is all. Indifferent to where the bytes were cut."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._pieces: list[bytes] = []
        #: Bytes that have come.
        self.size = 0
        #: All of it is there.
        self.whole = length == 0
        #: Something came that does not belong to it.
        self.overrun = False

    def feed(self, data: bytes) -> None:
        """More has come; BadAnswer where it makes no sense."""
        if self.whole:
            self.overrun = True
        else:
            self.size += len(data)
            self._take(data)

    def _take(self, data: bytes) -> None:
        self._pieces.append(data)
        if 0 <= self._length <= self.size:
            self.whole = True
            self.overrun = self.size > self._length

    def close(self) -> None:
        """Nothing more will come: the end of a body that says none of its own."""
        self.whole = self.whole or self._length == UNTIL_CLOSED

    def content(self) -> bytes:
        """All of it, once it is whole."""
        content = b"".join(self._pieces)
        return content[: self._length] if self.overrun else content


class ChunkedBody(Body):
    """A body in chunks, each with its size before it. What is said about them besides is passed over."""

    def __init__(self) -> None:
        super().__init__(CHUNKED)
        self._came = bytearray()
        #: There is nothing to be read before so many bytes are there.
        self._need = 0
        #: The last chunk has come; only words about the whole may follow.
        self._last = False

    def _take(self, data: bytes) -> None:
        self._came += data
        at = 0
        while not self.whole and len(self._came) >= self._need:
            at = self._step(at)
        del self._came[:at]
        self._need = max(0, self._need - at)
        self.overrun = self.whole and bool(self._came)

    def _step(self, at: int) -> int:
        """Read one line, and the chunk that it announces. Returns how far everything is read."""
        end = self._came.find(b"\r\n", at)
        if end < 0:
            if len(self._came) - at > _MOST_LINE:
                raise BadAnswer("expected the size of a chunk")
            self._need = len(self._came) + 1
            return at
        line = bytes(self._came[at:end])
        if self._last:
            self.whole = not line
            return end + 2
        return self._chunk(at, end + 2, _size(line))

    def _chunk(self, at: int, start: int, size: int) -> int:
        if not size:
            self._last = True
            return start
        stop = start + size
        if len(self._came) < stop + 2:
            self._need = stop + 2
            return at
        if self._came[stop : stop + 2] != b"\r\n":
            raise BadAnswer("expected the end of a chunk")
        self._pieces.append(bytes(self._came[start:stop]))
        return stop + 2

    def content(self) -> bytes:
        return b"".join(self._pieces)


def _size(line: bytes) -> int:
    found = _SIZE.fullmatch(line)
    if found is None:
        raise BadAnswer("expected the size of a chunk")
    return int(found[1], 16)


def body_of(head: Head) -> Body:
    """An empty body, to be fed with what comes after this head."""
    return ChunkedBody() if head.length == CHUNKED else Body(head.length)


def unpacked(head: Head, content: bytes) -> bytes:
    """The content as it was before it was packed; BadAnswer where it was packed in a way that nobody asked for."""
    coding = head.find(b"content-encoding")
    if coding is None or coding.lower() == "identity" or not content:
        return content
    if coding.lower() not in ("gzip", "x-gzip"):
        raise BadAnswer("expected an answer as it is, or packed by gzip")
    reader = zlib.decompressobj(31)
    try:
        plain = reader.decompress(content)
    except zlib.error as error:
        raise BadAnswer("expected an answer packed by gzip") from error
    if not reader.eof or reader.unused_data:
        raise BadAnswer("expected an answer packed by gzip, in one piece")
    return plain
