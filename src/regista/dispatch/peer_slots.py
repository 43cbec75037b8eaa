"""PeerSlots: the free slots of the other instances. A strategy chooses among all workers, at the price of a local choice.

Every instance publishes how many free slots it has, by class; the others know it a moment later. An instance that
decides a task can so see that another instance has a better worker for it. It leaves the task in its queue, and wakes
that instance alone. The numbers may be some milliseconds old: a task that comes too late waits in its queue like any
other. An instance that is frozen takes nothing: a moment later all others are told of the queue as well.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from ..errors import StorageOutcomeUnknown
from ..model import FreeSlots, QueueKey, RecordWrite, Worker, match_options, queue_key_text
from ..storage.base import Hint, HintKind, StorageBackend
from .connected import ConnectedWorker, ConnectedWorkers
from .filters import first_mismatch
from .strategies import StaticRank, Strategy, strategy_of

log = logging.getLogger("regista.dispatch")

#: Changes within so many seconds are published together: a busy instance changes with every task.
_EVERY_S = 0.05
#: What is published counts for so long; the recovery chore repeats it every two seconds.
_TTL_S = 4.0
#: The collection with a record for each instance, and how many instances are read.
SLOTS, _INSTANCES = "slots", 10_000
_encode_slots = msgspec.msgpack.Encoder().encode
_decode_slots = msgspec.msgpack.Decoder(list[FreeSlots]).decode
#: So long a task waits for the one instance that was woken for it. After that any instance with a slot may take it.
BROADCAST_AFTER_S = 0.25


class PeerClass:
    """A class of workers at another instance, as far as is known here."""

    __slots__ = ("free", "given", "instance", "slots")

    def __init__(self, instance: str, slots: FreeSlots) -> None:
        self.instance = instance
        self.slots = slots
        #: Counted down with every task that is left to it.
        self.free = slots.free
        self.given = 0

    @property
    def load(self) -> float:
        """Attempts of its least busy worker, with the tasks that were left to it since."""
        return self.slots.held + self.given / max(1, self.slots.workers)

    def take(self) -> str:
        """Leave a task to it; returns the instance to wake."""
        self.free -= 1
        self.given += 1
        return self.instance


class PeerSlots:
    """What the other instances have free. The filters run once per queue and class, until the next update."""

    def __init__(self) -> None:
        #: Classes with a free slot. Empty where no other instance shares the store.
        self.classes: list[PeerClass] = []
        self._by_queue: dict[QueueKey, list[tuple[StaticRank, PeerClass]]] = {}
        self._left: dict[QueueKey, None] = {}
        #: Called with the first of them.
        self._listeners: dict[Callable[[], None], None] = {}

    def update(self, slots: Mapping[str, Sequence[FreeSlots]]) -> None:
        """What every other instance has published last."""
        self.classes = [PeerClass(name, one) for name in sorted(slots) for one in slots[name] if one.free > 0]
        self._by_queue = {}

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` when the first task is left to another instance. Returns what ends that."""
        self._listeners[listener] = None

        def end() -> None:
            self._listeners.pop(listener, None)

        return end

    def better_than(self, connected: ConnectedWorker | None, queue_key: QueueKey) -> PeerClass | None:
        """The class that should get a task of this queue instead of `connected`; None: there is none."""
        best = self._best(queue_key)
        if best is None or connected is None:
            return None if best is None else best[1]
        rank, peer = best
        strategy = strategy_of(queue_key)
        own = strategy.static_rank(connected.worker, queue_key)
        if rank != own:
            return peer if rank < own else None
        return peer if strategy.spreads and peer.load < len(connected.attempts) else None

    def leave(self, peer: PeerClass, queue_key: QueueKey) -> str:
        """Leave a task of this queue to the class; returns the instance to wake."""
        if not self._left:
            for listener in self._listeners:
                listener()
        self._left[queue_key] = None
        return peer.take()

    def take_left(self) -> list[QueueKey]:
        """The queues in which a task was left to another instance since the last call."""
        left, self._left = self._left, {}
        return list(left)

    def _best(self, queue_key: QueueKey) -> tuple[StaticRank, PeerClass] | None:
        if queue_key not in self._by_queue:
            self._by_queue[queue_key] = self._able(queue_key, strategy_of(queue_key))
        free = [
            (rank, peer.load, n) for n, (rank, peer) in enumerate(self._by_queue[queue_key]) if peer.free > 0
        ]
        return self._by_queue[queue_key][min(free)[2]] if free else None

    def _able(self, queue_key: QueueKey, strategy: Strategy) -> list[tuple[StaticRank, PeerClass]]:
        isolated = match_options(queue_key).isolated
        able = [
            peer
            for peer in self.classes
            if first_mismatch(queue_key, peer.slots.worker) is None and not (isolated and peer.slots.held)
        ]
        return [(strategy.static_rank(peer.slots.worker, queue_key), peer) for peer in able]


