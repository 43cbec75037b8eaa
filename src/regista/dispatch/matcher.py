"""MatchIndex: which workers may do what, and what waits. The filters run once per queue and class."""

from bisect import insort
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..model import QueueKey, match_options
from .classes import WorkerClass
from .connected import ConnectedWorker, ConnectedWorkers
from .filters import first_mismatch
from .strategies import StaticRank, Strategy, strategy_of

#: Heads that a strategy looks at for one task. The best standing comes first, so more would hardly help.
HEADS = 64
#: Queues whose verdicts are remembered. Those in which something waits are never forgotten.
LANES = 2048


class Candidate(NamedTuple):
    """A class that may do what waits in a queue; candidates sort by static_rank, then by age."""

    static_rank: StaticRank
    number: int
    worker_class: WorkerClass


class CandidateList:
    """A queue as the index sees it."""

    __slots__ = ("by_class", "candidates", "strategy")

    def __init__(self, queue_key: QueueKey) -> None:
        self.strategy: Strategy = strategy_of(queue_key)
        #: Best standing first.
        self.candidates: list[Candidate] = []
        self.by_class: dict[WorkerClass, Candidate] = {}


class MatchIndex:
    """The index between queues and classes. A choice costs as much as there are classes to choose from."""

    def __init__(self) -> None:
        self.connected = ConnectedWorkers(self._joined, self._left)
        self._views: dict[QueueKey, CandidateList] = {}
        #: Queues in which something may wait → when that was last said. Written here only.
        self.waiting: dict[QueueKey, int] = {}
        self._said = 0
        #: Where an isolated task waits → the worker that takes nothing else until it has it.
        self._reserved: dict[QueueKey, ConnectedWorker] = {}

    # -- verdicts --------------------------------------------------------------------------------

    def view(self, queue_key: QueueKey) -> CandidateList:
        """The queue's candidates; the filters run at the first question only."""
        view = self._views.get(queue_key)
        if view is None:
            view = CandidateList(queue_key)
            for worker_class in self.connected.classes:
                self._add_if_able(queue_key, view, worker_class)
            if len(self._views) >= LANES:
                self._forget_some()
            self._views[queue_key] = view
        return view

    def _add_if_able(self, queue_key: QueueKey, view: CandidateList, worker_class: WorkerClass) -> bool:
        if first_mismatch(queue_key, worker_class.worker) is not None:
            return False
        candidate = Candidate(
            view.strategy.static_rank(worker_class.worker, queue_key), worker_class.number, worker_class
        )
        insort(view.candidates, candidate)
        view.by_class[worker_class] = candidate
        return True

    def _forget_some(self) -> None:
        idle = [queue_key for queue_key in self._views if queue_key not in self.waiting]
        for queue_key in idle[: len(idle) // 2 + 1]:
            del self._views[queue_key]

    def _joined(self, worker_class: WorkerClass) -> None:
        for queue_key, view in self._views.items():
            if (
                self._add_if_able(queue_key, view, worker_class)
                and queue_key in self.waiting
                and not match_options(queue_key).isolated
            ):
                worker_class.waiting_queues[queue_key] = None

    def _left(self, worker_class: WorkerClass) -> None:
        for view in self._views.values():
            candidate = view.by_class.pop(worker_class, None)
            if candidate is not None:
                view.candidates.remove(candidate)

    # -- what waits ------------------------------------------------------------------------------

    @property
    def now(self) -> int:
        """Told to `clear` later: what was said after this moment stays."""
        return self._said

    def mark_waiting(self, queue_key: QueueKey) -> None:
        """Something waits there: the free slots of the workers that may do it belong to it."""
        self._said += 1
        # An isolated task does not hold others back: it waits for a worker that is reserved for it.
        if queue_key not in self.waiting and not match_options(queue_key).isolated:
            for candidate in self.view(queue_key).candidates:
                candidate.worker_class.waiting_queues[queue_key] = None
        self.waiting[queue_key] = self._said

    def clear(self, lanes: Iterable[QueueKey], asked: int) -> list[ConnectedWorker]:
        """Nothing waited there at the moment `asked`. Returns the workers that were reserved for it, and no longer are."""
        unreserved = []
        for queue_key in lanes:
            if self.waiting.get(queue_key, asked + 1) <= asked:
                del self.waiting[queue_key]
                for candidate in self.view(queue_key).candidates:
                    candidate.worker_class.waiting_queues.pop(queue_key, None)
                connected = self._reserved.pop(queue_key, None)
                if connected is not None:
                    self.connected.end_reservation(connected)
                    unreserved.append(connected)
        return unreserved

    # -- isolated tasks --------------------------------------------------------------------------

    def reserve(self, queue_key: QueueKey) -> ConnectedWorker | None:
        """A worker for an isolated task that waits in this queue: an idle one, else the one with the least to finish.

        None while no worker may do the task. One worker is reserved for a queue at a time.
        """
        connected = self._reserved.get(queue_key)
        if (
            connected is not None
            and connected.worker_class is not None
            and not connected.draining
            and connected.disconnected_at is None
        ):
            return connected
        self.release_reserved(queue_key)
        free = [
            connected
            for connected in self._able(queue_key)
            if not connected.isolated and connected.reserved_for is None
        ]
        if not free:
            return None
        found = min(
            free,
            key=lambda connected: (not connected.is_idle, len(connected.attempts), connected.last_served),
        )
        self._reserved[queue_key] = found
        self.connected.reserve(found, queue_key)
        return found

    def release_reserved(self, queue_key: QueueKey) -> None:
        """The worker that was reserved for this queue takes any task again."""
        connected = self._reserved.pop(queue_key, None)
        if connected is not None:
            self.connected.end_reservation(connected)

    def _able(self, queue_key: QueueKey) -> Iterator[ConnectedWorker]:
        for candidate in self.view(queue_key).candidates:
            for connected in candidate.worker_class.members:
                if not connected.draining and connected.disconnected_at is None:
                    yield connected

    # -- choosing --------------------------------------------------------------------------------

    def choose(self, queue_key: QueueKey, *, fresh: bool) -> ConnectedWorker | None:
        """The free worker that the queue's strategy likes best.

        A fresh task finds none where something waits that the worker could do: it must not overtake.
        """
        view = self._views.get(queue_key) or self.view(queue_key)
        best: ConnectedWorker | None = None
        static_rank: StaticRank = ()
        liked = scored = 0
        live = view.strategy.dynamic_rank
        for candidate in view.candidates if len(view.candidates) <= HEADS else self._with_room(view):
            if best is not None and candidate.static_rank > static_rank:
                break  # the others stand behind it, too
            worker_class = candidate.worker_class
            owes = fresh and worker_class.waiting_queues and worker_class.free_for_waiting() is not None
            connected = None if owes else worker_class.next_free(queue_key.type)
            if connected is None:
                continue
            likes = live(connected)
            if best is None or likes < liked:
                best, liked, static_rank = connected, likes, candidate.static_rank
            scored += 1
            if scored == HEADS:
                break
        return best

    def _with_room(self, view: CandidateList) -> Iterable[Candidate]:
        """Many candidates in the order of their static_rank, without walking over full ones."""
        room = self.connected.open
        return view.candidates if len(view.candidates) <= len(room) else sorted(self._open(view, room))

    @staticmethod
    def _open(view: CandidateList, room: Iterable[WorkerClass]) -> Iterator[Candidate]:
        for worker_class in room:
            candidate = view.by_class.get(worker_class)
            if candidate is not None:
                yield candidate
