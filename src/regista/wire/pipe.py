"""Pipe: frames on their way out. What gathers in one turn of the loop leaves as one message, in order."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Raw

from .stream import Frame, encode

#: A frame, or one that was encoded before.
Word = Frame | Raw


class Pipe:
    """Writes messages without ever making anybody wait.

    `put` only notes the frame. A short-lived task sends what has gathered, and ends when there is nothing
    more; while the other side does not read, it waits, and frames gather up to `most`. One beyond that
    calls `on_stuck`, once: the other side has given up, or should be given up.
    """

    __slots__ = (
        "_closed",
        "_frames",
        "_on_stuck",
        "_send",
        "_sender",
        "_stuck",
        "max_bytes",
        "most",
        "since",
    )

    def __init__(
        self,
        send: Callable[[bytes], Awaitable[Any]],
        on_stuck: Callable[[], None],
        most: int = 100_000,
        max_bytes: int = 0,
    ) -> None:
        self._send = send
        self._on_stuck = on_stuck
        self._stuck = False
        self._closed = False
        self._frames: list[Word] = []
        self._sender: asyncio.Task[None] | None = None
        self.most = most
        #: Loop time at which the message that is being sent was begun; None between messages.
        self.since: float | None = None
        #: Messages of several frames are cut to this; 0 is any size.
        self.max_bytes = max_bytes

    @property
    def batch(self) -> list[Word]:
        """What has not left yet; another list after each message."""
        return self._frames

    @property
    def is_blocked(self) -> bool:
        """The other side has not read what was sent before; it cannot know what came since."""
        return self.since is not None

    def put(self, frame: Word) -> None:
        """Send this soon. After `close` it goes nowhere."""
        if self._closed:
            return
        self._frames.append(frame)
        if self._sender is None:
            self._sender = asyncio.get_running_loop().create_task(self._run(), name="pipe")
        elif len(self._frames) > self.most and not self._stuck:
            self._stuck = True
            self._on_stuck()

    async def flush(self) -> None:
        """Return when everything that was put has been handed to the socket, or the socket is gone."""
        if self._sender is not None:
            await asyncio.wait([self._sender])

    def close(self) -> None:
        """Nothing more leaves."""
        self._closed = True
        self._frames = []
        if self._sender is not None:
            self._sender.cancel()

    async def _run(self) -> None:
        try:
            # A turn of patience: acknowledgements and the tasks that follow from them leave together.
            await asyncio.sleep(0)
            while self._frames:
                frames, self._frames = self._frames, []
                for message in self._messages(frames):
                    self.since = asyncio.get_running_loop().time()
                    await self._send(message)
                    self.since = None
        except (ConnectionError, RuntimeError):
            pass  # the socket is closed; whoever reads from it notices
        finally:
            self._sender = None
            self.since = None

    def _messages(self, frames: list[Word]) -> list[bytes]:
        message = encode(frames)
        if not self.max_bytes or len(message) <= self.max_bytes or len(frames) == 1:
            return [message]
        half = len(frames) // 2
        return self._messages(frames[:half]) + self._messages(frames[half:])
