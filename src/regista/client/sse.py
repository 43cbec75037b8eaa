"""Server-sent events: bytes in, (id, data) out. Pure, and indifferent to where the bytes were cut."""

from collections.abc import Iterator
from typing import NamedTuple

#: Longest pause before a reconnect that a server can ask for.
MAX_RETRY_S = 10.0


class Message(NamedTuple):
    """One event of a stream."""

    #: What to resume from; the last one seen, when the message brought none of its own.
    id: str
    kind: str
    data: str


class EventStreamParser:
    """Collects lines into messages, as the standard says; comments and unknown fields are passed over."""

    def __init__(self, last_id: str = "") -> None:
        self.last_id = last_id
        #: Seconds that the server asks its readers to wait before they connect again; 0 if it did not say.
        self.retry_s = 0.0
        self._rest = b""
        self._kind = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> Iterator[Message]:
        """The messages that this chunk completes."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            message = self._line(line.removesuffix(b"\r").decode("utf-8", "replace"))
            if message is not None:
                yield message

    def _line(self, line: str) -> Message | None:
        if not line:
            return self._flush()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "data":
                self._data.append(value)
            case "id":
                self.last_id = value
            case "event":
                self._kind = value
            case "retry" if value.isascii() and value.isdigit():
                self.retry_s = min(int(value[:9]) / 1000, MAX_RETRY_S)
        return None

    def restart(self) -> None:
        """Drop the incomplete message of a connection that ended; `last_id` and `retry_s` stay."""
        self._rest, self._data, self._kind = b"", [], ""

    def _flush(self) -> Message | None:
        data, kind = "\n".join(self._data), self._kind or "message"
        self._data, self._kind = [], ""
        return Message(self.last_id, kind, data) if data else None
