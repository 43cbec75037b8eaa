"""Link: one connection to the server that all callers share, and that comes back by itself."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from hiredis import pack_command
from redis.asyncio.connection import AbstractConnection, Connection, parse_url
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    ClusterDownError,
    MasterDownError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)

from ...errors import StorageError, StorageUnavailable

log = logging.getLogger("regista.storage")

#: One command: its words; or how to say it, given the name of the server's process.
Words = tuple[bytes | str | int | float, ...]
Command = Words | Callable[[str], Words]
#: What the server says. Nested lists of bytes and whole numbers; an error is raised.
Reply = Any

#: Seconds before the first and at most before each further try to connect.
BACKOFF_S, MAX_BACKOFF_S = 0.05, 1.0
_EXPECTED = "expected a URL like redis://user:password@host:6379/0"
#: How the server begins a refusal that will pass: it starts, has no memory or no disk. The library calls some by name.
_PASSING = ("LOADING", "MASTERDOWN", "MISCONF", "BUSY", "NOREPLICAS", "UNBLOCKED")
_PASSING_KINDS = (ReadOnlyError, OutOfMemoryError, ClusterDownError, MasterDownError, TryAgainError)


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
        "protocol": 2,
        "client_name": name,
    }
    try:
        made: AbstractConnection = kind(**{**settings, **parts})
    except TypeError as error:
        raise StorageError(f"{_EXPECTED}; an option of its query is unknown: {error}") from None
    return made


async def hang_up(connection: AbstractConnection) -> None:
    """Close now. A polite end of TLS, or of what is unsent, waits for a server that may be gone."""
    writer = getattr(connection, "_writer", None)
    if writer is not None:
        writer.transport.abort()
    await connection.disconnect(nowait=True)


class Refused(Exception):
    """The server's own words about a command that it did not carry out."""


class _Line:
    """One open connection: whatever is asked is sent at once, and answered in the same order."""

    def __init__(self, connection: AbstractConnection) -> None:
        self._connection = connection
        self._asked: deque[asyncio.Future[Reply]] = deque()
        self._unsent: list[bytes] = []
        self._sending: asyncio.Task[None] | None = None
        self._reading = asyncio.get_running_loop().create_task(self._read(), name="redis-read")
        self.broken: BaseException | None = None
        #: Names the process of the server: another one has begun anew.
        self.run = ""

    def ask(self, commands: Sequence[Command]) -> list[asyncio.Future[Reply]]:
        """Send these commands with whatever others send in this turn of the loop."""
        loop = asyncio.get_running_loop()
        answers = [loop.create_future() for _ in commands]
        if self.broken is not None:
            raise StorageUnavailable(f"the connection to the store broke: {self.broken}")
        self._asked.extend(answers)
        for command in commands:
            words = command(self.run) if callable(command) else command
            self._unsent.append(pack_command(words))  # type: ignore[arg-type]  # its stub knows one word only
        if self._sending is None:
            self._sending = loop.create_task(self._send(), name="redis-send")
        return answers

    async def _send(self) -> None:
        try:
            while self._unsent:
                unsent, self._unsent = self._unsent, []
                await self._connection.send_packed_command(b"".join(unsent), check_health=False)
            self._sending = None
        except (RedisError, OSError) as error:
            self.cut(error)

    async def _read(self) -> None:
        try:
            while True:
                self._answer(*await self._next())
        except (RedisError, OSError, IndexError) as error:
            self.cut(error)

    async def _next(self) -> tuple[Reply, Exception | None]:
        try:
            return await self._connection.read_response(
                disable_decoding=True, disconnect_on_error=False
            ), None
        except ResponseError as error:
            return None, error

    def _answer(self, reply: Reply, error: Exception | None) -> None:
        waiter = self._asked.popleft()
        if waiter.done():
            return
        if error is not None:
            waiter.set_exception(_translated(error))
            if isinstance(error, ReadOnlyError):
                self.cut(error)  # another server leads now; the name of this one may lead there
        else:
            waiter.set_result(reply)

    def cut(self, reason: BaseException) -> None:
        """Nothing more comes from here: whoever waits does not know how it went."""
        if self.broken is not None:
            return
        self.broken = reason
        asked, self._asked = self._asked, deque()
        for waiter in asked:
            if not waiter.done():
                waiter.set_exception(StorageUnavailable(f"the connection to the store broke: {reason}"))
                waiter.exception()  # seen: whoever gave up waiting is not to be reminded

    async def close(self) -> None:
        self.cut(ConnectionError("it was closed"))
        for task in (self._reading, self._sending):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        await hang_up(self._connection)


