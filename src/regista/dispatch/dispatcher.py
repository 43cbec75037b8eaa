"""Dispatcher: brings waiting tasks and free workers together, by push wherever it can."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from ..clock import Clock, add_seconds
from ..model import HELD_STATES, AttemptState, Job, QueueKey, Task, Worker
from ..storage.base import StorageBackend
from .claimer import Puller
from .connected import Cancel, Seat, Send
from .elsewhere import Elsewhere
from .explain import Explanation, Score, dry_run, explain, facts_of
from .explain_job import Absence, alike, explain_job
from .matcher import Board

#: Kinds of waiting tasks of a job that are explained; those of a fan-out mostly wait for the same.
_GROUPS_EXPLAINED = 5
#: Found once: a member of an enum that is looked up on its class costs more than to write it down.
_OFFERED = AttemptState.OFFERED


class Dispatcher:
    """Two ways lead from a task to a worker.

    *Sync match*: `reserve` finds a free slot before the task is even written, so the offer rides in the
    commit that creates the task. *Pull*: a task that found nobody waits in its lane, and a worker that
    frees a slot takes the best one it may run. While anything waits that a worker could do, new tasks
    queue up behind it: a fresh task never overtakes an older one.
    """

    def __init__(self, storage: StorageBackend, clock: Clock) -> None:
        self._storage = storage
        self._clock = clock
        self.board = Board()
        self._seats = self.board.seats
        #: The seat of a worker, if it is connected here.
        self.find = self._seats.find
        self._puller = Puller(storage, clock, self.board, self.deliver)
        self.elsewhere = Elsewhere()

    # -- workers ---------------------------------------------------------------------------------

    def seat(
        self,
        worker: Worker,
        send: Send,
        cancel: Cancel,
        holding: Iterable[str] | Mapping[str, str] = (),
        isolated: Iterable[str] = (),
    ) -> Seat:
        """Give a connected worker its seat; `holding` are the attempts that it still runs (→ their skill).

        Those of them that are `isolated` run alone.
        """
        seat = Seat(worker, send, cancel, holding, isolated)
        self._seats.add(seat)
        self._puller.freed(seat)
        if not self._puller.informed:
            self.wake()
        return seat

    def unseat(self, worker_id: str, session: int) -> None:
        """The worker is gone from this instance; what it held is the lease's business."""
        self._seats.remove(worker_id, session)

    def seats(self) -> list[Seat]:
        """Everybody who is connected here."""
        return list(self._seats)

    def grant(self, worker_id: str, session: int, credit: int | None) -> bool:
        """Say how many further offers the worker takes; None: as many as it has slots.

        A long-poll worker has none while no poll is open (FENCES 10). False when it has no such seat.
        """
        seat = self._seat_of(worker_id, session)
        if seat is not None:
            self.give(seat, credit)
        return seat is not None

    def give(self, seat: Seat, credit: int | None) -> None:
        """The same, for a seat that somebody has at hand."""
        self._seats.give(seat, credit)
        self._puller.freed(seat)

    def add_credit(self, worker_id: str, session: int, more: int) -> bool:
        """The worker takes so many offers more (or fewer), whatever is on its way to it meanwhile."""
        seat = self._seat_of(worker_id, session)
        if seat is not None:
            self._seats.add_credit(seat, more)
            self._puller.freed(seat)
        return seat is not None

    def cut(self, worker_id: str, session: int) -> None:
        """Its stream is closed: it is offered nothing until it is back. What it holds is the lease's business."""
        seat = self._seat_of(worker_id, session)
        if seat is not None:
            seat.disconnected_at = self._clock.now()
            self._seats.give(seat, 0)

    def drain(self, worker_id: str, on: bool = True) -> bool:
        """No new tasks for this worker, until further notice. False when it is not connected here."""
        seat = self._seats.find(worker_id)
        if seat is None:
            return False
        self._seats.drain(seat, on)
        self._puller.freed(seat)
        return True

    def update(self, worker: Worker) -> bool:
        """What the worker brings along has changed (skills, hot set, price …); what it holds has not."""
        seat = self._seat_of(worker.id, worker.session)
        if seat is not None:
            self._seats.change(seat, worker)
            self._puller.freed(seat)
        return seat is not None

    def _seat_of(self, worker_id: str, session: int) -> Seat | None:
        seat = self._seats.find(worker_id)
        return seat if seat is not None and seat.worker.session == session else None

    # -- sync match ------------------------------------------------------------------------------

    def reserve(self, task: Task, now: datetime) -> Task | None:
        """The task as offered to a worker with a free slot, or None: it has to wait in its lane."""
        queue_key = task.queue_key
        seat = None
        if self._puller.informed and queue_key not in self.board.waiting and not task.isolated:
            seat = self.board.choose(queue_key, fresh=True)
            if self.elsewhere.rivals and self.elsewhere.better_than(seat, queue_key) is not None:
                return None  # it is woken for it, and nothing has to wait behind it here
        if seat is None:
            self.board.waits(
                queue_key
            )  # from now on: the next one must not overtake it on its way to the store
            return None
        attempt_id = task.attempt_id
        if attempt_id in seat.holding:
            # Two decide the same (a result or a key that came twice): one of them will lose, and must not
            # take the other's slot along.
            return None
        self._seats.hold(seat, attempt_id, task.type)
        return offer(task, seat.worker, now)

    def whom_to_wake(self, task: Task) -> str:
        """The instance that has a slot for a task which found none here; empty when nobody is known to have one."""
        if not self.elsewhere.rivals or (queue_key := task.queue_key) in self.board.waiting:
            return ""
        rival = self.elsewhere.better_than(self.board.choose(queue_key, fresh=True), queue_key)
        return "" if rival is None else self.elsewhere.leave(rival, queue_key)

    def deliver(self, tasks: Sequence[Task]) -> None:
        """Hand over what was offered. Only for tasks whose offer is flushed."""
        by_worker: dict[str, list[Task]] = {}
        for task in tasks:
            by_worker.setdefault(task.worker_id or "", []).append(task)
        for worker_id, group in by_worker.items():
            seat = self._seats.find(worker_id)
            # A worker that left meanwhile got nothing; its lapsed lease will say so.
            if seat is not None and seat.worker.session == group[0].session:
                if seat.unsent:
                    self._seats.sent(seat, [task.attempt_id for task in group])
                seat.send(group)

    def release(self, worker_id: str | None, attempt_id: str) -> None:
        """The attempt is no longer in the worker's hands. Twice is fine."""
        seat = self._seats.find(worker_id)
        if seat is not None and self._seats.let_go(seat, attempt_id):
            self._puller.freed(seat)

    def cancel(self, worker_id: str | None, attempt_ids: Sequence[str]) -> None:
        """Tell the worker to stop. Lost words are said again with its heartbeat."""
        seat = self._seats.find(worker_id)
        if seat is not None:
            seat.cancel(attempt_ids)

    # -- questions -------------------------------------------------------------------------------

    async def explain(self, task: Task) -> Explanation:
        """Why the task is not being done: every condition, for how many workers, and what would change it."""
        lanes, place = await self._storage.lanes(), await self._storage.place(task.id)
        known = await self._storage.workers()
        others = [worker for worker in known if self._seats.find(worker.id) is None]
        return explain(task, lanes, facts_of(self._seats.kinds, others, task.type), place)

    async def explain_job(self, job: Job) -> Explanation:
        """Why the job is where it is, down to its first waiting tasks."""
        tasks = await self._storage.tasks_of(job.id)
        groups = alike(tasks)
        about = [(await self.explain(group[0]), len(group)) for group in groups[:_GROUPS_EXPLAINED]]
        return explain_job(job, tasks, about, await self._absent(tasks))

    async def _absent(self, tasks: Sequence[Task]) -> dict[str, Absence]:
        """Those who hold one of the tasks and are connected to nobody."""
        holders = {task.worker_id for task in tasks if task.worker_id and task.state in HELD_STATES}
        known = {worker.id: worker for worker in await self._storage.workers()} if holders else {}
        found = {}
        for worker_id in holders:
            seat, worker = self._seats.find(worker_id), known.get(worker_id)
            if seat is not None:
                absence = _absence(seat.disconnected_at, seat.worker)
            else:
                absence = Absence() if worker is None else _absence(worker.disconnected_at, worker)
            if absence is not None:
                found[worker_id] = absence
        return found

    async def dry_run(self, task: Task) -> list[Score]:
        """Who would get the task now, best first. Nothing is assigned."""
        return dry_run(task, self._seats.kinds)

    # -- pull ------------------------------------------------------------------------------------

    def tasks_wait(self, queue_key: QueueKey) -> None:
        """A task was left in a lane: whoever has a free slot should look."""
        self._puller.tasks_wait(queue_key)

    def wake(self) -> None:
        """Look at all lanes soon."""
        self._puller.wake()

    def start(self) -> None:
        """Offer (again)."""
        self._puller.start()

    async def stop(self) -> None:
        """No more offers from here."""
        await self._puller.stop()


def _absence(disconnected_at: datetime | None, worker: Worker) -> Absence | None:
    """Since when it is not connected; its lease is over later than that by a lease at most: it was renewed before."""
    if disconnected_at is None:
        return None
    return Absence(
        disconnected_at, None if worker.lease_s is None else add_seconds(disconnected_at, worker.lease_s)
    )


def offer(task: Task, worker: Worker, now: datetime) -> Task:
    """The task in the hands of a worker."""
    return replace(
        task,
        state=_OFFERED,
        worker_id=worker.id,
        session=worker.session,
        price=worker.profile.cost_of(task.type),
        offered_at=now,
        seen_at=now,
    )
