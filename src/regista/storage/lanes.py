"""Lanes: the lines in which tasks wait for a worker."""

from collections import OrderedDict, deque
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from heapq import heappop, heappush

from ..model import QueueKey, QueueStatus, Task, queue_key_text
from .base import AGEING_STEP_S, Hint, HintKind

_Entry = tuple[float, int, str]


def order_key(task: Task) -> float:
    """Who is next: age, with priority worth a fixed stretch of it, so that nothing starves."""
    queued = task.queued_at.timestamp() if task.queued_at else 0.0
    return queued - task.priority * AGEING_STEP_S


@lru_cache(maxsize=4096)
def _hint_of(queue_key: QueueKey) -> Hint:
    """Something waits in the lane. Remembered: most lanes come and go with each task that waits for a moment."""
    return Hint(HintKind.TASK, queue_key_text(queue_key))


class Line:
    """The waiting tasks of one client in one lane.

    Most come in the order in which they are to go: those need no heap, which costs the more to take from the longer
    the line is.
    """

    __slots__ = ("_early", "_late", "_live", "_order", "client", "queue_key", "turn")

    def __init__(self, queue_key: QueueKey, client: str, turn: int) -> None:
        self.queue_key = queue_key
        self.client = client
        #: When it was last served, or came to be: the lowest is next.
        self.turn = turn
        #: Each behind all that came before it.
        self._order: deque[_Entry] = deque()
        #: A heap of those that are to go before one that was there.
        self._early: list[_Entry] = []
        self._live: dict[str, int] = {}
        #: When the tasks that priority has moved were really queued. Mostly there are none.
        self._late: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, task_id: str) -> bool:
        return task_id in self._live

    def add(self, task: Task, arrival: int) -> None:
        task_id, order, key = task.id, self._order, order_key(task)
        self._live[task_id] = arrival
        if not order or order[-1][0] <= key:
            order.append((key, arrival, task_id))
        else:
            heappush(self._early, (key, arrival, task_id))
        if task.priority and task.queued_at is not None:
            self._late[task_id] = task.queued_at.timestamp()

    def discard(self, task_id: str) -> None:
        if self._late:
            self._late.pop(task_id, None)
        if self._live.pop(task_id, None) is None:
            return
        if len(self._order) + len(self._early) > 2 * len(self._live) + 64:
            self._order = deque(sorted(self._entries()))
            self._early = []

    def _entries(self) -> list[_Entry]:
        return [entry for entry in (*self._order, *self._early) if self._live.get(entry[2]) == entry[1]]

    def head(self) -> _Entry:
        """The best waiting task. There is one: an empty line is taken away."""
        live, order, early = self._live, self._order, self._early
        while order and live.get(order[0][2]) != order[0][1]:
            order.popleft()
        while early and live.get(early[0][2]) != early[0][1]:
            heappop(early)
        return early[0] if early and (not order or early[0] < order[0]) else order[0]

    def take(self, limit: int) -> list[str]:
        """Take out up to `limit` of the waiting tasks, best first."""
        live, order, early = self._live, self._order, self._early
        taken: list[str] = []
        while live and len(taken) < limit:
            first = early and (not order or early[0] < order[0])
            _, arrival, task_id = heappop(early) if first else order.popleft()
            if live.get(task_id) == arrival:
                del live[task_id]
                taken.append(task_id)
        if self._late:
            for task_id in taken:
                self._late.pop(task_id, None)
        return taken

    def place(self, task_id: str) -> int:
        """How many tasks of this line come before it, and itself. Looks at all of them."""
        arrival, entries = self._live[task_id], self._entries()
        mine = next(entry for entry in entries if entry[1] == arrival)
        return sum(entry <= mine for entry in entries)

    def oldest(self) -> datetime:
        """When the task that waits longest was queued. Cheap as long as nothing here has a priority."""
        since = self.head()[0]
        if self._late:
            since = min(self._late.get(task_id, order) for order, _, task_id in self._entries())
        return datetime.fromtimestamp(since, UTC)


class _Lines:
    """The lines of one lane, that of the client who was served longest ago first."""

    __slots__ = ("by_client", "hint", "queue_key")

    def __init__(self, queue_key: QueueKey) -> None:
        self.queue_key = queue_key
        self.hint = _hint_of(queue_key)
        self.by_client: OrderedDict[str, Line] = OrderedDict()

    def first(self) -> Line:
        return next(iter(self.by_client.values()))


class Lanes:
    """All lines of a store."""

    def __init__(self) -> None:
        self._lanes: dict[QueueKey, _Lines] = {}
        self._arrivals = 0
        self._turns = 0

    def __len__(self) -> int:
        return sum(len(line) for line in self.lines())

    def waits_in(self, lanes: Collection[QueueKey]) -> bool:
        """Something waits in one of them."""
        return not self._lanes.keys().isdisjoint(lanes)

    def lines(self) -> Iterator[Line]:
        """All of them; none is empty."""
        return (line for lines in self._lanes.values() for line in lines.by_client.values())

    def add(self, queue_key: QueueKey, task: Task) -> tuple[Line, Hint]:
        """Put the task in its client's line; returns that, and the hint that something waits in the lane."""
        lines = self._lanes.get(queue_key)
        if lines is None:
            lines = self._lanes[queue_key] = _Lines(queue_key)
        line = lines.by_client.get(task.client)
        if line is None:
            # Behind everybody who waits already, or one who sends task after task would always be first.
            self._turns += 1
            line = lines.by_client[task.client] = Line(lines.queue_key, task.client, self._turns)
        self._arrivals += 1
        line.add(task, self._arrivals)
        return line, lines.hint

    def discard(self, line: Line, task_id: str) -> None:
        line.discard(task_id)
        if not line:
            self._strike(line)

    def _strike(self, line: Line) -> None:
        lines = self._lanes[line.queue_key].by_client
        del lines[line.client]
        if not lines:
            del self._lanes[line.queue_key]

    def take(self, lanes: Collection[QueueKey], limit: int) -> list[str]:
        """Take out up to `limit` of the tasks that are next in these lanes; returns their ids.

        Clients take turns: next is the one whose line was served longest ago, with the best of its tasks
        in any of these lanes. The cost grows with the lanes, not with the clients.
        """
        taken: list[str] = []
        waiting = [lines for queue_key in lanes if (lines := self._lanes.get(queue_key)) is not None]
        while waiting and len(taken) < limit:
            line = self._next(waiting)
            # Alone in the only lane, a client has turn after turn.
            alone = len(waiting) == 1 and len(waiting[0].by_client) == 1
            taken += line.take(limit - len(taken) if alone else 1)
            if not line:
                self._strike(line)
                waiting = [lines for lines in waiting if lines.by_client]
        return taken

    def _next(self, waiting: list[_Lines]) -> Line:
        """The line that has its turn, which is noted: all that its client has in these lanes counts as served."""
        self._turns += 1
        best = waiting[0].first()
        if len(waiting) > 1:
            client = min([lines.first() for lines in waiting], key=_turn).client
            theirs = [line for lines in waiting if (line := lines.by_client.get(client)) is not None]
            best = min(theirs, key=Line.head)
        for lines in waiting:
            line = lines.by_client.get(best.client)
            if line is not None:
                line.turn = self._turns
                lines.by_client.move_to_end(best.client)
        return best

    def status(self) -> list[QueueStatus]:
        """Every line, in the order of lanes and clients."""
        rows = [QueueStatus(line.queue_key, line.client, len(line), line.oldest()) for line in self.lines()]
        return sorted(rows, key=lambda row: (row.queue_key, row.client))


def _turn(line: Line) -> int:
    return line.turn
