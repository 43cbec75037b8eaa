"""TaskQueues: the tasks that wait for a worker, by queue key and client."""

from collections import OrderedDict
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from heapq import heapify, heappop, heappush

from ..model import QueueKey, QueueStatus, Task, queue_key_text
from .base import AGEING_STEP_S

_Entry = tuple[float, int, str]


def order_key(task: Task) -> float:
    """Lower is served first: the time of queueing, less a fixed number of seconds per point of priority."""
    queued = task.queued_at.timestamp() if task.queued_at else 0.0
    return queued - task.priority * AGEING_STEP_S


class ClientQueue:
    """The waiting tasks of one client with one queue key: a heap, in which tasks that left stay until they come up."""

    __slots__ = ("_heap", "_live", "_queued", "client", "key", "name", "turn")

    def __init__(self, key: QueueKey, client: str, turn: int) -> None:
        self.key = key
        self.client = client
        #: The key as text, for hints.
        self.name = queue_key_text(key)
        #: When it was last served, or created: the lowest is next.
        self.turn = turn
        self._heap: list[_Entry] = []
        #: Task id → its arrival.
        self._live: dict[str, int] = {}
        #: When tasks with a priority were really queued; their order key says otherwise.
        self._queued: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, task_id: str) -> bool:
        return task_id in self._live

    def add(self, task: Task, arrival: int) -> None:
        self._live[task.id] = arrival
        heappush(self._heap, (order_key(task), arrival, task.id))
        if task.priority and task.queued_at is not None:
            self._queued[task.id] = task.queued_at.timestamp()

    def discard(self, task_id: str) -> None:
        self._queued.pop(task_id, None)
        if self._live.pop(task_id, None) is not None and len(self._heap) > 2 * len(self._live) + 64:
            self._heap = self._entries()
            heapify(self._heap)

    def _entries(self) -> list[_Entry]:
        return [entry for entry in self._heap if self._live.get(entry[2]) == entry[1]]

    def head(self) -> _Entry:
        """The best waiting task. There is one: an empty queue is removed."""
        while self._live.get(self._heap[0][2]) != self._heap[0][1]:
            heappop(self._heap)
        return self._heap[0]

    def take(self, limit: int) -> list[str]:
        """Take out up to `limit` of the waiting tasks, best first."""
        taken: list[str] = []
        while self._live and len(taken) < limit:
            _, arrival, task_id = heappop(self._heap)
            if self._live.get(task_id) == arrival:
                del self._live[task_id]
                self._queued.pop(task_id, None)
                taken.append(task_id)
        return taken

    def oldest(self) -> datetime:
        """When the task that waits longest was queued. Cheap as long as no task here has a priority."""
        since = self.head()[0]
        if self._queued:
            since = min(self._queued.get(task_id, order) for order, _, task_id in self._entries())
        return datetime.fromtimestamp(since, UTC)


#: The queues of one key, that of the client who was served longest ago first.
_Clients = OrderedDict[str, ClientQueue]


class TaskQueues:
    """All waiting tasks of a store, by queue key and client."""

    def __init__(self) -> None:
        self._keys: dict[QueueKey, _Clients] = {}
        self._arrivals = 0
        self._turns = 0

    def __len__(self) -> int:
        return sum(len(queue) for queue in self)

    def has_any(self, keys: Collection[QueueKey]) -> bool:
        """Something waits under one of these keys."""
        return not self._keys.keys().isdisjoint(keys)

    def __iter__(self) -> Iterator[ClientQueue]:
        """All of them; none is empty."""
        return (queue for clients in self._keys.values() for queue in clients.values())

    def add(self, task: Task) -> ClientQueue:
        """Let the task wait behind its client's others; returns the queue in which it waits."""
        key = task.queue_key
        clients = self._keys.setdefault(key, OrderedDict())
        queue = clients.get(task.client)
        if queue is None:
            # Behind all clients that wait already: one that sends task after task must not always be first.
            self._turns += 1
            queue = clients[task.client] = ClientQueue(key, task.client, self._turns)
        self._arrivals += 1
        queue.add(task, self._arrivals)
        return queue

    def discard(self, queue: ClientQueue, task_id: str) -> None:
        queue.discard(task_id)
        if not queue:
            self._remove(queue)

    def _remove(self, queue: ClientQueue) -> None:
        clients = self._keys[queue.key]
        del clients[queue.client]
        if not clients:
            del self._keys[queue.key]

    def take(self, keys: Collection[QueueKey], limit: int) -> list[str]:
        """Take out up to `limit` of the tasks that are next under these keys; returns their ids.

        Clients take turns: next is the one that was served longest ago, with the best of its tasks
        under any of these keys. The cost grows with the keys, not with the clients.
        """
        taken: list[str] = []
        waiting = [clients for key in keys if (clients := self._keys.get(key)) is not None]
        while waiting and len(taken) < limit:
            queue = self._next(waiting)
            # The only client of the only key has turn after turn.
            alone = len(waiting) == 1 and len(waiting[0]) == 1
            taken += queue.take(limit - len(taken) if alone else 1)
            if not queue:
                self._remove(queue)
                waiting = [clients for clients in waiting if clients]
        return taken

    def _next(self, waiting: list[_Clients]) -> ClientQueue:
        """The queue that is next. All queues of its client under these keys then count as served."""
        self._turns += 1
        client = min((next(iter(clients.values())) for clients in waiting), key=_turn).client
        theirs = [queue for clients in waiting if (queue := clients.get(client)) is not None]
        for clients in waiting:
            if client in clients:
                clients[client].turn = self._turns
                clients.move_to_end(client)
        return min(theirs, key=ClientQueue.head)

    def status(self) -> list[QueueStatus]:
        """A row for each queue, in the order of keys and clients."""
        rows = [QueueStatus(queue.key, queue.client, len(queue), queue.oldest()) for queue in self]
        return sorted(rows, key=lambda row: (row.queue_key, row.client))


def _turn(queue: ClientQueue) -> int:
    return queue.turn
