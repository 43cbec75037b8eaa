"""Lines: one before each receiver and one for each client, so that whoever is slow keeps only its own waiting."""

from datetime import datetime, timedelta

#: Deliveries to one receiver at a time; to a slow one, or one that was never told before, only one.
AT_ONCE = 4
#: Seconds from which a receiver is slow.
_SLOW_S = 2.0
#: Seconds that a receiver is thought to need before it was seen to.
_FIRST_GUESS_S = 0.01
#: How much the newest delivery says about the pace, against all before it.
_WEIGHT = 0.3
#: What finds a line full comes back after at least, and at most, so many seconds.
_LEAST_S, _MOST_S = 0.1, 900.0
#: When this part of the room is taken, the rest is for clients that have less than their own part of it.
_FREE_FOR_ALL, _PART = 2, 4
#: Seconds that a client's delivery is thought to need, at least, when its room is full.
_LEAST_PACE_S = 0.25
#: Lines that are remembered although nobody stands in them.
_REMEMBERED = 1000


class _Line:
    """Who is being told by this line, how long that takes, and when its next free turn is."""

    __slots__ = ("busy", "known", "next_at", "pace_s")

    def __init__(self, now: datetime) -> None:
        self.busy = 0
        self.pace_s = _FIRST_GUESS_S
        self.known = False
        self.next_at = now

    def leave(self, took_s: float | None) -> None:
        self.busy -= 1
        if took_s is not None:
            self.known = True
            self.pace_s += _WEIGHT * (took_s - self.pace_s)

    def put_off(self, now: datetime, room: int, least_s: float = 0.001) -> datetime:
        """When to come back: each gets a time of its own."""
        step = timedelta(seconds=max(self.pace_s, least_s) / room)
        self.next_at = max(self.next_at, now + timedelta(seconds=_LEAST_S)) + step
        return min(self.next_at, now + timedelta(seconds=_MOST_S))


class Lines:
    """Gives turns. In memory alone: whoever starts anew learns the pace of its receivers anew.

    `room` is how many are told at once, by all lines together.
    """

    def __init__(self, room: int = 32) -> None:
        self._free_for_all = max(1, room // _FREE_FOR_ALL)
        self._part = max(1, room // _PART)
        self._busy = 0
        self._lines: dict[str, _Line] = {}
        self._clients: dict[str, _Line] = {}

    def turn(self, receiver: str, now: datetime, client: str = "") -> datetime | None:
        """None: it is taken, go now, and say `left` afterwards. Else when to come back."""
        line, own = _line(self._lines, receiver, now), _line(self._clients, client, now)
        room = AT_ONCE if line.known and line.pace_s < _SLOW_S else 1
        if line.busy >= room:
            return line.put_off(now, room)
        if self._busy >= self._free_for_all and own.busy >= self._part:
            return own.put_off(now, self._part, _LEAST_PACE_S)
        line.busy += 1
        own.busy += 1
        self._busy += 1
        return None

    def left(self, receiver: str, took_s: float | None, client: str = "") -> None:
        """A turn is over. `took_s` says how long the receiver took; None: nobody knows."""
        self._busy -= 1
        self._lines[receiver].leave(took_s)
        self._clients[client].leave(took_s)


def _line(lines: dict[str, _Line], name: str, now: datetime) -> _Line:
    line = lines.get(name)
    if line is None:
        if len(lines) >= _REMEMBERED:
            for idle in [name for name, one in lines.items() if not one.busy and one.next_at <= now]:
                del lines[idle]
        line = lines[name] = _Line(now)
    return line
