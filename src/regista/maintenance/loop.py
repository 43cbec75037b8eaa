"""MaintenanceLoop: one loop for all chores, and the grace after an outage."""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from ..aio import wait_for_event
from ..clock import Clock
from ..errors import HistoryUnavailable, StorageFailed, StorageUnavailable
from ..storage.base import SharedState
from .chore import Chore, ChoreStatus
from .stalls import STALL_CHECK_S, StallDetector

log = logging.getLogger("regista.maintenance")

#: The chore that sets the clock by the store's; it runs at once when the machine's clock was set.
CLOCK_CHORE = "clock_sync"


class ExpiryGrace:
    """After an outage of our own, nothing expires for one full lease (FENCES 12).

    A worker whose heartbeats piled up while we slept is alive; a result that waits at a worker since
    we were away is in time. So start-up, a stalled loop and a SIGCONT all restart the grace. What began
    only after the outage missed nothing, and expires in its own time.
    """

    def __init__(self, clock: Clock, lease_s: float) -> None:
        self._clock = clock
        self._lease_s = lease_s
        self.restart()

    def restart(self) -> None:
        """There was an outage until now."""
        self._until = self._clock.elapsed() + self._lease_s
        self._back_at = self._clock.now()

    @property
    def over(self) -> bool:
        """Things may expire."""
        return self._clock.elapsed() >= self._until

    def covers(self, began_at: datetime | None) -> bool:
        """What began then must not expire yet: the outage may have kept a sign of life from us."""
        return not self.over and (began_at is None or began_at <= self._back_at)

    def over_for(self, lease_s: float) -> bool:
        """What has a lease of its own may expire: one full lease of that length has passed."""
        return self._clock.elapsed() >= self._until - self._lease_s + lease_s


class MaintenanceLoop:
    """Runs every chore at its interval. A chore that fails is logged and run again at the next one."""

    def __init__(
        self,
        chores: Sequence[Chore],
        clock: Clock,
        leadership: SharedState,
        grace: ExpiryGrace,
        instance: str,
        chance: random.Random,
        stall_s: float = 5.0,
        on_lag: Callable[[float], None] = lambda _: None,
    ) -> None:
        """`on_lag` is called every second with the seconds by which the event loop is late."""
        #: What is done, in this order; a test kit runs them by hand.
        self.chores = chores
        self._clock = clock
        self._leadership = leadership
        self._grace = grace
        self._instance = instance
        self._chance = chance
        self._stalls = StallDetector(clock, stall_s)
        self._tasks: list[asyncio.Task[None]] = []
        self._wake_ups: dict[str, asyncio.Event] = {}
        self._on_lag = on_lag
        self._statuses = {
            chore.name: ChoreStatus(
                name=chore.name, interval_s=chore.interval_s, needs_leader=chore.needs_leader
            )
            for chore in chores
        }

    def statuses(self) -> list[ChoreStatus]:
        """How every chore has fared here, in the order in which they are done."""
        return list(self._statuses.values())

    def run_soon(self, name: str) -> None:
        """Run this chore now: there is something for it to do."""
        wake_up = self._wake_ups.get(name)
        if wake_up is not None:
            wake_up.set()

    async def start(self) -> None:
        """Begin all chores."""
        if not self._tasks:
            loop = asyncio.get_running_loop()
            self._tasks = [
                loop.create_task(self._run(chore), name=f"chore-{chore.name}") for chore in self.chores
            ]
            self._stalls.begin_interval()
            self._tasks.append(loop.create_task(self._watch_stalls(), name="chore-stalls"))

    async def stop(self) -> None:
        """End all chores. Twice is fine, and so is before `start`."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, chore: Chore) -> None:
        wake_up = self._wake_ups[chore.name] = asyncio.Event()
        while True:
            wake_up.clear()
            # Jitter keeps several instances from doing the same thing in the same instant.
            pause_s = chore.interval_s * (0.9 + 0.2 * self._chance.random())
            try:
                run_again_in_s = await self.turn(chore)
                pause_s = pause_s if run_again_in_s is None else min(pause_s, run_again_in_s)
            except StorageFailed:
                return  # final; the orchestrator knows
            except HistoryUnavailable as error:
                # Workers are heard and jobs go on without a history: no reason to restart the grace.
                log.debug("chore %s waits for the history: %s", chore.name, error)
            except StorageUnavailable:
                self._grace.restart()  # like an outage of our own: a worker that could not be heard is not gone
            except Exception:
                log.exception("chore %s failed; it runs again", chore.name, extra={"action": chore.name})
            await wait_for_event(wake_up, pause_s)

    async def turn(self, chore: Chore) -> float | None:
        """Run a chore once, if this instance is to run it; returns how soon it wants to run again."""
        self._check_for_stall()
        began_at, began = self._clock.now(), self._clock.elapsed()
        try:
            if chore.needs_leader:
                leads = await self._leads(chore)
                self._note(chore, leading=leads)
                if not leads:
                    return None
            result = await chore.run_once(began_at)
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            failures = self._statuses[chore.name].failures + 1
            self._note_run(chore, began_at, began, 0)
            self._note(chore, failures=failures, last_error=message, last_error_at=began_at)
            raise
        self._note_run(chore, began_at, began, result.done)
        return result.run_again_in_s

    def _note_run(self, chore: Chore, began_at: datetime, began: float, done: int) -> None:
        status = self._statuses[chore.name]
        self._note(
            chore,
            runs=status.runs + 1,
            done=status.done + done,
            last_done=done,
            last_run_at=began_at,
            last_duration_s=round(self._clock.elapsed() - began, 6),
        )

    def _note(self, chore: Chore, **facts: Any) -> None:
        self._statuses[chore.name] = replace(self._statuses[chore.name], **facts)

    async def _leads(self, chore: Chore) -> bool:
        lease_s = 3 * chore.interval_s
        return await self._leadership.lead(f"chore:{chore.name}", self._instance, lease_s)

    def _check_for_stall(self) -> None:
        """Restart the grace if this process missed time since the last check, before any chore acts on it."""
        outage = self._stalls.check()
        if outage is None:
            return
        log.warning("%s; nothing that began before expires for one lease", outage, extra={"action": "stall"})
        self._grace.restart()
        self._on_lag(outage.blocked_s)
        if outage.clock_moved_s:
            self.run_soon(CLOCK_CHORE)

    async def _watch_stalls(self) -> None:
        """Check every second, and measure how late the event loop comes."""
        while True:
            self._stalls.begin_interval()
            await asyncio.sleep(STALL_CHECK_S)
            self._on_lag(self._stalls.lateness_s())
            self._check_for_stall()
