"""Elsewhere: the free slots of the other instances. A strategy's choice is global, at the price of a local one.

Every instance tells the store how many free slots it has, by class; the others know it a moment later. So whoever
decides a task can see that another instance has a better worker for it, leaves the task in its lane, and wakes that
instance alone. What is known may be some milliseconds old: a task that comes too late waits in its lane like any
other, and whoever frees a slot takes it. An instance that was frozen meanwhile takes nothing: a moment later all the
others are told of the lane as well.
"""

from collections.abc import Callable, Mapping, Sequence

from ..model import FreeSlots, QueueKey
from .connected import ConnectedWorker
from .filters import first_mismatch
from .strategies import StaticRank, Strategy, strategy_of


class Rival:
    """A class of workers at another instance, as far as we know."""

    __slots__ = ("free", "given", "instance", "slots")

    def __init__(self, instance: str, slots: FreeSlots) -> None:
        self.instance = instance
        self.slots = slots
        #: Counted down with every task that we leave to it.
        self.free = slots.free
        self.given = 0

    @property
    def load(self) -> float:
        """Attempts in the hands of the least busy of them, with what we have sent there since."""
        return self.slots.held + self.given / max(1, self.slots.workers)

    def take(self) -> str:
        """Leave a task to it; returns the instance to wake."""
        self.free -= 1
        self.given += 1
        return self.instance


class Elsewhere:
    """What the other instances have free. One verdict per lane and class, until there is news."""

    def __init__(self) -> None:
        #: Whoever has something free; mostly, and where nobody shares the store always, nobody.
        self.rivals: list[Rival] = []
        self._by_lane: dict[QueueKey, list[tuple[StaticRank, Rival]]] = {}
        #: Lanes in which a task was left to another instance; whoever sees to them empties it.
        self.left: dict[QueueKey, None] = {}
        #: Called with the first of them.
        self._listeners: dict[Callable[[], None], None] = {}

    def learn(self, slots: Mapping[str, Sequence[FreeSlots]]) -> None:
        """The newest word of every other instance."""
        self.rivals = [Rival(name, one) for name in sorted(slots) for one in slots[name] if one.free > 0]
        self._by_lane = {}

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` when the first task is left to another instance. Returns what ends that."""
        self._listeners[listener] = None

        def end() -> None:
            self._listeners.pop(listener, None)

        return end

    def better_than(self, connected: ConnectedWorker | None, queue_key: QueueKey) -> Rival | None:
        """Who should get a task of this lane instead of `seat`; None: nobody, or nobody else."""
        best = self._best(queue_key)
        if best is None or connected is None:
            return None if best is None else best[1]
        static_rank, rival = best
        strategy = strategy_of(queue_key)
        ours = strategy.static_rank(connected.worker, queue_key)
        if static_rank != ours:
            return rival if static_rank < ours else None
        return rival if strategy.spreads and rival.load < len(connected.attempts) else None

    def leave(self, rival: Rival, queue_key: QueueKey) -> str:
        """Leave a task of this lane to it; returns the instance to wake."""
        if not self.left:
            for listener in self._listeners:
                listener()
        self.left[queue_key] = None
        return rival.take()

    def _best(self, queue_key: QueueKey) -> tuple[StaticRank, Rival] | None:
        if queue_key not in self._by_lane:
            self._by_lane[queue_key] = self._judge(queue_key, strategy_of(queue_key))
        free = [
            (static_rank, rival.load, n)
            for n, (static_rank, rival) in enumerate(self._by_lane[queue_key])
            if rival.free > 0
        ]
        return self._by_lane[queue_key][min(free)[2]] if free else None

    def _judge(self, queue_key: QueueKey, strategy: Strategy) -> list[tuple[StaticRank, Rival]]:
        fit = [rival for rival in self.rivals if first_mismatch(queue_key, rival.slots.worker) is None]
        return [(strategy.static_rank(rival.slots.worker, queue_key), rival) for rival in fit]
