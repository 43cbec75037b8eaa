"""TaskClaimer: a worker that frees a slot takes the best waiting task that it may do."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from itertools import islice
from typing import NamedTuple, Protocol

from ..clock import Clock
from ..errors import StorageOutcomeUnknown
from ..model import QueueKey, Task, Worker, match_options
from ..storage.base import StorageBackend, TaskClaim
from .admission import Admission
from .connected import ConnectedWorker
from .matcher import MatchIndex

log = logging.getLogger("regista.dispatch")

#: Queues that one question to the store names; the others have their turn with the next.
_QUEUES_ASKED = 256
#: Workers that are asked for at once, when the store keeps answering in full.
_REQUESTS_AT_ONCE = 64
#: Seconds for which a worker is not asked for again after the store gave it nothing because its session was replaced or
#: its lease is over.
_REFUSED_S = 1.0


class ClaimRequest(NamedTuple):
    """What the store is asked for one worker."""

    connected: ConnectedWorker
    lanes: tuple[QueueKey, ...]
    limit: int
    #: What came to wait later was not seen by the store: it stays marked.
    asked: int


class TaskSource(Protocol):
    """Reads tasks with all their values, wherever these are stored. The methods are those of the store."""

    async def claim_tasks(
        self, worker: Worker, lanes: Collection[QueueKey], limit: int, now: datetime
    ) -> TaskClaim:
        """Claims waiting tasks for a worker."""
        ...

    async def tasks_of(self, job_id: str) -> list[Task]:
        """The stored tasks of a job."""
        ...


class TaskClaimer:
    """Brings what waits in the store to free slots. Runs when there is news, and looks only at that:
    queues in which something came to wait, and workers in which a slot became free.

    While it does not run, nobody with a free slot could do anything of what waits. So what comes to wait behind others
    is no news, and neither is a slot that may not be used yet.
    """

    def __init__(
        self,
        storage: StorageBackend,
        tasks: TaskSource,
        clock: Clock,
        index: MatchIndex,
        deliver: Callable[[Sequence[Task]], None],
        admission: Admission,
    ) -> None:
        self._storage = storage
        self._tasks = tasks
        self._clock = clock
        self._index = index
        self._connected = index.connected
        self._deliver = deliver
        self._admission = admission
        #: The queues of the store were looked at since the start; before that, anything might wait there.
        self.synced = False
        #: Look at all queues of the store before the next offers.
        self._look = True
        #: What has changed since it was last seen to.
        self._news: dict[QueueKey, None] = {}
        #: An ordered dictionary, since taking from the front of a plain one walks over all that was taken before.
        self._freed: OrderedDict[ConnectedWorker, None] = OrderedDict()
        self._running: asyncio.Task[None] | None = None
        self._closed = False

    def start(self) -> None:
        """Offer (again)."""
        self._closed = False

    async def stop(self) -> None:
        """No more offers from here."""
        self._closed = True
        self.synced = False  # others may leave tasks in the queues meanwhile
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    # -- news ------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Look at all queues soon."""
        self._look = True
        self._run_soon()

    def task_queued(self, queue_key: QueueKey) -> None:
        """A task was left in a queue."""
        behind = queue_key in self._index.waiting
        self._index.mark_waiting(queue_key)
        if not behind or self._look or match_options(queue_key).isolated:
            self._news[queue_key] = None
            self._run_soon()

    def slot_freed(self, connected: ConnectedWorker) -> None:
        """The worker may have a free slot: whatever waits for its class comes first."""
        worker_class = connected.worker_class
        if worker_class is None:
            return
        if (
            connected.is_idle
            if connected.reserved_for is not None
            else worker_class.waiting_queues and connected.free
        ):
            self._freed[connected] = None
            self._run_soon()

    def _run_soon(self) -> None:
        if self._running is None and not self._closed:
            self._running = asyncio.get_running_loop().create_task(self._run(), name="dispatcher-pull")

    # -- work ------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            width = 1
            while self._look or self._news or self._freed:
                if self._look:
                    await self._read_all_queues()
                questions = self._questions(width)
                if not questions:
                    continue
                if len(questions) == 1:
                    full = await self._ask(questions[0])
                else:  # their writes share a flush
                    full = all(await asyncio.gather(*(self._ask(question) for question in questions)))
                width = min(2 * width, _REQUESTS_AT_ONCE) if full else 1
        except StorageOutcomeUnknown:
            self._look = True  # the store says so itself; when it is back, the next wake finds what waits
        except Exception:
            self._look = True
            log.exception(
                "pulling tasks failed; the next wake tries again", extra={"action": "dispatch_pull"}
            )
        finally:
            self._running = None

    async def _read_all_queues(self) -> None:
        """Learn what waits from the store itself: hints may be lost, and say nothing of what was there before."""
        asked, known = self._index.now, list(self._index.waiting)
        self._look = False
        found = dict.fromkeys(status.queue_key for status in await self._storage.queue_status())
        self._clear([queue_key for queue_key in known if queue_key not in found], asked)
        for queue_key in found:
            self._index.mark_waiting(queue_key)
        # Those as well that came while we looked: whoever left them there thought that we would find them.
        self._news.update(dict.fromkeys(self._index.waiting))
        self.synced = True

    def _questions(self, most: int) -> list[ClaimRequest]:
        """What to ask for a worker that has a free slot; nothing when one of the two has come to its end."""
        questions: list[ClaimRequest] = []
        while len(questions) < most and (connected := self._next_worker()) is not None:
            lanes, room = self._admitted(*self._wanted(connected))
            if room:
                self._connected.claim(connected, room)
                questions.append(ClaimRequest(connected, lanes, room, self._index.now))
        return questions

    def _next_worker(self) -> ConnectedWorker | None:
        """A worker with a free slot for something that waits. Looks only at what is new."""
        while self._freed:
            connected, _ = self._freed.popitem(last=False)
            if connected.worker_class is not None and (
                connected.worker_class.waiting_queues or connected.reserved_for is not None
            ):
                return connected
        while self._news:
            queue_key = next(iter(self._news))
            if queue_key in self._index.waiting and (found := self._worker_for(queue_key)) is not None:
                return found
            del self._news[queue_key]
        return None

    def _admitted(self, lanes: Sequence[QueueKey], room: int) -> tuple[tuple[QueueKey, ...], int]:
        """Those of the queues of which tasks may be offered now, and how many all of them may give at once."""
        allowed = {queue_key: self._admission.room(queue_key, room) for queue_key in lanes}
        admitted = tuple(queue_key for queue_key, most in allowed.items() if most > 0)
        return admitted, min((allowed[queue_key] for queue_key in admitted), default=0)

    def _worker_for(self, queue_key: QueueKey) -> ConnectedWorker | None:
        if self._admission.room(queue_key, 1) <= 0:
            return None
        if not match_options(queue_key).isolated:
            return self._index.choose(queue_key, fresh=False)
        connected = self._index.reserve(queue_key)
        # One that still has something in its hands is looked at again when it has finished.
        return connected if connected is not None and connected.is_idle else None

    def _clear(self, lanes: Iterable[QueueKey], asked: int) -> None:
        for connected in self._index.clear(lanes, asked):
            self.slot_freed(connected)

    @staticmethod
    def _wanted(connected: ConnectedWorker) -> tuple[tuple[QueueKey, ...], int]:
        """The waiting queues that the worker has room for, and how many tasks all of them may give at once."""
        assert connected.worker_class is not None
        if connected.reserved_for is not None:
            return (connected.reserved_for,), int(connected.is_idle)
        waiting_queues, limits = connected.worker_class.waiting_queues, connected.worker.limits
        if not limits and len(waiting_queues) <= _QUEUES_ASKED:
            return tuple(waiting_queues), connected.free
        lanes = tuple(
            islice(
                (queue_key for queue_key in waiting_queues if connected.room_for(queue_key.type) > 0),
                _QUEUES_ASKED,
            )
        )
        if len(waiting_queues) > _QUEUES_ASKED:
            for queue_key in lanes:  # to the end of the row: the others have their turn
                del waiting_queues[queue_key]
                waiting_queues[queue_key] = None
        room = (
            min((connected.room_for(queue_key.type) for queue_key in lanes), default=0)
            if limits
            else connected.free
        )
        return lanes, room

    async def _ask(self, question: ClaimRequest) -> bool:
        """Let the worker have what the store gives it. True when that was all it could take."""
        connected, lanes, limit, asked = question
        try:
            tasks, exhausted = await self._tasks.claim_tasks(
                connected.worker, lanes, limit, self._clock.now()
            )
        except BaseException:
            self._connected.claimed(connected, limit, [])
            raise
        if not tasks and not exhausted:
            self._retry_later(connected, limit)
            return False
        self._connected.claimed(connected, limit, tasks)
        full = len(tasks) == limit
        if exhausted:
            self._clear(lanes, asked)
        if tasks and connected.reserved_for is not None:
            self._index.release_reserved(connected.reserved_for)
            self._news.update(dict.fromkeys(lanes))  # another worker for the next one that waits there
        if connected.worker_class is None:
            self._deliver(tasks)  # it is connected elsewhere by now, or is gone
        elif tasks:
            connected.connection.send(tasks)
        if not full or connected.worker.limits:
            self.slot_freed(
                connected
            )  # it has room for more than it asked for, and something may have come meanwhile
        return full

    def _retry_later(self, connected: ConnectedWorker, slots: int) -> None:
        """The store gives nothing to this worker: others get what waits while these slots stay reserved."""

        def free_again() -> None:
            self._connected.claimed(connected, slots, [])
            self.slot_freed(connected)

        asyncio.get_running_loop().call_later(_REFUSED_S, free_again)