def _translated(error: Exception) -> Exception:
    text = str(error)
    if isinstance(error, _PASSING_KINDS) or text.startswith(_PASSING):
        return StorageUnavailable(f"the store cannot answer now: {text}")
    return Refused(text if type(error) is ResponseError else f"{type(error).__name__}: {text}")


class Link:
    """Asks the server. A call that finds it away waits for it a while, and says so with StorageUnavailable.

    After that the link tries again with the next call: an outage is never final.
    """

    def __init__(self, url: str, name: str, patience_s: float) -> None:
        self._url = url
        self._name = name
        self._patience_s = patience_s
        self._line: _Line | None = None
        self._opening = asyncio.Lock()
        self._closed = True
        #: The server was away when it was last asked: that, and its return, are told once each.
        self._away = False

    async def open(self) -> None:
        """Connect now. Wrong credentials are told from a server that is away."""
        self._closed = False
        # Once to connect, which says by itself why it cannot; once for an answer.
        patience_s = 2 * self._patience_s
        try:
            async with asyncio.timeout(patience_s):
                await self._ready_line()
        except TimeoutError:  # somebody takes the connection, and says nothing
            raise StorageUnavailable(f"the store did not answer within {patience_s} s") from None

    async def close(self) -> None:
        """Let go. Twice is fine."""
        self._closed = True
        line, self._line = self._line, None
        if line is not None:
            await line.close()

    async def ask(self, *commands: Command) -> list[Reply]:
        """The answers to these commands, sent together. They may be sent twice when an answer is lost."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self._patience_s
        backoff_s = BACKOFF_S
        while True:
            try:
                async with asyncio.timeout_at(give_up):
                    replies = await self._ask_once(commands)
                self._note(None)
                return replies
            except TimeoutError:
                await self._drop(TimeoutError(f"no answer within {self._patience_s} s"))
                away = StorageUnavailable(f"the store did not answer within {self._patience_s} s")
                self._note(away)
                raise away from None
            except StorageUnavailable as error:
                if loop.time() + backoff_s >= give_up or self._closed:
                    self._note(error)
                    raise
            await asyncio.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, MAX_BACKOFF_S)

    def _note(self, trouble: StorageUnavailable | None) -> None:
        """Say once that the server is away, and once that it is back: every caller is told for itself anyway."""
        if (trouble is not None) == self._away or self._closed:
            return
        self._away = trouble is not None
        if trouble is not None:
            log.warning(
                "%s; requests get 503 until it is back, workers keep what they run",
                trouble,
                extra={"action": "storage_away"},
            )
        else:
            log.warning("the store answers again", extra={"action": "storage_back"})

    async def _ask_once(self, commands: Sequence[Command]) -> list[Reply]:
        line = self._line
        if line is None or line.broken is not None:
            line = await self._ready_line()
        answers = line.ask(commands)
        replies = [await answer for answer in answers] if len(answers) < 2 else await _all(answers)
        return replies

    async def _drop(self, reason: BaseException) -> None:
        """A line that does not answer is worth nothing: answers come in order, so nobody else gets one."""
        line, self._line = self._line, None
        if line is not None:
            line.cut(reason)
            await line.close()

    async def _ready_line(self) -> _Line:
        async with self._opening:
            if self._closed:
                raise StorageUnavailable("the store is closed; `start` opens it")
            if self._line is not None and self._line.broken is None:
                return self._line
            if self._line is not None:
                await self._line.close()
                self._line = None
            self._line = await self._connect()
            return self._line

    async def _connect(self) -> _Line:
        connection = connection_of(self._url, self._name, self._patience_s)
        try:
            await connection.connect()  # type: ignore[no-untyped-call]
        except (AuthenticationError, AuthorizationError, NoPermissionError) as error:
            await hang_up(connection)
            raise StorageError(
                f"the store refused our credentials (user and password of the URL): {error}"
            ) from None
        except (RedisError, OSError) as error:
            await hang_up(connection)
            raise StorageUnavailable(f"the store cannot be reached: {error}") from None
        except BaseException:
            await hang_up(connection)
            raise
        line = _Line(connection)
        try:
            (answer,) = line.ask([("INFO", "server")])
            line.run = info_of(await answer).get("run_id", "")
        except Refused as refused:
            await line.close()
            raise StorageError(
                f"the user of the URL may not call INFO; allow it (+info): {refused}"
            ) from None
        except BaseException:
            await line.close()
            raise
        return line


async def _all(answers: Sequence[asyncio.Future[Reply]]) -> list[Reply]:
    """All answers; the first error, once all have come."""
    await asyncio.wait(answers)
    return [answer.result() for answer in answers]


def info_of(reply: bytes) -> dict[str, str]:
    """What INFO said, by name."""
    lines = reply.decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))
