"""HintSubscriber: hears the hints of the other instances, over one connection that comes back by itself."""

import asyncio
import logging
from collections.abc import Callable, Sequence

import msgspec
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError

from ..base import Hint, HintKind
from .decode import hints_from
from .line import connection_of, hang_up
from .link import BACKOFF_S, MAX_BACKOFF_S

log = logging.getLogger("regista.storage")

#: Without a word for so long, the server is asked whether it is still there, in seconds.
QUIET_S = 10.0
#: What may have been missed while nobody listened. Whoever waits for one job or worker looks again by itself.
LOOK_AGAIN = tuple(map(Hint, (HintKind.READY, HintKind.OUTBOX, HintKind.DEADLINE, HintKind.MESSAGE)))

_decode = msgspec.msgpack.Decoder(tuple[str, list[str]]).decode


class HintSubscriber:
    """Calls `tell` with what others publish. Reconnects for ever, and then says that anything may be new."""

    def __init__(
        self, url: str, channel: str, origin: str, tell: Callable[[Sequence[Hint]], None], timeout_s: float
    ) -> None:
        self._url = url
        self._channel = channel
        self._name = origin
        self._tell = tell
        self._timeout_s = timeout_s
        self._task: asyncio.Task[None] | None = None
        self._subscribed = asyncio.Event()
        #: Why the last connection ended.
        self._trouble = ""

    @property
    def listens(self) -> bool:
        """Whether the subscription stands, as far as is known here."""
        return self._subscribed.is_set()

    @property
    def origin(self) -> str:
        """Our name, for what is published; empty while nobody listens here.

        The server publishes what we do only if there are others to hear it: it must know whether we are one of those
        who listen.
        """
        return self._name if self.listens else ""

    async def start(self) -> None:
        """Begin to listen; returns when the subscription stands, or does not come within the timeout."""
        if self._task is None:
            self._subscribed.clear()
            self._task = asyncio.get_running_loop().create_task(self._run(), name="redis-crier")
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._subscribed.wait()
        except TimeoutError:
            log.warning(
                "no hints from other instances yet; trying on: %s",
                self._trouble or "no answer",
                extra={"action": "storage_hints"},
            )

    async def stop(self) -> None:
        """Listen no more. Twice is fine."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self._subscribed.clear()

    async def _run(self) -> None:
        backoff_s = BACKOFF_S
        while True:
            try:
                await self._listen()
            except Exception as error:  # the loop's outermost turn: hints may be lost, but not for good
                self._trouble = str(error)
                expected = isinstance(error, RedisError | OSError)
                # Once for each outage: it may last, and the calls that fail say so too.
                level = logging.WARNING if self._subscribed.is_set() or not expected else logging.DEBUG
                log.log(
                    level,
                    "hints from other instances stopped; trying until they come again: %s",
                    error,
                    exc_info=not expected,
                    extra={"action": "storage_hints"},
                )
            backoff_s = BACKOFF_S if self._subscribed.is_set() else min(2 * backoff_s, MAX_BACKOFF_S)
            self._subscribed.clear()
            await asyncio.sleep(backoff_s)

    async def _listen(self) -> None:
        connection = connection_of(self._url, f"hints-{self._name}", self._timeout_s)
        try:
            await self._subscribe(connection)
            while True:
                said = await self._next(connection, QUIET_S)
                if said is None:
                    await connection.send_command("PING")
                    said = await self._next(connection, self._timeout_s)
                if said is None:
                    raise ConnectionError("no sign of life")
                if said[0] == b"message":
                    self._hear(said[2])
        finally:
            await hang_up(connection)

    async def _subscribe(self, connection: AbstractConnection) -> None:
        # Once to connect, once for the answers: the library waits for those for ever.
        patience_s = 2 * self._timeout_s
        try:
            async with asyncio.timeout(patience_s):
                await connection.connect()  # type: ignore[no-untyped-call]
                await connection.send_command("SUBSCRIBE", self._channel)
                said = await self._next(connection, patience_s)
        except TimeoutError:
            said = None
        if said is None:
            raise ConnectionError(f"no answer within {patience_s} s")
        self._subscribed.set()
        self._tell(LOOK_AGAIN)

    async def _next(self, connection: AbstractConnection, timeout_s: float) -> list[bytes] | None:
        said: list[bytes] | None = await connection.read_response(disable_decoding=True, timeout=timeout_s)
        return said

    def _hear(self, message: bytes) -> None:
        try:
            origin, words = _decode(message)
        except msgspec.MsgspecError as error:  # somebody else's words, or of another version
            log.warning("a hint cannot be read: %s", error, extra={"action": "storage_hints"})
            return
        if origin != self._name:
            self._tell(hints_from(words))
