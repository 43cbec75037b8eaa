"""Seats: the workers that are connected to this instance, and what each has in its hands."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from ..model import QueueKey, Task, Worker
from .classes import ClassKey, WorkerClass, class_key

#: Hands tasks to a connected worker. Called only with what is flushed.
Send = Callable[[Sequence[Task]], None]
#: Tells a connected worker to stop these attempts.
Cancel = Callable[[Sequence[str]], None]


class Seat:
    """One connected worker.

    Its free slots are counted from the attempts it holds, never by a counter of their own: releasing
    twice changes nothing, and a slot cannot leak without an attempt that anybody can see.
    """

    __slots__ = (
        "cancel", "claiming", "counted", "credit", "disconnected_at", "draining", "grant", "holding", "isolated", "kind",
        "reserved_for", "send", "turn", "unsent", "worker",
    )  # fmt: skip

    def __init__(
        self,
        worker: Worker,
        send: Send,
        cancel: Cancel,
        holding: Iterable[str] = (),
        isolated: Iterable[str] = (),
    ) -> None:
        self.worker = worker
        self.send = send
        self.cancel = cancel
        #: Attempt → its skill; empty where nobody said.
        self.holding: dict[str, str] = (
            dict(holding) if isinstance(holding, Mapping) else dict.fromkeys(holding, "")
        )
        #: Held attempts that run alone: while there is one, the worker takes nothing else.
        self.isolated = set(isolated)
        #: Where an isolated task waits for this worker: until its hands are empty the worker takes nothing new.
        self.reserved_for: QueueKey | None = None
        self.draining = False
        #: When its stream was closed; it gets another seat when it comes back.
        self.disconnected_at: datetime | None = None
        #: How many further offers it takes; None: as many as it has slots. Whoever polls has none until
        #: a poll is open (FENCES 10).
        self.credit: int | None = 0 if worker.transport == "poll" else None
        #: Counts how often credit was taken back, so that an unsent offer does not give back what is gone.
        self.grant = 0
        self.unsent: dict[str, int] = {}
        #: Slots that the store is being asked for.
        self.claiming = 0
        #: When it last got a task, in turns of all.
        self.turn = 0
        #: None once it is gone.
        self.kind: WorkerClass | None = None
        #: Free slots, as its class has counted them.
        self.counted = 0

    @property
    def free(self) -> int:
        """How many tasks it would take now."""
        if self.draining or self.isolated or self.reserved_for is not None:
            return 0
        slots = self.worker.capacity - len(self.holding)
        if self.credit is not None and self.credit < slots:
            slots = self.credit
        slots -= self.claiming
        return slots if slots > 0 else 0

    @property
    def is_idle(self) -> bool:
        """It could take a task that runs alone: it has nothing in its hands, and takes offers."""
        busy = self.holding or self.claiming or self.draining
        return not busy and (self.credit is None or self.credit > 0)

    def room_for(self, skill: str) -> int:
        """How many tasks of this skill it would take now."""
        limit = self.worker.limits.get(skill)
        if limit is None:
            return self.free
        held = sum(one == skill for one in self.holding.values())
        return max(0, min(self.free, limit - held - self.claiming))


class Seats:
    """All seats of an instance, by worker and by class.

    `joined` and `left` are told of every class that comes to be or is gone.
    """

    def __init__(
        self,
        joined: Callable[[WorkerClass], None] = lambda kind: None,
        left: Callable[[WorkerClass], None] = lambda kind: None,
    ) -> None:
        self._joined = joined
        self._left = left
        self._seats: dict[str, Seat] = {}
        self._kinds: dict[ClassKey, WorkerClass] = {}
        self._numbers = 0
        self._turns = 0
        #: Called when there is more or less room than before; None while nobody wants to know.
        self.changed: Callable[[], None] | None = None
        self._open: dict[WorkerClass, None] = {}
        #: Classes in which a seat has changed since `open` was asked for.
        self._moved: dict[WorkerClass, None] = {}

    def __iter__(self) -> Iterator[Seat]:
        return iter(list(self._seats.values()))

    def __len__(self) -> int:
        return len(self._seats)

    @property
    def kinds(self) -> list[WorkerClass]:
        """All classes, the oldest first."""
        return list(self._kinds.values())

    @property
    def open(self) -> dict[WorkerClass, None]:
        """Classes with a free slot. Kept so that a full house of many classes is seen at a glance."""
        for kind in self._moved:
            if kind.open:
                self._open[kind] = None
            else:
                self._open.pop(kind, None)
        self._moved.clear()
        return self._open

    def find(self, worker_id: str | None) -> Seat | None:
        return self._seats.get(worker_id or "")

    # -- coming and going ------------------------------------------------------------------------

    def add(self, seat: Seat) -> None:
        """A newer session of the same worker takes the place of the older one."""
        old = self._seats.pop(seat.worker.id, None)
        if old is not None:
            self._leave_kind(old)
        self._seats[seat.worker.id] = seat
        self._join_kind(seat)

    def remove(self, worker_id: str, session: int) -> Seat | None:
        """Take the seat away, unless a newer session sits there."""
        seat = self._seats.get(worker_id)
        if seat is None or seat.worker.session != session:
            return None
        del self._seats[worker_id]
        self._leave_kind(seat)
        return seat

    def change(self, seat: Seat, worker: Worker) -> None:
        """The worker is not what it was: another class, the same hands."""
        kind = seat.kind
        if kind is not None and kind.key == class_key(worker):
            seat.worker = worker
        elif kind is not None:
            self._leave_kind(seat)
            seat.worker = worker
            self._join_kind(seat)

    def _join_kind(self, seat: Seat) -> None:
        key = class_key(seat.worker)
        kind = self._kinds.get(key)
        if kind is None:
            self._numbers += 1
            kind = self._kinds[key] = WorkerClass(key, seat.worker, self._numbers)
            self._joined(kind)
        seat.kind = kind
        kind.add(seat)
        self._moved[kind] = None

    def _leave_kind(self, seat: Seat) -> None:
        kind, seat.kind = seat.kind, None
        if kind is None:
            return
        kind.remove(seat)
        self._moved[kind] = None
        if not kind.seats:
            del self._kinds[kind.key], self._moved[kind]
            self._open.pop(kind, None)
            self._left(kind)

    # -- slots -----------------------------------------------------------------------------------

    def reserve(self, seat: Seat, queue_key: QueueKey) -> None:
        """The worker takes nothing new but the isolated task that waits in this lane."""
        seat.reserved_for = queue_key
        self.placed(seat)

    def end_reservation(self, seat: Seat) -> None:
        """The worker takes any task again."""
        seat.reserved_for = None
        self.placed(seat)

    def hold(self, seat: Seat, attempt_id: str, skill: str) -> None:
        """Take a slot for an offer that is not sent yet."""
        seat.holding[attempt_id] = skill
        if seat.credit is not None:
            seat.credit -= 1
            seat.unsent[attempt_id] = seat.grant
        self._turns += 1
        seat.turn = self._turns
        self.placed(seat)

    def sent(self, seat: Seat, attempt_ids: Iterable[str]) -> None:
        """The offers are on their way: what they used up of the credit is gone."""
        if seat.unsent:
            for attempt_id in attempt_ids:
                seat.unsent.pop(attempt_id, None)

    def let_go(self, seat: Seat, attempt_id: str) -> bool:
        """Free the slot of an attempt. An offer that was never sent gives its credit back."""
        if seat.holding.pop(attempt_id, None) is None:
            return False
        seat.isolated.discard(attempt_id)
        if seat.unsent:
            grant = seat.unsent.pop(attempt_id, None)
            if grant == seat.grant and seat.credit is not None:
                seat.credit += 1
        self.placed(seat)
        return True

    def claim(self, seat: Seat, slots: int) -> None:
        """Keep these slots for what the store is asked for."""
        seat.claiming += slots
        self.placed(seat)

    def claimed(self, seat: Seat, slots: int, tasks: Sequence[Task]) -> None:
        """The store has answered."""
        seat.claiming -= slots
        for task in tasks:
            seat.holding[task.attempt_id] = task.type
            if task.isolated:
                seat.isolated.add(task.attempt_id)
        if tasks:
            self._turns += 1
            seat.turn = self._turns
            if seat.credit is not None:
                seat.credit = max(0, seat.credit - len(tasks))
        self.placed(seat)

    def give(self, seat: Seat, credit: int | None) -> None:
        """From now on it takes so many further offers."""
        if credit is not None and (seat.credit is None or credit < seat.credit):
            seat.grant += 1
        seat.credit = credit
        self.placed(seat)

    def add_credit(self, seat: Seat, more: int) -> None:
        """It takes so many offers more, or fewer."""
        seat.credit = max(0, (seat.credit or 0) + more)
        self.placed(seat)

    def drain(self, seat: Seat, on: bool) -> None:
        seat.draining = on
        self.placed(seat)

    def placed(self, seat: Seat) -> None:
        """What the seat holds or may take has changed."""
        kind = seat.kind
        if kind is not None:
            moved = kind.moved
            moved.pop(seat, None)
            moved[seat] = None
            self._moved[kind] = None
            if self.changed is not None:
                self.changed()
