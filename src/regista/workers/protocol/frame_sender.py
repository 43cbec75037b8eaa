"""Pipe: frames on their way out. What gathers in one turn of the loop leaves as one message, in order."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Raw

from .frames import Frame, encode

#: A frame, or one that was encoded before.
EncodableFrame = Frame | Raw


class FrameSender:
    """Writes messages without ever making anybody wait.

    `put` only notes the frame. What has gathered leaves with the next turn of the loop: a short-lived task waits for
    `send`, and frames gather up to `most`. One beyond that calls `on_stuck`, once: the other side does not read.
    """

    __slots__ = (
        "_closed",
        "_frames",
        "_leaving",
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
        self._frames: list[EncodableFrame] = []
        #: What has gathered leaves soon.
        self._leaving: asyncio.Handle | None = None
        self._sender: asyncio.Task[None] | None = None
        self.most = most
        #: Loop time at which the message that is being sent was begun; None between messages.
        self.since: float | None = None
        #: Messages of several frames are cut to this; 0 is any size.
        self.max_bytes = max_bytes

    @property
    def batch(self) -> list[EncodableFrame]:
        """What has not left yet; another list after each message."""
        return self._frames

    @property
    def is_blocked(self) -> bool:
        """The other side has not read what was sent before; it cannot know what came since."""
        return self.since is not None

    def put(self, frame: EncodableFrame) -> None:
        """Send this soon. After `close` it goes nowhere."""
        if self._closed:
            return
        self._frames.append(frame)
        if self._sender is not None:
            if len(self._frames) > self.most and not self._stuck:
                self._stuck = True
                self._on_stuck()
        elif self._leaving is None:
            # With the next turn: acknowledgements and the tasks that follow from them leave together.
            self._leaving = asyncio.get_running_loop().call_soon(self._leave)

    async def flush(self) -> None:
        """Return when everything that was put has been handed to the socket, or the socket is gone."""
        if self._leaving is not None:
            self._leaving.cancel()
            self._leave()
        if self._sender is not None:
            await asyncio.wait([self._sender])

    def close(self) -> None:
        """Nothing more leaves."""
        self._closed = True
        self._frames = []
        if self._leaving is not None:
            self._leaving.cancel()
        if self._sender is not None:
            self._sender.cancel()

    def _leave(self) -> None:
        self._leaving = None
        messages = self._gathered()
        if messages:
            self._sender = asyncio.get_running_loop().create_task(self._send_on(messages), name="pipe")

    async def _send_on(self, messages: list[bytes]) -> None:
        """One after the other, as the other side reads them; and all that gathers meanwhile."""
        try:
            while messages:
                for message in messages:
                    self.since = asyncio.get_running_loop().time()
                    await self._send(message)
                    self.since = None
                messages = self._gathered()
        except (ConnectionError, RuntimeError):
            pass  # the socket is closed; whoever reads from it notices
        finally:
            self._sender = None
            self.since = None

    def _gathered(self) -> list[bytes]:
        frames, self._frames = self._frames, []
        return self._messages(frames) if frames else []

    def _messages(self, frames: list[EncodableFrame]) -> list[bytes]:
        message = encode(frames)
        if not self.max_bytes or len(message) <= self.max_bytes or len(frames) == 1:
            return [message]
        half = len(frames) // 2
        return self._messages(frames[:half]) + self._messages(frames[half:])
