"""Dispatcher: brings waiting tasks and free workers together, by push wherever it can."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from datetime import datetime

from msgspec.structs import replace

from ..clock import Clock
from ..errors import StorageFailed
from ..fleet.seats import Cancel, Seat, Seats, Send
from ..model import AttemptState, Task, Worker
from ..storage.base import StorageBackend

log = logging.getLogger("regista.dispatch")


class Dispatcher:
    """Two ways lead from a task to a worker.

    *Sync match*: `reserve` finds a free slot before the task is even written, so the offer rides in the
    commit that creates the task. *Pull*: a task that found nobody waits in its lane, and a worker that
    frees a slot takes the best one it may run. While anything waits, new tasks queue up behind it:
    a fresh task never overtakes an older one.
    """

    def __init__(self, storage: StorageBackend, clock: Clock) -> None:
        self._storage = storage
        self._clock = clock
        self._seats = Seats()
        #: Lanes in which something came to wait since their workers were last asked.
        self._waiting: dict[tuple[str, str], None] = {}
        self._puller: asyncio.Task[None] | None = None
        self._again = False
        self._closed = False

    # -- workers ---------------------------------------------------------------------------------

    def seat(self, worker: Worker, send: Send, cancel: Cancel, holding: Iterable[str] = ()) -> Seat:
        """Give a connected worker its seat; `holding` are the attempts that it still runs."""
        seat = Seat(worker, send, cancel)
        seat.holding.update(dict.fromkeys(holding))
        self._seats.add(seat)
        self.wake()
        return seat

    def unseat(self, worker_id: str, session: int) -> None:
        """The worker is gone from this instance; what it held is the lease's business."""
        self._seats.remove(worker_id, session)

    def find(self, worker_id: str | None) -> Seat | None:
        """The seat of a worker, if it is connected here."""
        return self._seats.find(worker_id)

    def seats(self) -> list[Seat]:
        """Everybody who is connected here."""
        return list(self._seats)

    # -- sync match ------------------------------------------------------------------------------

    def reserve(self, task: Task, now: datetime) -> Task | None:
        """The task as offered to a worker with a free slot, or None: it has to wait in its lane."""
        lane = task.lane
        seat = self._seats.best(lane) if lane not in self._waiting else None
        if seat is None:
            return None
        seat.holding[task.attempt_id] = None
        return offer(task, seat.worker, now)

    def deliver(self, tasks: Sequence[Task]) -> None:
        """Hand over what was offered. Only for tasks whose offer is flushed."""
        by_worker: dict[str, list[Task]] = {}
        for task in tasks:
            by_worker.setdefault(task.worker_id or "", []).append(task)
        for worker_id, group in by_worker.items():
            seat = self._seats.find(worker_id)
            # A worker that left meanwhile got nothing; its lapsed lease will say so.
            if seat is not None and seat.worker.session == group[0].session:
                seat.send(group)

    def release(self, worker_id: str | None, attempt_id: str) -> None:
        """The attempt is no longer in the worker's hands. Twice is fine."""
        seat = self._seats.find(worker_id)
        had = seat is not None and seat.holding.pop(attempt_id, self) is None
        if had and seat is not None and (self._waiting or not seat.asked):
            self.wake()

    def cancel(self, worker_id: str | None, attempt_ids: Sequence[str]) -> None:
        """Tell the worker to stop. Lost words are said again with its heartbeat."""
        seat = self._seats.find(worker_id)
        if seat is not None:
            seat.cancel(attempt_ids)

    # -- pull ------------------------------------------------------------------------------------

    def tasks_wait(self, lane: tuple[str, str]) -> None:
        """A task was left in a lane: whoever has a free slot should look."""
        self._waiting[lane] = None
        self.wake()

    def wake(self) -> None:
        """Look at the lanes soon."""
        self._again = True
        if self._puller is None and not self._closed:
            self._puller = asyncio.get_running_loop().create_task(self._pull(), name="dispatcher-pull")

    def start(self) -> None:
        """Offer (again)."""
        self._closed = False

    async def stop(self) -> None:
        """No more offers from here."""
        self._closed = True
        if self._puller is not None:
            self._puller.cancel()
            await asyncio.gather(self._puller, return_exceptions=True)

    async def _pull(self) -> None:
        try:
            while self._again:
                self._again = False
                await self._fill()
        except StorageFailed:
            pass  # the store has told the orchestrator; nothing more can be offered
        except Exception:
            log.exception(
                "pulling tasks failed; the next wake tries again", extra={"action": "dispatch_pull"}
            )
        finally:
            self._puller = None

    async def _fill(self) -> None:
        """Offer waiting tasks to every free slot; afterwards we know better which lanes are empty."""
        for seat in self._seats:
            free = seat.free
            if free == 0:
                seat.asked = False
                continue
            # What comes to wait while the store is asked was not seen by it: it stays marked.
            seen, self._waiting = self._waiting, {}
            seat.asked = False  # no sync match may take these slots meanwhile
            tasks = await self._storage.claim_tasks(seat.worker, free, self._clock.now())
            seat.holding.update(dict.fromkeys(task.attempt_id for task in tasks))
            seat.asked = len(tasks) < free
            for lane in seen:
                if not (seat.asked and seat.worker.serves(*lane)):
                    self._waiting[lane] = None
            self.deliver(tasks)


def offer(task: Task, worker: Worker, now: datetime) -> Task:
    """The task in the hands of a worker."""
    return replace(
        task,
        state=AttemptState.OFFERED,
        worker_id=worker.id,
        session=worker.session,
        offered_at=now,
        seen_at=now,
    )
