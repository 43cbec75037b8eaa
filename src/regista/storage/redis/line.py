"""Line: one open connection to the server. Whatever is asked is sent at once, and answered in the same order."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from hiredis import HiredisError, Reader, ReplyError, pack_command
from redis.asyncio.connection import AbstractConnection, Connection, parse_url

from ...errors import StorageError, StorageUnavailable

#: One command: its words; or how to say it, given the name of the server's process.
Words = tuple[bytes | str | int | float, ...]
Command = Words | Callable[[str], Words]
#: What the server says. Nested lists of bytes and whole numbers; an error is raised.
Reply = Any

_EXPECTED = "expected a URL like redis://user:password@host:6379/0"
#: How the server begins a refusal that will pass: it starts, follows another one, has no memory or no disk.
_PASSING = (
    "LOADING", "MASTERDOWN", "MISCONF", "BUSY", "NOREPLICAS", "UNBLOCKED", "READONLY", "OOM", "CLUSTERDOWN", "TRYAGAIN",
)  # fmt: skip
#: What the reader says when the answer is not whole yet. None would be an answer.
_UNFINISHED = object()
#: A line is looked at so often in the time that silence may last.
_LOOKS = 4
#: Bytes that may be under way after we have handed them over: more than that no system keeps for us.
_ON_ITS_WAY = 4 << 20
#: Bytes a second that a network carries at the very least.
_LEAST_RATE = 1 << 20
#: However much arrives meanwhile, nobody waits longer than so many times the silence that is borne.
_LONGEST = 15


def connection_of(url: str, name: str, timeout_s: float) -> AbstractConnection:
    """A connection that is not open yet: address, TLS, user and database are the URL's."""
    try:
        parts: dict[str, Any] = dict(parse_url(url))
    except ValueError as error:
        raise StorageError(f"{_EXPECTED}: {error}") from None
    place = urlsplit(url).path.strip("/")
    if not url.startswith("unix:") and place and not place.isdigit():
        # The library would take database 0: another store than the one that was meant.
        raise StorageError(f"{_EXPECTED}, with the number of a database at the end; got {place!r}")
    kind = parts.pop("connection_class", Connection)
    settings = {
        "socket_connect_timeout": timeout_s,
        "socket_timeout": None,
        "client_name": name,
    }
    try:
        # Whatever the URL says: in the other protocol answers have other shapes, and come unasked.
        made: AbstractConnection = kind(**{**settings, **parts, "protocol": 2})
    except TypeError as error:
        raise StorageError(f"{_EXPECTED}; an option of its query is unknown: {error}") from None
    return made


async def hang_up(connection: AbstractConnection) -> None:
    """Close now. A polite end of TLS, or of what is unsent, waits for a server that may be gone."""
    writer = getattr(connection, "_writer", None)
    if writer is not None:
        writer.transport.abort()
    await connection.disconnect(nowait=True)


class Asked:
    """Who waits for the answers to some commands, and since when."""

    __slots__ = ("answers", "at", "commands", "refused", "waiter")

    def __init__(self, waiter: asyncio.Future[list[Reply]], commands: int, at: float) -> None:
        self.waiter = waiter
        self.commands = commands
        self.at = at
        self.answers: list[Reply] = []
        #: The first refusal among the answers.
        self.refused: ReplyError | None = None

    def settle(self) -> None:
        """All have come: hand them over, or the first refusal among them."""
        if self.waiter.done():
            return
        if self.refused is None:
            self.waiter.set_result(self.answers)
        else:
            self.waiter.set_exception(_translated(str(self.refused)))


class ServerRefusal(Exception):
    """The server's own words about a command that it did not carry out."""

    def of(self, *names: str) -> StorageError:
        """What that means to whoever had asked for these, while the store runs."""
        told = f"the store refused {' or '.join(map(repr, names))}: {self}"
        # We had that right at the start: somebody has taken it away, and can give it back.
        return StorageUnavailable(told) if str(self).startswith("NOPERM") else StorageError(told)


