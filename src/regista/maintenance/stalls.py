"""StallDetector: notices that this process was stopped or blocked, or that its clock was set forward."""

from dataclasses import dataclass

from ..clock import Clock

#: Seconds between two checks of the loop itself.
STALL_CHECK_S = 1.0


@dataclass(frozen=True, slots=True)
class Outage:
    """Time that passed without this process noticing."""

    #: Seconds for which the event loop did not run: blocked, starved, or the process was stopped.
    blocked_s: float = 0.0
    #: Seconds by which the time of day moved further than the monotonic clock.
    clock_moved_s: float = 0.0

    def __str__(self) -> str:
        if self.clock_moved_s:
            return f"the clock moved forward by {self.clock_moved_s:.1f} s: it was set, or the machine was suspended"
        return f"the event loop stalled for {self.blocked_s:.1f} s"


class StallDetector:
    """Compares both clocks with the start of the current interval, which lasts `STALL_CHECK_S` when all is well.

    Every chore calls `check` before its turn: after a SIGCONT the chores and the checks of the loop are due at the
    same moment, in any order. An outage is reported once.
    """

    def __init__(self, clock: Clock, limit_s: float) -> None:
        self._clock = clock
        self._limit_s = limit_s
        self.begin_interval()

    def begin_interval(self) -> None:
        """Measure from now on."""
        self._elapsed, self._now = self._clock.elapsed(), self._clock.now()

    def lateness_s(self) -> float:
        """Seconds by which the end of the interval is late; 0.0 before its end."""
        return max(0.0, self._clock.elapsed() - self._elapsed - STALL_CHECK_S)

    def check(self) -> Outage | None:
        """The outage since the start of the interval, if it was longer than the limit."""
        passed_s = (self._clock.now() - self._now).total_seconds()
        moved_s = passed_s - (self._clock.elapsed() - self._elapsed)
        outage = None
        if self.lateness_s() > self._limit_s:
            outage = Outage(blocked_s=self.lateness_s())
        elif moved_s > self._limit_s:
            outage = Outage(clock_moved_s=moved_s)
        if outage is not None:
            self.begin_interval()
        return outage
