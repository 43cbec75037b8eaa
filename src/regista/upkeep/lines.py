"""Lines: one before each receiver, so that a slow one keeps only its own waiting."""

from datetime import datetime, timedelta

#: Deliveries to one receiver at a time; to a slow one only one, so that many slow ones leave room for the others.
AT_ONCE = 4
#: Seconds from which a receiver is slow.
_SLOW_S = 2.0
#: Seconds that a receiver is thought to need before it was seen to.
_FIRST_GUESS_S = 0.01
#: How much the newest delivery says about the pace, against all before it.
_WEIGHT = 0.3
#: What finds a line full comes back after at least, and at most, so many seconds.
_LEAST_S, _MOST_S = 0.1, 900.0
#: Lines that are remembered although nobody stands in them.
_REMEMBERED = 1000


class _Line:
    """Who is being told by this receiver's line, how long that takes, and when its next free turn is."""

    __slots__ = ("busy", "next_at", "pace_s")

    def __init__(self, now: datetime) -> None:
        self.busy = 0
        self.pace_s = _FIRST_GUESS_S
        self.next_at = now


class Lines:
    """Gives turns. In memory alone: whoever starts anew learns the pace of its receivers anew."""

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}

    def turn(self, receiver: str, now: datetime) -> datetime | None:
        """None: it is taken, go now, and say `left` afterwards. Else when to come back: each gets a time of its own."""
        line = self._lines.get(receiver)
        if line is None:
            self._forget_some(now)
            line = self._lines[receiver] = _Line(now)
        room = AT_ONCE if line.pace_s < _SLOW_S else 1
        if line.busy < room:
            line.busy += 1
            return None
        step = timedelta(seconds=max(line.pace_s, 0.001) / room)
        line.next_at = max(line.next_at, now + timedelta(seconds=_LEAST_S)) + step
        return min(line.next_at, now + timedelta(seconds=_MOST_S))

    def left(self, receiver: str, took_s: float | None) -> None:
        """A turn is over. `took_s` says how long the receiver took; None: nobody knows."""
        line = self._lines[receiver]
        line.busy -= 1
        if took_s is not None:
            line.pace_s += _WEIGHT * (took_s - line.pace_s)

    def _forget_some(self, now: datetime) -> None:
        if len(self._lines) >= _REMEMBERED:
            idle = [name for name, line in self._lines.items() if not line.busy and line.next_at <= now]
            for name in idle:
                del self._lines[name]
