"""Lanes: the lines in which tasks wait for a worker."""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from ..model import Task, Worker
from .base import AGEING_STEP_S

_Entry = tuple[float, int, str]


def order_key(task: Task) -> float:
    """Who is next: age, with priority worth a fixed stretch of it, so that nothing starves."""
    queued = task.queued_at.timestamp() if task.queued_at else 0.0
    return queued - task.priority * AGEING_STEP_S


class Lane:
    """One line: the waiting tasks of one queue and type."""

    def __init__(self) -> None:
        self._heap: list[_Entry] = []
        self._live: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._live)

    def add(self, task_id: str, order: float, arrival: int) -> None:
        self._live[task_id] = arrival
        heappush(self._heap, (order, arrival, task_id))

    def discard(self, task_id: str) -> None:
        if self._live.pop(task_id, None) is not None and len(self._heap) > 2 * len(self._live) + 64:
            self._heap = [entry for entry in self._heap if self._live.get(entry[2]) == entry[1]]
            heapify(self._heap)

    def head(self) -> _Entry | None:
        """The best waiting task, or None."""
        while self._heap and self._live.get(self._heap[0][2]) != self._heap[0][1]:
            heappop(self._heap)
        return self._heap[0] if self._heap else None


class Lanes:
    """All lines of a store."""

    def __init__(self) -> None:
        self._lanes: dict[tuple[str, str], Lane] = {}
        self._arrivals = 0

    def __len__(self) -> int:
        return sum(len(lane) for lane in self._lanes.values())

    def add(self, task: Task) -> None:
        self._arrivals += 1
        self._lanes.setdefault(task.lane, Lane()).add(task.id, order_key(task), self._arrivals)

    def discard(self, lane_name: tuple[str, str], task_id: str) -> None:
        lane = self._lanes.get(lane_name)
        if lane is not None:
            lane.discard(task_id)
            if not lane:
                del self._lanes[lane_name]

    def serve(self, worker: Worker) -> bool:
        """Something waits that this worker could do."""
        return any(worker.serves(*name) for name in self._lanes)

    def best_for(self, worker: Worker) -> Iterator[str]:
        """Ids of waiting tasks that the worker serves, best first. The caller takes each out."""
        while True:
            lanes = [lane for name, lane in self._lanes.items() if worker.serves(*name)]
            heads = [head for head in (lane.head() for lane in lanes) if head is not None]
            if not heads:
                return
            yield min(heads)[2]