class SlotExchange:
    """Publishes the free slots of this instance, and reads those of the others. Only where a store is shared."""

    def __init__(
        self, store: StorageBackend, connected: ConnectedWorkers, peers: PeerSlots, instance: str
    ) -> None:
        self._store = store
        self._connected = connected
        self._peers = peers
        self._instance = instance
        self._published: list[FreeSlots] | None = None
        self._peers_changed = False
        self._timer: asyncio.TimerHandle | None = None
        self._turn: asyncio.Task[None] | None = None
        self._broadcast_timer: asyncio.TimerHandle | None = None
        #: Broadcasts that are under way. A slow store may hold one while the next begins.
        self._broadcasts: dict[asyncio.Task[None], None] = {}
        self._open = False
        self._unsubscribe: list[Callable[[], None]] = []

    def start(self) -> None:
        """Begin. An exchange that never starts costs nothing."""
        self._open = True
        self._unsubscribe = [
            self._connected.subscribe(self._run_soon),
            self._peers.subscribe(self._broadcast_later),
        ]
        self.peers_changed()

    async def stop(self) -> None:
        """Publish nothing more. Twice is fine, and so is before `start`."""
        self._open = False
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        for timer in (self._timer, self._broadcast_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._broadcast_timer = None
        running = [*self._broadcasts] if self._turn is None else [self._turn, *self._broadcasts]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def peers_changed(self) -> None:
        """Another instance has published its slots."""
        self._peers_changed = True
        self._run_soon()

    def repeat(self) -> None:
        """Publish again, and read again: hints may be lost, and what is published expires."""
        if self._open:
            self._published = None
            self.peers_changed()

    # -- own and other slots ---------------------------------------------------------------------

    def _run_soon(self) -> None:
        if self._timer is None and self._open:
            self._timer = asyncio.get_running_loop().call_later(_EVERY_S, self._begin)

    def _begin(self) -> None:
        self._timer = None
        if self._turn is None:
            self._turn = asyncio.get_running_loop().create_task(self._run(), name="slots")
        else:
            self._run_soon()

    async def _run(self) -> None:
        try:
            await self._publish()
            await self._read()
        except StorageOutcomeUnknown:
            pass  # the store logs it; the recovery chore repeats this
        except Exception:
            log.exception(
                "publishing free slots failed; the next turn tries again", extra={"action": "slots"}
            )
        finally:
            self._turn = None

    async def _publish(self) -> None:
        slots = [_anonymous(worker_class.slots()) for worker_class in self._connected.open]
        if slots != self._published:
            write = RecordWrite(SLOTS, self._instance, _encode_slots(slots), ttl_s=_TTL_S)
            await self._store.put_records([write])
            await self._store.publish([Hint(HintKind.SLOTS, self._instance)])
            self._published = slots

    async def _read(self) -> None:
        if self._peers_changed:
            self._peers_changed = False
            known = await self._store.records(SLOTS, limit=_INSTANCES)
            self._peers.update(
                {record.key: _decode_slots(record.value) for record in known if record.key != self._instance}
            )

    # -- tasks that were left to one instance ----------------------------------------------------

    def _broadcast_later(self) -> None:
        """A task was left to another instance. Should that be frozen, no other instance would know of the task."""
        if self._broadcast_timer is None and self._open:
            loop = asyncio.get_running_loop()
            self._broadcast_timer = loop.call_later(BROADCAST_AFTER_S, self._broadcast)

    def _broadcast(self) -> None:
        self._broadcast_timer = None
        hints = [Hint(HintKind.TASK, queue_key_text(queue_key)) for queue_key in self._peers.take_left()]
        task = asyncio.get_running_loop().create_task(self._send(hints), name="left-tasks")
        self._broadcasts[task] = None
        task.add_done_callback(lambda done: self._broadcasts.pop(done, None))

    async def _send(self, hints: list[Hint]) -> None:
        try:
            await self._store.publish(hints)
        except StorageOutcomeUnknown:
            pass  # when the store is back, all instances look at all queues
        except Exception:
            log.exception(
                "announcing waiting tasks failed; all instances look again every two seconds",
                extra={"action": "slots"},
            )


def _anonymous(slots: FreeSlots) -> FreeSlots:
    """Without the identity of the worker that stands for the class: it would make equal slots look different."""
    worker: Worker = replace(
        slots.worker,
        id="",
        hostname="",
        address="",
        incarnation="",
        session=0,
        record_version=0,
        disconnected_at=None,
        registered_at=None,
        instance="",
        schemas={},
    )
    return replace(slots, worker=worker)
