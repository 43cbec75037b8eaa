"""Crier: hears the hints of the other instances, over one connection that comes back by itself."""

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


class Crier:
    """Calls `tell` with what others publish. Reconnects for ever, and then says that anything may be new."""

    def __init__(
        self, url: str, channel: str, origin: str, tell: Callable[[Sequence[Hint]], None], timeout_s: float
    ) -> None:
        self._url = url
        self._channel = channel
        self._origin = origin
        self._tell = tell
        self._timeout_s = timeout_s
        self._task: asyncio.Task[None] | None = None
        self._subscribed = asyncio.Event()

    async def start(self) -> None:
        """Begin to listen; returns when the subscription stands, or does not come within the timeout."""
        if self._task is None:
            self._subscribed.clear()
            self._task = asyncio.get_running_loop().create_task(self._run(), name="redis-crier")
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._subscribed.wait()
        except TimeoutError:
            log.warning("no hints from other instances yet; trying on", extra={"action": "storage_hints"})

    async def stop(self) -> None:
        """Listen no more. Twice is fine."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        backoff_s = BACKOFF_S
        while True:
            try:
                await self._listen()
            except Exception as error:  # the loop's outermost turn: hints may be lost, but not for good
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
        connection = connection_of(self._url, f"hints-{self._origin}", self._timeout_s)
        try:
            await connection.connect()  # type: ignore[no-untyped-call]
            await connection.send_command("SUBSCRIBE", self._channel)
            quiet = False
            while True:
                said = await self._next(connection)
                if said is None:
                    if quiet:
                        raise ConnectionError("no sign of life")
                    await connection.send_command("PING")
                elif said[0] == b"subscribe":
                    self._subscribed.set()
                    self._tell(LOOK_AGAIN)
                elif said[0] == b"message":
                    self._hear(said[2])
                quiet = said is None
        finally:
            await hang_up(connection)

    async def _next(self, connection: AbstractConnection) -> list[bytes] | None:
        said: list[bytes] | None = await connection.read_response(disable_decoding=True, timeout=QUIET_S)
        return said

    def _hear(self, message: bytes) -> None:
        try:
            origin, words = _decode(message)
        except msgspec.MsgspecError as error:  # somebody else's words, or of another version
            log.warning("a hint cannot be read: %s", error, extra={"action": "storage_hints"})
            return
        if origin != self._origin:
            self._tell(hints_from(words))
