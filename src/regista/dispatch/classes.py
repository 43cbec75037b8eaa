"""Classes: workers that are alike, and which of them has a free slot, found without looking at the rest."""

from collections import OrderedDict
from typing import TYPE_CHECKING

import msgspec

from ..model import FreeSlots, QueueKey, Worker

if TYPE_CHECKING:
    from .connected import Seat

_in_order = msgspec.json.Encoder(order="deterministic", enc_hook=repr)

ClassKey = tuple[object, ...]


def class_key(worker: Worker) -> ClassKey:
    """Equal for workers that are the same to any task.

    Capacity is part of it, so that within a class the seat that holds the least has the most room.
    """
    return (
        tuple(sorted(worker.skills)),
        worker.queues,
        worker.capacity,
        tuple(sorted(worker.limits.items())),
        _in_order.encode(worker.profile),
    )


class Room:
    """Seats with a free slot, by how many attempts each holds. Every step costs the same for any number.

    Ordered dictionaries, since taking from the front of a plain one walks over all that was taken before.
    """

    __slots__ = ("_least", "_level_of", "_levels")

    def __init__(self) -> None:
        #: An empty level is kept: it is needed again soon.
        self._levels: dict[int, OrderedDict[Seat, None]] = {}
        self._level_of: dict[Seat, int] = {}
        self._least = 0

    def __len__(self) -> int:
        return len(self._level_of)

    def put(self, seat: "Seat", level: int) -> None:
        """The seat holds `level` attempts and can take more. It stands behind the others that hold so many."""
        old = self._level_of.get(seat)
        if old == level:
            self._levels[level].move_to_end(seat)
            return
        seats = self._levels.get(level)
        if seats is None:
            seats = self._levels[level] = OrderedDict()
        seats[seat] = None
        if level < self._least or not self._level_of:
            self._least = level
        self._level_of[seat] = level
        if old is not None:
            self._leave(seat, old)

    def take_out(self, seat: "Seat") -> None:
        """The seat can take no more. Twice is fine."""
        level = self._level_of.pop(seat, None)
        if level is not None:
            self._leave(seat, level)

    def _leave(self, seat: "Seat", level: int) -> None:
        seats = self._levels[level]
        del seats[seat]
        if not seats and level == self._least:
            # Mostly it has just taken one task more than those beside it.
            above = self._levels.get(level + 1)
            self._least = (
                level + 1 if above else min((n for n, some in self._levels.items() if some), default=0)
            )

    def head(self) -> "Seat | None":
        """Of those that hold the least, the one that has not changed for longest."""
        return next(iter(self._levels[self._least])) if self._level_of else None


class WorkerClass:
    """All seats whose workers are alike. One verdict of the filters is good for all of them.

    A seat changes with every task that it gets or gives back, and many of them in one turn. So it is only noted in
    `moved`; whoever asks for a free slot has them find their places first.
    """

    __slots__ = ("_free", "_limited", "_room", "key", "moved", "number", "owed", "seats", "worker")

    def __init__(self, key: ClassKey, worker: Worker, number: int) -> None:
        self.key = key
        #: One of them; which one does not matter.
        self.worker = worker
        #: Counts the classes of an instance, so that ties have an order.
        self.number = number
        self.seats: dict[Seat, None] = {}
        #: The lanes in which something waits that this class may do: its free slots belong to those.
        self.owed: dict[QueueKey, None] = {}
        #: Seats that hold or may take another number of attempts than when they were placed, the latest change last.
        self.moved: dict[Seat, None] = {}
        #: How many tasks all of them can take.
        self._free = 0
        self._room = Room()
        #: A skill with a limit of its own → who has room for it.
        self._limited = {skill: Room() for skill in worker.limits}

    @property
    def open(self) -> int:
        """How many seats can take a task."""
        self._settle()
        return len(self._room)

    def _settle(self) -> None:
        if self.moved:
            for seat in self.moved:
                self._place(seat)
            self.moved.clear()

    def _place(self, seat: "Seat") -> None:
        free = seat.free
        self._free += free - seat.counted
        seat.counted = free
        if free > 0:
            self._room.put(seat, len(seat.holding) + seat.claiming)
        else:
            self._room.take_out(seat)
        if self._limited:
            self._place_by_skill(seat)

    def _place_by_skill(self, seat: "Seat") -> None:
        for skill, room in self._limited.items():
            if seat.room_for(skill) > 0:
                room.put(seat, len(seat.holding) + seat.claiming)
            else:
                room.take_out(seat)

    def add(self, seat: "Seat") -> None:
        self.seats[seat] = None
        self.moved[seat] = None

    def remove(self, seat: "Seat") -> None:
        del self.seats[seat]
        self.moved.pop(seat, None)
        self._free -= seat.counted
        seat.counted = 0
        for room in (self._room, *self._limited.values()):
            room.take_out(seat)

    def head(self, skill: str) -> "Seat | None":
        """The seat that a task of this skill would go to."""
        self._settle()
        return self._limited.get(skill, self._room).head()

    def slots(self) -> FreeSlots:
        """What there is to tell other instances."""
        self._settle()
        head = self._room.head()
        return FreeSlots(
            self.worker, len(self._room), self._free, len(head.holding) if head is not None else 0
        )

    def hungry(self) -> "Seat | None":
        """A seat that could take something of what waits for this class."""
        self._settle()
        if not self._limited:
            return self._room.head() if self.owed else None
        heads = (self.head(queue_key.type) for queue_key in self.owed)
        return next((head for head in heads if head is not None), None)