class Line(asyncio.Protocol):
    """Sends commands and hands out the answers; cut for good when the server is silent for `patience_s`.

    Silence is what counts, not the time that an answer takes: eighty megabytes over a slow network are no
    outage as long as they keep coming (or going).
    """

    def __init__(self, connection: AbstractConnection, patience_s: float) -> None:
        # The library has opened it and said who we are. It would read answer by answer, with a task for each:
        # from here on what comes is ours.
        assert connection._writer is not None, "it must be connected"
        self._connection = connection
        self._patience_s = patience_s
        self._loop = asyncio.get_running_loop()
        self._reader = Reader(notEnoughData=_UNFINISHED)
        self._asked: deque[Asked] = deque()
        self._unsent: list[bytes] = []
        #: The network takes no more for now; what waits is sent when it does.
        self._full = False
        self._watch: asyncio.TimerHandle | None = None
        #: When something last moved, either way, and how many bytes were sent since the server last said something.
        self._moved, self._sent = 0.0, 0
        #: Bytes that were ever sent, and those of them that the network had not taken at the last look, and had.
        self._written, self._left, self._taken = 0, 0, 0
        self.broken: BaseException | None = None
        #: Names the process of the server: another one has begun anew.
        self.run = ""
        self._transport = connection._writer.transport
        self._transport.set_protocol(self)

    def ask(self, commands: Sequence[Command]) -> asyncio.Future[list[Reply]]:
        """Send these commands with whatever others send in this turn of the loop; done when all are answered."""
        if self.broken is not None:
            raise _lost(self.broken)
        waiter: asyncio.Future[list[Reply]] = self._loop.create_future()
        if not commands:
            waiter.set_result([])
            return waiter
        packed = [
            pack_command(command(self.run) if callable(command) else command)  # type: ignore[arg-type]  # its stub knows one word only
            for command in commands
        ]
        self._asked.append(Asked(waiter, len(packed), self._loop.time()))
        if not self._unsent:
            self._loop.call_soon(self._send)
        self._unsent += packed
        if self._watch is None:
            self._watch = self._loop.call_later(self._patience_s / _LOOKS, self._look)
        return waiter

    def cut(self, reason: BaseException) -> None:
        """Nothing more comes from here: whoever waits does not know how it went."""
        if self.broken is not None:
            return
        self.broken = reason
        self._transport.abort()  # what is still unsent was given up: it must not arrive later
        asked, self._asked = self._asked, deque()
        for waiter in [one.waiter for one in asked]:
            if not waiter.done():
                waiter.set_exception(_lost(reason))
                waiter.exception()  # seen: whoever gave up waiting is not to be reminded

    async def close(self) -> None:
        """Cut it, and let go of the connection."""
        self.cut(ConnectionError("it was closed"))
        if self._watch is not None:
            self._watch.cancel()
        await hang_up(self._connection)

    def _look(self) -> None:
        """Whether anything still moves, as long as somebody waits."""
        self._watch = None
        if not self._asked or self.broken is not None:
            self._left = 0
            return
        now, asked_at = self._loop.time(), self._asked[0].at
        left = self._transport.get_write_buffer_size()
        if self._left and self._written - left > self._taken:
            self._moved = now
        self._left, self._taken = left, self._written - left
        # What the network has taken may still be on its way: nobody can see how far that has come.
        on_its_way_s = min(self._sent, _ON_ITS_WAY) / _LEAST_RATE
        patient_until = max(self._moved, asked_at) + self._patience_s + on_its_way_s
        left_s = min(patient_until, asked_at + _LONGEST * self._patience_s) - now
        if left_s <= 0:
            self.cut(TimeoutError(f"the store did not answer within {self._patience_s} s"))
        else:
            self._watch = self._loop.call_later(min(left_s, self._patience_s / _LOOKS), self._look)

    def _send(self) -> None:
        if self._unsent and not self._full and self.broken is None:
            unsent, self._unsent = b"".join(self._unsent), []
            self._sent += len(unsent)
            self._written += len(unsent)
            self._transport.write(unsent)

    # -- what the connection tells ---------------------------------------------------------------

    def pause_writing(self) -> None:
        """More is on its way than the network takes."""
        self._full = True

    def resume_writing(self) -> None:
        """The network has caught up."""
        self._full = False
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        """It was closed, by whomever."""
        self.cut(exc or ConnectionError("the server closed it"))

    def data_received(self, data: bytes) -> None:
        """Answers, or a part of one."""
        self._moved, self._sent = self._loop.time(), 0
        try:
            self._reader.feed(data)
            while self.broken is None and (reply := self._reader.gets()) is not _UNFINISHED:
                self._answer(reply)
        except HiredisError as error:
            self.cut(error)

    def _answer(self, reply: Reply) -> None:
        if not self._asked:
            self.cut(ConnectionError(f"the server said what nobody had asked for: {reply!r:.80}"))
            return
        asked = self._asked[0]
        asked.answers.append(reply)
        refused = type(reply) is ReplyError
        if refused and asked.refused is None:
            asked.refused = reply
        if len(asked.answers) == asked.commands:
            self._asked.popleft()
            asked.settle()
        if refused and str(reply).startswith("READONLY"):
            self.cut(reply)  # another server leads now; the name of this one may lead there


def _lost(reason: BaseException) -> StorageUnavailable:
    silent = isinstance(reason, TimeoutError)
    return StorageUnavailable(str(reason) if silent else f"the connection to the store broke: {reason}")


def _translated(text: str) -> Exception:
    if text.startswith(_PASSING):
        return StorageUnavailable(f"the store cannot answer now: {text}")
    return ServerRefusal(text)
