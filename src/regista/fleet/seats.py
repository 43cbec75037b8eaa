"""Seats: the workers that are connected to this instance, and what each has in its hands."""

from collections.abc import Callable, Iterator, Sequence

from ..model import Task, Worker

#: Hands tasks to a connected worker. Called only with what is flushed.
Send = Callable[[Sequence[Task]], None]
#: Tells a connected worker to stop these attempts.
Cancel = Callable[[Sequence[str]], None]


class Seat:
    """One connected worker.

    Its free slots are counted from the attempts it holds, never by a counter of their own: releasing
    twice changes nothing, and a slot cannot leak without an attempt that anybody can see.
    """

    __slots__ = ("asked", "cancel", "draining", "holding", "send", "worker")

    def __init__(self, worker: Worker, send: Send, cancel: Cancel) -> None:
        self.worker = worker
        self.send = send
        self.cancel = cancel
        self.holding: dict[str, None] = {}
        self.draining = False
        #: The store had nothing (more) for this worker when it was last asked.
        self.asked = False

    @property
    def free(self) -> int:
        return 0 if self.draining else max(0, self.worker.capacity - len(self.holding))


class Seats:
    """All seats of an instance, by worker."""

    def __init__(self) -> None:
        self._seats: dict[str, Seat] = {}
        self._serving: dict[tuple[str, str], list[Seat]] = {}

    def __iter__(self) -> Iterator[Seat]:
        return iter(list(self._seats.values()))

    def find(self, worker_id: str | None) -> Seat | None:
        return self._seats.get(worker_id or "")

    def add(self, seat: Seat) -> None:
        """A newer session of the same worker takes the place of the older one."""
        self._seats[seat.worker.id] = seat
        self._serving.clear()

    def remove(self, worker_id: str, session: int) -> Seat | None:
        """Take the seat away, unless a newer session sits there."""
        seat = self._seats.get(worker_id)
        if seat is None or seat.worker.session != session:
            return None
        self._serving.clear()
        return self._seats.pop(worker_id)

    def best(self, lane: tuple[str, str]) -> Seat | None:
        """The asked seat with the most free slots among those that serve the lane; ties by age."""
        serving = self._serving.get(lane)
        if serving is None:
            serving = [seat for seat in self._seats.values() if seat.worker.serves(*lane)]
            self._serving[lane] = serving
        best, most = None, 0
        for seat in serving:
            if seat.asked and seat.free > most:
                best, most = seat, seat.free
        return best
