"""Link: one connection to the server that all callers share, and that comes back by itself."""

import asyncio
import logging

from redis.exceptions import AuthenticationError, AuthorizationError, NoPermissionError, RedisError

from ...errors import StorageError, StorageUnavailable
from .line import Command, Line, Reply, ServerRefusal, connection_of, hang_up

log = logging.getLogger("regista.storage")

#: Seconds before the first and at most before each further try of a call. However many calls there are, none of them
#: tries to connect sooner than the first after somebody else has failed to.
BACKOFF_S, MAX_BACKOFF_S = 0.05, 1.0
_CLOSED = "the store is closed; `start` opens it"


class Link:
    """Asks the server. A call that finds it away waits for it a while, and says so with StorageUnavailable.

    After that the link tries again with the next call: an outage is never final.
    """

    def __init__(self, url: str, name: str, patience_s: float) -> None:
        self._url = url
        self._name = name
        self._patience_s = patience_s
        self._line: Line | None = None
        self._lines = 0
        self._opening = asyncio.Lock()
        self._closed = True
        #: When connecting last failed, and why: whoever comes right after that is told the same.
        self._failed_at, self._failure = float("-inf"), ""
        #: The server was away when it was last asked: that, and its return, are told once each.
        self._away = False

    @property
    def number(self) -> int:
        """Of the connection that stands now, the first being 1; 0 when none does, as far as is known here."""
        line = self._line
        return 0 if line is None or line.broken is not None else self._lines

    async def open(self) -> None:
        """Connect now. Wrong credentials are told from a server that is away."""
        self._closed, self._failed_at = False, float("-inf")
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
                line = self._line
                if line is None or line.broken is not None:
                    line = await self._line_until(give_up)
                # A line that falls silent cuts itself, and says so to all who wait.
                replies = await line.ask(commands)
                if self._away:
                    self._note(None)
                return replies
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

    async def _line_until(self, give_up: float) -> Line:
        """A line that is open, made by then."""
        try:
            async with asyncio.timeout_at(give_up):
                return await self._ready_line()
        except TimeoutError:
            raise StorageUnavailable(f"the store did not answer within {self._patience_s} s") from None
        except StorageUnavailable:
            raise
        except StorageError as error:
            # It worked at the start: somebody has changed it, and can change it back.
            raise StorageUnavailable(str(error)) from None

    async def _ready_line(self) -> Line:
        async with self._opening:
            if self._closed:
                raise StorageUnavailable(_CLOSED)
            if self._line is not None and self._line.broken is None:
                return self._line
            if self._line is not None:
                await self._line.close()
                self._line = None
            if asyncio.get_running_loop().time() < self._failed_at + BACKOFF_S:
                raise StorageUnavailable(self._failure)
            self._line = await self._new_line()
            self._lines += 1
            return self._line

    async def _new_line(self) -> Line:
        """A line that is open, unless the link was closed meanwhile."""
        try:
            line = await self._connect()
        except StorageError as error:
            self._failed_at, self._failure = asyncio.get_running_loop().time(), str(error)
            raise
        if self._closed:
            await line.close()
            raise StorageUnavailable(_CLOSED)
        return line

    async def _connect(self) -> Line:
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
        line = Line(connection, self._patience_s)
        try:
            (answer,) = await line.ask([("INFO", "server")])
            line.run = info_of(answer).get("run_id", "")
        except ServerRefusal as refused:
            await line.close()
            raise StorageError(
                f"the user of the URL may not call INFO; allow it (+info): {refused}"
            ) from None
        except BaseException:
            await line.close()
            raise
        return line


def info_of(reply: Reply) -> dict[str, str]:
    """What INFO said, by name."""
    if not isinstance(reply, bytes):
        raise StorageError(f"expected a Redis 7 or newer, or Valkey; INFO was answered with {reply!r:.80}")
    lines = reply.decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))
