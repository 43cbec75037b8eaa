"""UpkeepLoop: one loop for all chores, and the grace after an outage."""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from ..clock import Clock
from ..errors import HistoryUnavailable, StorageFailed, StorageUnavailable
from ..storage.base import Leadership
from .stalls import STALL_CHECK_S, StallDetector

log = logging.getLogger("regista.upkeep")

#: The chore that sets the clock by the store's; it runs at once when the machine's clock was set.
CLOCK_CHORE = "timekeeper"


class Report(Struct, frozen=True):
    """What a run of a chore did."""

    done: int = 0
    #: Run again after so many seconds, if that is before the chore's interval is over.
    again_s: float | None = None


class ChoreStatus(Struct, frozen=True, kw_only=True):
    """How a chore has fared at this instance, since its start."""

    name: str
    interval_s: float
    needs_leader: bool
    #: This instance is the one that does it; None: nobody leads, or nobody has asked yet.
    leading: bool | None = None
    runs: int = 0
    failures: int = 0
    #: What all runs did, and what the last one did.
    done: int = 0
    last_done: int = 0
    last_run_at: datetime | None = None
    last_duration_s: float | None = None
    #: The last failure; a later success does not make it unsaid.
    last_error: str | None = None
    last_error_at: datetime | None = None


class Chore(Protocol):
    """Something that must be done again and again.

    Correct when two leaders run it at once: leadership only saves work (FENCES, what guards what).
    """

    name: str
    interval_s: float
    #: One instance at a time is enough.
    needs_leader: bool

    async def run_once(self, now: datetime) -> Report:
        """Do what is due. Tests call this and never sleep."""
        ...


class Grace:
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


class _Bell:
    """What a chore waits for between its runs: a nudge, or that its pause is over."""

    __slots__ = ("_waiter", "rung")

    def __init__(self) -> None:
        self.rung = False
        self._waiter: asyncio.Future[None] | None = None

    def ring(self) -> None:
        self.rung = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, pause_s: float) -> None:
        """Return when it is rung, or was since it last fell silent, and after the pause at the latest."""
        if self.rung:
            return
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        timer = loop.call_later(pause_s, self.ring)
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waiter = None


class _Account:
    """How a chore fares, while it does: some run for every job, so a run costs a few additions."""

    __slots__ = ("_chore", "_done", "_failures", "_last_done", "_last_error", "_last_run", "_runs", "leading")

    def __init__(self, chore: Chore) -> None:
        self._chore = chore
        self.leading: bool | None = None
        self._runs = self._failures = self._done = self._last_done = 0
        #: When, and for how many seconds.
        self._last_run: tuple[datetime, float] | None = None
        self._last_error: tuple[datetime, str] | None = None

    def ran(self, at: datetime, took_s: float, done: int) -> None:
        self._runs += 1
        self._done += done
        self._last_done = done
        self._last_run = at, took_s

    def failed(self, at: datetime, took_s: float, error: Exception) -> None:
        self.ran(at, took_s, 0)
        self._failures += 1
        self._last_error = at, f"{type(error).__name__}: {error}"

    def status(self) -> ChoreStatus:
        run_at, took_s = self._last_run or (None, None)
        error_at, error = self._last_error or (None, None)
        return ChoreStatus(
            name=self._chore.name,
            interval_s=self._chore.interval_s,
            needs_leader=self._chore.needs_leader,
            leading=self.leading,
            runs=self._runs,
            failures=self._failures,
            done=self._done,
            last_done=self._last_done,
            last_run_at=run_at,
            last_duration_s=None if took_s is None else round(took_s, 6),
            last_error=error,
            last_error_at=error_at,
        )


class UpkeepLoop:
    """Runs every chore at its interval. A chore that fails is logged and run again at the next one."""

    def __init__(
        self,
        chores: Sequence[Chore],
        clock: Clock,
        leadership: Leadership,
        grace: Grace,
        instance: str,
        chance: random.Random,
        stall_s: float = 5.0,
    ) -> None:
        #: What is done, in this order; a test kit runs them by hand.
        self.chores = chores
        self._clock = clock
        self._leadership = leadership
        self._grace = grace
        self._instance = instance
        self._chance = chance
        self._stalls = StallDetector(clock, stall_s)
        self._tasks: list[asyncio.Task[None]] = []
        self._bells: dict[str, _Bell] = {}
        #: Told every second how late the loop comes.
        self.on_lag: Callable[[float], None] = lambda _: None
        self._accounts = {chore.name: _Account(chore) for chore in chores}

    def statuses(self) -> list[ChoreStatus]:
        """How every chore has fared here, in the order in which they are done."""
        return [account.status() for account in self._accounts.values()]

    def nudge(self, name: str) -> None:
        """Run this chore now: something came up that it would see to."""
        bell = self._bells.get(name)
        if bell is not None:
            bell.ring()

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
        bell = self._bells[chore.name] = _Bell()
        while True:
            bell.rung = False
            # Jitter keeps several instances from doing the same thing in the same instant.
            pause_s = chore.interval_s * (0.9 + 0.2 * self._chance.random())
            try:
                again_s = await self.turn(chore)
                pause_s = pause_s if again_s is None else min(pause_s, again_s)
            except StorageFailed:
                return  # final; the orchestrator has been told
            except HistoryUnavailable as error:
                # Workers are heard and jobs go on without a history: no reason to restart the grace.
                log.debug("chore %s waits for the history: %s", chore.name, error)
            except StorageUnavailable:
                self._grace.restart()  # an outage like our own: whoever could not be heard is not gone
            except Exception:
                log.exception("chore %s failed; it runs again", chore.name, extra={"action": chore.name})
            await bell.wait(pause_s)

    async def turn(self, chore: Chore) -> float | None:
        """Run a chore once, if it is ours to run; returns how soon it wants to run again."""
        self._check_for_stall()
        began_at, began = self._clock.now(), self._clock.elapsed()
        account = self._accounts[chore.name]
        try:
            if chore.needs_leader:
                account.leading = await self._leads(chore)
                if not account.leading:
                    return None
            report = await chore.run_once(began_at)
        except Exception as error:
            account.failed(began_at, self._clock.elapsed() - began, error)
            raise
        account.ran(began_at, self._clock.elapsed() - began, report.done)
        return report.again_s

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
        self.on_lag(outage.blocked_s)
        if outage.clock_moved_s:
            self.nudge(CLOCK_CHORE)

    async def _watch_stalls(self) -> None:
        """Check every second, and measure how late the event loop comes."""
        while True:
            self._stalls.begin_interval()
            await asyncio.sleep(STALL_CHECK_S)
            self.on_lag(self._stalls.lateness_s())
            self._check_for_stall()
