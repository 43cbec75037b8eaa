"""Clocks for tests: one moved by hand, one that follows a virtual loop."""

import asyncio
from datetime import UTC, datetime, timedelta

#: Where test time begins, unless a test says otherwise.
BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)


class Clock:
    """Stands still until `move` is called. Both clocks move together."""

    def __init__(self, now: datetime = BEGINNING) -> None:
        self._now = now
        self._elapsed = 0.0

    def now(self) -> datetime:
        return self._now

    def elapsed(self) -> float:
        return self._elapsed

    def move(self, seconds: float = 0.0, **more: float) -> None:
        """Let time pass: seconds, or any arguments of `timedelta` (`days=14`)."""
        step = timedelta(seconds=seconds, **more)
        if step < timedelta():
            raise ValueError(f"expected time to move forward, got {step}")
        self._now += step
        self._elapsed += step.total_seconds()


class LoopClock:
    """Follows a loop's own time. `skew_s` sets the time of day wrong, as on a badly kept machine."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, skew_s: float = 0.0, follows: "LoopClock | None" = None
    ) -> None:
        self._loop = loop
        self._beginning = BEGINNING + timedelta(seconds=skew_s)
        self._jumped = timedelta() if follows is None else None
        self._follows = follows

    def now(self) -> datetime:
        return self._beginning + timedelta(seconds=self._loop.time()) + self._jumps()

    def jump(self, step: timedelta) -> None:
        """Turn the time of day ahead, here and for the clocks that follow; nothing else passes."""
        if self._jumped is None:
            raise ValueError("this clock follows another one; turn that ahead")
        self._jumped += step

    def _jumps(self) -> timedelta:
        if self._jumped is not None:
            return self._jumped
        return self._follows._jumps() if self._follows is not None else timedelta()

    def elapsed(self) -> float:
        return self._loop.time()
