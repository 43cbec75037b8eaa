"""The workers that are connected to this instance, and what each holds."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from ..model import QueueKey, Task, Worker
from .classes import ClassKey, WorkerClass, class_key


class WorkerConnection(Protocol):
    """The way to one connected worker: a stream, a polling session, or a worker in this process.

    No method waits or raises: what is lost on the way is repeated with the worker's heartbeat, or expires with its lease.
    """

    @property
    def transport(self) -> str:
        """local, stream or poll."""
        ...

    def send(self, tasks: Sequence[Task]) -> None:
        """Hand over tasks. Called only with offers that are flushed."""
        ...

    def cancel(self, attempt_ids: Sequence[str]) -> None:
        """Tell the worker to stop these attempts."""
        ...

    def set_draining(self, on: bool) -> None:
        """The worker gets no new tasks from now on, or gets them again."""
        ...

    def close(self, code: int, reason: str) -> None:
        """End the connection: the worker is connected in another way, or this instance stops."""
        ...


class CallbackConnection(Struct, frozen=True):
    """A connection to a worker in this process: two functions."""

    on_tasks: Callable[[Sequence[Task]], None]
    on_cancel: Callable[[Sequence[str]], None]
    transport: str = "local"

    def send(self, tasks: Sequence[Task]) -> None:
        """Hand over tasks."""
        self.on_tasks(tasks)

    def cancel(self, attempt_ids: Sequence[str]) -> None:
        """Stop these attempts."""
        self.on_cancel(attempt_ids)

    def set_draining(self, on: bool) -> None:
        """Nothing to do: the worker only gets what is sent."""

    def close(self, code: int, reason: str) -> None:
        """Nothing to do: the worker is stopped by the one who started it."""


def worker_state(worker: Worker, disconnected_at: datetime | None, draining: bool, held: int) -> str:
    """ready, busy (no slot is free), draining or disconnected (its stream is closed)."""
    if disconnected_at is not None:
        return "disconnected"
    if draining:
        return "draining"
    return "busy" if held >= worker.capacity else "ready"


class ConnectedWorker:
    """One connected worker, and all that this instance knows of it: record, connection, attempts, credit, last sign of life.

    Its free slots are computed from the attempts it holds, never kept as a counter of their own: releasing
    twice changes nothing, and a slot cannot leak without an attempt that shows it.
    """

    __slots__ = (
        "attempts", "claimed_slots", "connection", "counted", "credit", "credit_epoch", "disconnected_at", "draining",
        "isolated", "last_seen", "last_served", "renewed_at", "reserved_for", "unsent_offers", "worker", "worker_class",
    )  # fmt: skip

    def __init__(
        self,
        worker: Worker,
        connection: WorkerConnection,
        attempts: Iterable[str] = (),
        isolated: Iterable[str] = (),
    ) -> None:
        self.worker = worker
        self.connection = connection
        #: Attempt → its skill; empty where that is not known.
        self.attempts: dict[str, str] = (
            dict(attempts) if isinstance(attempts, Mapping) else dict.fromkeys(attempts, "")
        )
        #: Held attempts that run alone: while there is one, the worker takes nothing else.
        self.isolated = set(isolated)
        #: Where an isolated task waits for this worker: until it holds nothing the worker takes nothing new.
        self.reserved_for: QueueKey | None = None
        self.draining = False
        #: When its stream was closed. A worker that comes back gets a new `ConnectedWorker`.
        self.disconnected_at: datetime | None = None
        #: When it was last heard here, and when (by `elapsed`) its lease was last renewed here.
        self.last_seen: datetime | None = None
        self.renewed_at: float | None = None
        #: How many further offers it takes; None: as many as it has slots. A polling worker takes none until
        #: a poll is open (FENCES 10).
        self.credit: int | None = 0 if worker.transport == "poll" else None
        #: Counts how often credit was taken back, so that an unsent offer does not give back what is gone.
        self.credit_epoch = 0
        self.unsent_offers: dict[str, int] = {}
        #: Slots that the store is being asked for.
        self.claimed_slots = 0
        #: When it last got a task, counted in tasks of all workers.
        self.last_served = 0
        #: None once it is no longer connected here.
        self.worker_class: WorkerClass | None = None
        #: Free slots, as its class has counted them.
        self.counted = 0

    @property
    def is_connected(self) -> bool:
        """False once the worker has another `ConnectedWorker`, or none here."""
        return self.worker_class is not None

    @property
    def state(self) -> str:
        """ready, busy, draining or disconnected."""
        return worker_state(self.worker, self.disconnected_at, self.draining, len(self.attempts))

    @property
    def free(self) -> int:
        """How many tasks it would take now."""
        if self.draining or self.isolated or self.reserved_for is not None:
            return 0
        slots = self.worker.capacity - len(self.attempts)
        if self.credit is not None and self.credit < slots:
            slots = self.credit
        slots -= self.claimed_slots
        return slots if slots > 0 else 0

    @property
    def is_idle(self) -> bool:
        """It could take a task that runs alone: it has nothing in its hands, and takes offers."""
        busy = self.attempts or self.claimed_slots or self.draining
        return not busy and (self.credit is None or self.credit > 0)

    def room_for(self, skill: str) -> int:
        """How many tasks of this skill it would take now."""
        limit = self.worker.limits.get(skill)
        if limit is None:
            return self.free
        held = sum(one == skill for one in self.attempts.values())
        return max(0, min(self.free, limit - held - self.claimed_slots))


class ConnectedWorkers:
    """All connected workers of an instance, by id and by class.

    `joined` and `left` are called with every class that appears or disappears.
    """

    def __init__(
        self,
        joined: Callable[[WorkerClass], None] = lambda worker_class: None,
        left: Callable[[WorkerClass], None] = lambda worker_class: None,
    ) -> None:
        self._joined = joined
        self._left = left
        self._connected: dict[str, ConnectedWorker] = {}
        self._classes: dict[ClassKey, WorkerClass] = {}
        self._numbers = 0
        self._turns = 0
        #: Called when free slots have changed.
        self._listeners: dict[Callable[[], None], None] = {}
        self._open: dict[WorkerClass, None] = {}
        #: Classes in which a worker has changed since `open` was asked for.
        self._moved: dict[WorkerClass, None] = {}

    def __iter__(self) -> Iterator[ConnectedWorker]:
        return iter(list(self._connected.values()))

    def __len__(self) -> int:
        return len(self._connected)

    @property
    def classes(self) -> list[WorkerClass]:
        """All classes, the oldest first."""
        return list(self._classes.values())

    @property
    def open(self) -> dict[WorkerClass, None]:
        """Classes with a free slot. Kept, so that it is found without asking every class."""
        for worker_class in self._moved:
            if worker_class.open:
                self._open[worker_class] = None
            else:
                self._open.pop(worker_class, None)
        self._moved.clear()
        return self._open

    def find(self, worker_id: str | None) -> ConnectedWorker | None:
        return self._connected.get(worker_id or "")

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` whenever free slots change. Returns what ends that."""
        self._listeners[listener] = None

        def end() -> None:
            self._listeners.pop(listener, None)

        return end

    # -- coming and going ------------------------------------------------------------------------

    def add(self, connected: ConnectedWorker) -> None:
        """A newer session of the same worker takes the place of the older one."""
        old = self._connected.pop(connected.worker.id, None)
        if old is not None:
            self._leave_class(old)
        self._connected[connected.worker.id] = connected
        self._join_class(connected)

    def remove(self, worker_id: str, session: int) -> ConnectedWorker | None:
        """Remove the worker, unless it is connected under a newer session."""
        connected = self._connected.get(worker_id)
        if connected is None or connected.worker.session != session:
            return None
        del self._connected[worker_id]
        self._leave_class(connected)
        return connected

    def change(self, connected: ConnectedWorker, worker: Worker) -> None:
        """The worker says something else of itself: it joins another class, and keeps its attempts."""
        worker_class = connected.worker_class
        if worker_class is not None and worker_class.key == class_key(worker):
            connected.worker = worker
        elif worker_class is not None:
            self._leave_class(connected)
            connected.worker = worker
            self._join_class(connected)

    def _join_class(self, connected: ConnectedWorker) -> None:
        key = class_key(connected.worker)
        worker_class = self._classes.get(key)
        if worker_class is None:
            self._numbers += 1
            worker_class = self._classes[key] = WorkerClass(key, connected.worker, self._numbers)
            self._joined(worker_class)
        connected.worker_class = worker_class
        worker_class.add(connected)
        self._moved[worker_class] = None

    def _leave_class(self, connected: ConnectedWorker) -> None:
        worker_class, connected.worker_class = connected.worker_class, None
        if worker_class is None:
            return
        worker_class.remove(connected)
        self._moved[worker_class] = None
        if not worker_class.members:
            del self._classes[worker_class.key], self._moved[worker_class]
            self._open.pop(worker_class, None)
            self._left(worker_class)

    # -- slots -----------------------------------------------------------------------------------

    def reserve(self, connected: ConnectedWorker, queue_key: QueueKey) -> None:
        """The worker takes nothing new but the isolated task that waits in this queue."""
        connected.reserved_for = queue_key
        self.note_change(connected)

    def end_reservation(self, connected: ConnectedWorker) -> None:
        """The worker takes any task again."""
        connected.reserved_for = None
        self.note_change(connected)

    def hold(self, connected: ConnectedWorker, attempt_id: str, skill: str) -> None:
        """Take a slot for an offer that is not sent yet."""
        connected.attempts[attempt_id] = skill
        if connected.credit is not None:
            connected.credit -= 1
            connected.unsent_offers[attempt_id] = connected.credit_epoch
        self._turns += 1
        connected.last_served = self._turns
        self.note_change(connected)

    def sent(self, connected: ConnectedWorker, attempt_ids: Iterable[str]) -> None:
        """The offers are on their way: what they used up of the credit is gone."""
        if connected.unsent_offers:
            for attempt_id in attempt_ids:
                connected.unsent_offers.pop(attempt_id, None)

    def release(self, connected: ConnectedWorker, attempt_id: str) -> bool:
        """Free the slot of an attempt. An offer that was never sent gives its credit back."""
        if connected.attempts.pop(attempt_id, None) is None:
            return False
        connected.isolated.discard(attempt_id)
        if connected.unsent_offers:
            grant = connected.unsent_offers.pop(attempt_id, None)
            if grant == connected.credit_epoch and connected.credit is not None:
                connected.credit += 1
        self.note_change(connected)
        return True

    def claim(self, connected: ConnectedWorker, slots: int) -> None:
        """Keep these slots for what the store is asked for."""
        connected.claimed_slots += slots
        self.note_change(connected)

    def claimed(self, connected: ConnectedWorker, slots: int, tasks: Sequence[Task]) -> None:
        """The store has answered."""
        connected.claimed_slots -= slots
        for task in tasks:
            connected.attempts[task.attempt_id] = task.type
            if task.isolated:
                connected.isolated.add(task.attempt_id)
        if tasks:
            self._turns += 1
            connected.last_served = self._turns
            if connected.credit is not None:
                connected.credit = max(0, connected.credit - len(tasks))
        self.note_change(connected)

    def give(self, connected: ConnectedWorker, credit: int | None) -> None:
        """From now on it takes so many further offers."""
        if credit is not None and (connected.credit is None or credit < connected.credit):
            connected.credit_epoch += 1
        connected.credit = credit
        self.note_change(connected)

    def drain(self, connected: ConnectedWorker, on: bool) -> None:
        connected.draining = on
        self.note_change(connected)

    def note_change(self, connected: ConnectedWorker) -> None:
        """What the worker holds or may take has changed."""
        worker_class = connected.worker_class
        if worker_class is not None:
            moved = worker_class.moved
            moved.pop(connected, None)
            moved[connected] = None
            self._moved[worker_class] = None
            for listener in self._listeners:
                listener()
