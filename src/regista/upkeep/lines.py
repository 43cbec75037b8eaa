"""Lines: one before each receiver and one for each client, so that whoever is slow keeps only its own waiting."""

from collections import deque
from datetime import datetime, timedelta
from enum import Enum
from typing import Generic, TypeVar

T = TypeVar("T")

#: Deliveries to one receiver at a time, and to a quick one; to a slow one, or one that was never told before, only one.
AT_ONCE, QUICK_AT_ONCE = 4, 8
#: Seconds up to which a receiver is quick, and from which it is slow.
_QUICK_S, _SLOW_S = 0.1, 2.0
#: Seconds that a receiver is thought to need before it was seen to.
_FIRST_GUESS_S = 0.01
#: How much the newest delivery says about the pace of its receiver, against all before it, and of its client, which has
#: many receivers: one that hangs says little about the others.
_WEIGHT, _CLIENTS_WEIGHT = 0.3, 0.05
#: As many wait in a line as have their turn within so many seconds, and this many at most; the others come back later.
_PATIENCE_S, WAITING = 1.0, 64
#: All that wait, at most, for each that can be told at once.
_WAITING_EACH = 4
#: What finds a line full comes back after at least, and at most, so many seconds.
_LEAST_S, _MOST_S = 0.1, 900.0
#: When this part of the room is taken, the rest is for clients that have less than their own part of it.
_FREE_FOR_ALL, _PART = 2, 4
#: Seconds that a client's delivery is thought to need, at least, when its room is full.
_LEAST_PACE_S = 0.05
#: Of what one client can have alone, three parts of four may be told to receivers that are slow or were never told: the
#: rest is for those that answer. So many seconds is such a delivery thought to need, at least.
_DOUBTFUL, _DOUBTFUL_S = 0.75, 0.25
#: Lines that are remembered although nobody stands in them.
_REMEMBERED = 1000


class Turn(Enum):
    """What becomes of whoever asks for a turn and is not sent away."""

    #: It goes now.
    GO = "go"
    #: It stands in the line until one before it is through.
    WAIT = "wait"


GO, WAIT = Turn.GO, Turn.WAIT


class _Line(Generic[T]):
    """Who is being told by this line and who waits, how long a turn takes, and when the next free one is."""

    __slots__ = ("busy", "doubtful", "doubts", "known", "next_at", "pace_s", "places", "step_s", "waiting")

    def __init__(self, now: datetime) -> None:
        self.busy = 0
        #: The one who is told now was counted among the doubtful of its client; and, of a client, the line of all those.
        self.doubtful = False
        self.doubts: _Line[T] | None = None
        self.pace_s = _FIRST_GUESS_S
        self.known = False
        self.next_at = now
        #: Seconds from one turn to the next, by which `next_at` was reckoned, at most.
        self.step_s = _FIRST_GUESS_S
        #: Those who wait with their clients, and how many that are, with those who are on their way here.
        self.waiting: deque[tuple[str, T]] = deque()
        self.places = 0

    @property
    def slow(self) -> bool:
        return self.pace_s >= _SLOW_S

    @property
    def room(self) -> int:
        """How many are told at once."""
        if not self.known or self.pace_s >= _SLOW_S:
            return 1
        return QUICK_AT_ONCE if self.pace_s < _QUICK_S else AT_ONCE

    def has_place(self, room: int) -> bool:
        """One more that waits will have its turn soon."""
        return self.places < WAITING and self.places * self.pace_s < _PATIENCE_S * room and not self.slow

    def learn(self, took_s: float, weight: float) -> None:
        self.known = True
        self.pace_s += weight * (took_s - self.pace_s)

    def put_off(self, now: datetime, room: int, least_s: float = 0.001) -> datetime:
        """When to come back: each gets a time of its own, after all that were given away.

        Those were reckoned by the pace of their time. Once turns take less than half of that, they are reckoned anew: a
        receiver that was away for long and is quick again finds nobody waiting for as long as it was slow.
        """
        step_s = max(self.pace_s, least_s) / room
        ahead_s = (self.next_at - now).total_seconds()
        if step_s < self.step_s / 2:
            ahead_s *= step_s / self.step_s
            self.step_s = step_s
        self.step_s = max(self.step_s, step_s)
        self.next_at = now + timedelta(seconds=min(max(ahead_s, _LEAST_S) + step_s, _MOST_S))
        return self.next_at


