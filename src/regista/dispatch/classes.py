"""Classes: workers that are alike, and which of them has a free slot, found without looking at the rest."""

from collections import OrderedDict
from typing import TYPE_CHECKING

import msgspec

from ..model import FreeSlots, QueueKey, Worker

if TYPE_CHECKING:
    from .connected import ConnectedWorker

_in_order = msgspec.json.Encoder(order="deterministic", enc_hook=repr)

ClassKey = tuple[object, ...]


def class_key(worker: Worker) -> ClassKey:
    """Equal for workers that are the same to any task.

    Capacity is part of it, so that within a class the worker that holds the least has the most room.
    """
    return (
        tuple(sorted(worker.skills)),
        worker.queues,
        worker.capacity,
        tuple(sorted(worker.limits.items())),
        _in_order.encode(worker.profile),
    )


class FreeSlotIndex:
    """Workers with a free slot, by how many attempts each holds. Every step costs the same for any number.

    Ordered dictionaries, since taking from the front of a plain one walks over all that was taken before.
    """

    __slots__ = ("_least", "_level_of", "_levels")

    def __init__(self) -> None:
        #: An empty level is kept: it is needed again soon.
        self._levels: dict[int, OrderedDict[ConnectedWorker, None]] = {}
        self._level_of: dict[ConnectedWorker, int] = {}
        self._least = 0

    def __len__(self) -> int:
        return len(self._level_of)

    def put(self, connected: "ConnectedWorker", level: int) -> None:
        """The worker holds `level` attempts and can take more. It stands behind the others that hold so many."""
        old = self._level_of.get(connected)
        if old == level:
            self._levels[level].move_to_end(connected)
            return
        workers = self._levels.get(level)
        if workers is None:
            workers = self._levels[level] = OrderedDict()
        workers[connected] = None
        if level < self._least or not self._level_of:
            self._least = level
        self._level_of[connected] = level
        if old is not None:
            self._leave(connected, old)

    def take_out(self, connected: "ConnectedWorker") -> None:
        """The worker can take no more. Twice is fine."""
        level = self._level_of.pop(connected, None)
        if level is not None:
            self._leave(connected, level)

    def _leave(self, connected: "ConnectedWorker", level: int) -> None:
        workers = self._levels[level]
        del workers[connected]
        if not workers and level == self._least:
            # Mostly it has just taken one task more than those beside it.
            above = self._levels.get(level + 1)
            self._least = (
                level + 1 if above else min((n for n, some in self._levels.items() if some), default=0)
            )

    def next_free(self) -> "ConnectedWorker | None":
        """Of those that hold the least, the one that has not changed for longest."""
        return next(iter(self._levels[self._least])) if self._level_of else None


class WorkerClass:
    """All connected workers that are alike. The filters run once for all of them.

    A worker changes with every task that it gets or gives back, and many of them in one turn. So it is only noted in
    `moved`; whoever asks for a free slot has them find their places first.
    """

    __slots__ = (
        "_free",
        "_limited",
        "_room",
        "key",
        "members",
        "moved",
        "number",
        "waiting_queues",
        "worker",
    )

    def __init__(self, key: ClassKey, worker: Worker, number: int) -> None:
        self.key = key
        #: One of them; which one does not matter.
        self.worker = worker
        #: Counts the classes of an instance, so that ties have an order.
        self.number = number
        self.members: dict[ConnectedWorker, None] = {}
        #: The queues in which something waits that this class may do: its free slots belong to those.
        self.waiting_queues: dict[QueueKey, None] = {}
        #: Workers that hold or may take another number of attempts than when they were last placed, the latest change last.
        self.moved: dict[ConnectedWorker, None] = {}
        #: How many tasks all of them can take.
        self._free = 0
        self._room = FreeSlotIndex()
        #: A skill with a limit of its own → who has room for it.
        self._limited = {skill: FreeSlotIndex() for skill in worker.limits}

    @property
    def open(self) -> int:
        """How many workers can take a task."""
        self._settle()
        return len(self._room)

    def _settle(self) -> None:
        if self.moved:
            for connected in self.moved:
                self._place(connected)
            self.moved.clear()

    def _place(self, connected: "ConnectedWorker") -> None:
        free = connected.free
        self._free += free - connected.counted
        connected.counted = free
        if free > 0:
            self._room.put(connected, len(connected.attempts) + connected.claimed_slots)
        else:
            self._room.take_out(connected)
        if self._limited:
            self._place_by_skill(connected)

    def _place_by_skill(self, connected: "ConnectedWorker") -> None:
        for skill, room in self._limited.items():
            if connected.room_for(skill) > 0:
                room.put(connected, len(connected.attempts) + connected.claimed_slots)
            else:
                room.take_out(connected)

    def add(self, connected: "ConnectedWorker") -> None:
        self.members[connected] = None
        self.moved[connected] = None

    def remove(self, connected: "ConnectedWorker") -> None:
        del self.members[connected]
        self.moved.pop(connected, None)
        self._free -= connected.counted
        connected.counted = 0
        for room in (self._room, *self._limited.values()):
            room.take_out(connected)

    def next_free(self, skill: str) -> "ConnectedWorker | None":
        """The worker that a task of this skill would go to."""
        self._settle()
        return self._limited.get(skill, self._room).next_free()

    def slots(self) -> FreeSlots:
        """What there is to tell other instances."""
        self._settle()
        head = self._room.next_free()
        return FreeSlots(
            self.worker, len(self._room), self._free, len(head.attempts) if head is not None else 0
        )

    def free_for_waiting(self) -> "ConnectedWorker | None":
        """A worker that could take something of what waits for this class."""
        self._settle()
        if not self._limited:
            return self._room.next_free() if self.waiting_queues else None
        heads = (self.next_free(queue_key.type) for queue_key in self.waiting_queues)
        return next((head for head in heads if head is not None), None)
