"""ClockSync: keeps the clock of this instance on the time of the store that it shares with others."""

import logging
from datetime import datetime, timedelta
from typing import Protocol

from ..clock import StoreClock
from .chore import ChoreResult

log = logging.getLogger("regista.maintenance")

#: Seconds for which the store may think about the question: a slower answer says nothing about the time.
PROMPT_S = 0.5
#: A difference that somebody should hear about, in seconds: the machine's own clock is wrong.
WRONG_S = 2.0


class StoreTime(Protocol):
    """A store that knows what time it is."""

    async def now(self) -> datetime:
        """The time of day by the store's own clock."""
        ...


class ClockSync:
    """Asks the store for the time and sets the clock by it; every instance for itself."""

    name = "clock_sync"
    needs_leader = False

    def __init__(self, store: StoreTime, clock: StoreClock, interval_s: float = 10.0) -> None:
        self.interval_s = interval_s
        self._store = store
        self._clock = clock
        self._told = timedelta()

    async def run_once(self, now: datetime) -> ChoreResult:
        """One question; what came too late is not believed."""
        own = self._clock.own
        began, asked = own.elapsed(), own.now()
        store = await self._store.now()
        took_s = own.elapsed() - began
        if took_s > PROMPT_S:
            return ChoreResult()
        # The answer was true when it was given: about half-way.
        ahead = store - asked - timedelta(seconds=took_s / 2)
        self._clock.ahead = ahead
        self._tell(ahead)
        return ChoreResult(1)

    def _tell(self, ahead: timedelta) -> None:
        """Once for each time that the machine's clock goes wrong, or is put right."""
        if abs(ahead - self._told).total_seconds() < WRONG_S:
            return
        self._told = ahead
        seconds = ahead.total_seconds()
        log.warning(
            "this machine's clock is %.1f s %s the store's; the store's counts",
            abs(seconds),
            "behind" if seconds > 0 else "ahead of",
            extra={"action": "clock", "ahead_s": -seconds},
        )