class Lines(Generic[T]):
    """Gives turns. In memory alone: whoever starts anew learns the pace of its receivers anew.

    `room` is how many are told at once, by all lines together. A receiver that is quick has its line here, and the end
    of one turn is the beginning of the next; whoever would wait for long is sent away.
    """

    def __init__(self, room: int = 32) -> None:
        self._room = room
        self._free_for_all = max(1, room // _FREE_FOR_ALL)
        self._part = max(1, room // _PART)
        self._doubtful = max(1, int(self._free_for_all * _DOUBTFUL))
        self._busy = self._places = 0
        self._lines: dict[str, _Line[T]] = {}
        self._clients: dict[str, _Line[T]] = {}

    @property
    def full(self) -> bool:
        """Nobody more can be told at once."""
        return self._busy >= self._room

    def turn(self, receiver: str, now: datetime, client: str = "") -> Turn | datetime:
        """GO: say `left` afterwards. WAIT: say `enter`, or `give_up`. Else when to come back."""
        line, own = _line(self._lines, receiver, now), _line(self._clients, client, now)
        room = line.room
        if line.busy >= room:
            if not line.has_place(room) or not self._may_wait(own):
                return line.put_off(now, room)
            self._stand(line, own, 1)
            return WAIT
        if room == 1 and own.doubts is not None and own.doubts.busy >= self._doubtful:
            return own.doubts.put_off(now, self._doubtful, _DOUBTFUL_S)
        if self._busy >= self._free_for_all and own.busy >= self._part:
            return own.put_off(now, self._part, _LEAST_PACE_S)
        self._begin(line, own)
        return GO

    def enter(self, receiver: str, client: str, who: T) -> bool:
        """Stand in the line. True: it is this one's turn, since all before it have left meanwhile."""
        line, own = self._lines[receiver], self._clients[client]
        if line.busy < line.room:
            self._stand(line, own, -1)
            self._begin(line, own)
            return True
        line.waiting.append((client, who))
        return False

    def give_up(self, receiver: str, client: str) -> None:
        """A place in the line is needed by nobody."""
        self._stand(self._lines[receiver], self._clients[client], -1)

    def left(self, receiver: str, took_s: float | None, client: str = "") -> list[T]:
        """A turn is over; returns those whose turn it is now. `took_s`: how long the receiver took, None: nobody knows."""
        line, own = self._lines[receiver], self._clients[client]
        self._busy -= 1
        line.busy -= 1
        own.busy -= 1
        if line.doubtful and own.doubts is not None:  # nobody else was on the way there, so it is the one
            line.doubtful = False
            own.doubts.busy -= 1
            if took_s is not None:
                own.doubts.learn(took_s, _WEIGHT)
        if took_s is not None:
            line.learn(took_s, _WEIGHT)
            own.learn(took_s, _CLIENTS_WEIGHT)
        going: list[T] = []
        # Where room is scarce, one goes on and the others leave theirs to whoever has none.
        while line.waiting and line.busy < line.room and (not line.busy or self._busy < self._free_for_all):
            client, who = line.waiting.popleft()
            self._stand(line, self._clients[client], -1)
            self._begin(line, self._clients[client])
            going.append(who)
        return going

    def sent_away(self, receiver: str, now: datetime) -> list[tuple[T, datetime]]:
        """Those who waited for a receiver that has turned out to be slow, and when each is to come back."""
        line = self._lines[receiver]
        if not line.waiting or not line.slow:
            return []
        away = [(who, line.put_off(now, 1)) for _, who in line.waiting]
        for client, _ in line.waiting:
            self._stand(line, self._clients[client], -1)
        line.waiting.clear()
        return away

    def _may_wait(self, own: _Line[T]) -> bool:
        """There is a place for this client, and some are left for others."""
        scale = _WAITING_EACH
        if self._places >= self._room * scale:
            return False
        return self._places < self._free_for_all * scale or own.places < self._part * scale

    def _stand(self, line: _Line[T], own: _Line[T], number: int) -> None:
        self._places += number
        line.places += number
        own.places += number

    def _begin(self, line: _Line[T], own: _Line[T]) -> None:
        self._busy += 1
        line.busy += 1
        own.busy += 1
        if line.room == line.busy == 1:
            line.doubtful = True
            own.doubts = own.doubts or _Line(own.next_at)
            own.doubts.busy += 1


def _line(lines: dict[str, _Line[T]], name: str, now: datetime) -> _Line[T]:
    line = lines.get(name)
    if line is None:
        if len(lines) >= _REMEMBERED:
            idle = [name for name, one in lines.items() if not (one.busy or one.places or one.next_at > now)]
            for name_of_idle in idle:
                del lines[name_of_idle]
        line = lines[name] = _Line(now)
    return line
