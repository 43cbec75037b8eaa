"""Board: who may do what, and what waits. One verdict per lane and class, remembered."""

from bisect import insort
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..model import QueueKey, match_options
from .classes import WorkerClass
from .connected import Seat, Seats
from .filters import blocker
from .strategies import Standing, Strategy, strategy_of

#: Heads that a strategy looks at for one task. The best standing comes first, so more would hardly help.
HEADS = 64
#: Lanes whose verdicts are remembered. Those in which something waits are never forgotten.
LANES = 2048


class Candidate(NamedTuple):
    """A class that may do what waits in a lane; candidates sort by standing, then by age."""

    standing: Standing
    number: int
    kind: WorkerClass


class View:
    """A lane as the board sees it."""

    __slots__ = ("by_kind", "candidates", "strategy")

    def __init__(self, queue_key: QueueKey) -> None:
        self.strategy: Strategy = strategy_of(queue_key)
        #: Best standing first.
        self.candidates: list[Candidate] = []
        self.by_kind: dict[WorkerClass, Candidate] = {}


class Board:
    """The index between lanes and classes. A choice costs as much as there are classes to choose from."""

    def __init__(self) -> None:
        self.seats = Seats(self._joined, self._left)
        self._views: dict[QueueKey, View] = {}
        #: Lanes in which something may wait → when that was last said. Written here only.
        self.waiting: dict[QueueKey, int] = {}
        self._said = 0
        #: Where an isolated task waits → the worker that takes nothing else until it has it.
        self._reserved: dict[QueueKey, Seat] = {}

    # -- verdicts --------------------------------------------------------------------------------

    def view(self, queue_key: QueueKey) -> View:
        """The lane's candidates; the filters run at the first question only."""
        view = self._views.get(queue_key)
        if view is None:
            view = View(queue_key)
            for kind in self.seats.kinds:
                self._judge(queue_key, view, kind)
            if len(self._views) >= LANES:
                self._forget_some()
            self._views[queue_key] = view
        return view

    def _judge(self, queue_key: QueueKey, view: View, kind: WorkerClass) -> bool:
        if blocker(queue_key, kind.worker) is not None:
            return False
        candidate = Candidate(view.strategy.standing(kind.worker, queue_key), kind.number, kind)
        insort(view.candidates, candidate)
        view.by_kind[kind] = candidate
        return True

    def _forget_some(self) -> None:
        idle = [queue_key for queue_key in self._views if queue_key not in self.waiting]
        for queue_key in idle[: len(idle) // 2 + 1]:
            del self._views[queue_key]

    def _joined(self, kind: WorkerClass) -> None:
        for queue_key, view in self._views.items():
            if (
                self._judge(queue_key, view, kind)
                and queue_key in self.waiting
                and not match_options(queue_key).isolated
            ):
                kind.owed[queue_key] = None

    def _left(self, kind: WorkerClass) -> None:
        for view in self._views.values():
            candidate = view.by_kind.pop(kind, None)
            if candidate is not None:
                view.candidates.remove(candidate)

    # -- what waits ------------------------------------------------------------------------------

    @property
    def now(self) -> int:
        """Told to `clear` later: what was said after this moment stays."""
        return self._said

    def waits(self, queue_key: QueueKey) -> None:
        """Something waits there: the free slots of whoever may do it belong to it."""
        self._said += 1
        # An isolated task does not hold others back: it waits for a worker that is reserved for it.
        if queue_key not in self.waiting and not match_options(queue_key).isolated:
            for candidate in self.view(queue_key).candidates:
                candidate.kind.owed[queue_key] = None
        self.waiting[queue_key] = self._said

    def clear(self, lanes: Iterable[QueueKey], asked: int) -> list[Seat]:
        """Nothing waited there at the moment `asked`. Returns the seats that were reserved for it, and no longer are."""
        unreserved = []
        for queue_key in lanes:
            if self.waiting.get(queue_key, asked + 1) <= asked:
                del self.waiting[queue_key]
                for candidate in self.view(queue_key).candidates:
                    candidate.kind.owed.pop(queue_key, None)
                seat = self._reserved.pop(queue_key, None)
                if seat is not None:
                    self.seats.end_reservation(seat)
                    unreserved.append(seat)
        return unreserved

    # -- isolated tasks --------------------------------------------------------------------------

    def reserve(self, queue_key: QueueKey) -> Seat | None:
        """A worker for an isolated task that waits in this lane: an idle one, else the one with the least to finish.

        None while no worker may do the task. One worker is reserved for a lane at a time.
        """
        seat = self._reserved.get(queue_key)
        if seat is not None and seat.kind is not None and not seat.draining and seat.disconnected_at is None:
            return seat
        self.release_reserved(queue_key)
        free = [seat for seat in self._able(queue_key) if not seat.isolated and seat.reserved_for is None]
        if not free:
            return None
        found = min(free, key=lambda seat: (not seat.is_idle, len(seat.holding), seat.turn))
        self._reserved[queue_key] = found
        self.seats.reserve(found, queue_key)
        return found

    def release_reserved(self, queue_key: QueueKey) -> None:
        """The worker that was reserved for this lane takes any task again."""
        seat = self._reserved.pop(queue_key, None)
        if seat is not None:
            self.seats.end_reservation(seat)

    def _able(self, queue_key: QueueKey) -> Iterator[Seat]:
        for candidate in self.view(queue_key).candidates:
            for seat in candidate.kind.seats:
                if not seat.draining and seat.disconnected_at is None:
                    yield seat

    # -- choosing --------------------------------------------------------------------------------

    def choose(self, queue_key: QueueKey, *, fresh: bool) -> Seat | None:
        """The free seat that the lane's strategy likes best.

        A fresh task finds none where something waits that the worker could do: it must not overtake.
        """
        view = self._views.get(queue_key) or self.view(queue_key)
        best: Seat | None = None
        standing: Standing = ()
        liked = scored = 0
        live = view.strategy.live
        for candidate in view.candidates if len(view.candidates) <= HEADS else self._with_room(view):
            if best is not None and candidate.standing > standing:
                break  # the others stand behind it, too
            kind = candidate.kind
            owes = fresh and kind.owed and kind.hungry() is not None
            seat = None if owes else kind.head(queue_key.type)
            if seat is None:
                continue
            likes = live(seat)
            if best is None or likes < liked:
                best, liked, standing = seat, likes, candidate.standing
            scored += 1
            if scored == HEADS:
                break
        return best

    def _with_room(self, view: View) -> Iterable[Candidate]:
        """Many candidates in the order of their standing, without walking over full ones."""
        room = self.seats.open
        return view.candidates if len(view.candidates) <= len(room) else sorted(self._open(view, room))

    @staticmethod
    def _open(view: View, room: Iterable[WorkerClass]) -> Iterator[Candidate]:
        for kind in room:
            candidate = view.by_kind.get(kind)
            if candidate is not None:
                yield candidate
