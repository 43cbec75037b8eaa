"""Dispatcher: brings waiting tasks and free workers together, by push wherever it can."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from ..clock import Clock, add_seconds
from ..model import HELD_STATES, AttemptState, Job, QueueKey, Task, Worker
from ..model.explanation import Explanation, Score
from ..storage.base import StorageBackend
from .admission import Admission, AdmitAll
from .claimer import TaskClaimer, TaskSource
from .connected import ConnectedWorker, WorkerConnection
from .explain import class_facts, dry_run, explain
from .explain_job import Disconnection, explain_job, group_waiting_tasks
from .matcher import MatchIndex
from .peer_slots import PeerSlots

#: Kinds of waiting tasks of a job that are explained; those of a fan-out mostly wait for the same.
_GROUPS_EXPLAINED = 5
#: Found once: a member of an enum that is looked up on its class costs more than to write it down.
_OFFERED = AttemptState.OFFERED


class Dispatcher:
    """Two ways lead from a task to a worker.

    *Sync match*: `reserve` finds a free slot before the task is even written, so the offer rides in the
    commit that creates the task. *Pull*: a task that found no free worker waits in its queue, and a worker that
    frees a slot takes the best one it may run. While anything waits that a worker could do, new tasks
    queue up behind it: a fresh task never overtakes an older one.
    """

    def __init__(
        self,
        storage: StorageBackend,
        clock: Clock,
        tasks: TaskSource | None = None,
        admission: Admission | None = None,
    ) -> None:
        """`tasks` reads tasks with all their values; without it, as they are stored. `admission`: else all are allowed."""
        self._storage = storage
        self._tasks: TaskSource = tasks if tasks is not None else storage
        self._clock = clock
        self.match_index = MatchIndex()
        self._connected = self.match_index.connected
        #: A worker, if it is connected here.
        self.find = self._connected.find
        self._admission = admission if admission is not None else AdmitAll()
        self._claimer = TaskClaimer(
            storage, self._tasks, clock, self.match_index, self.deliver, self._admission
        )
        self.peers = PeerSlots()

    # -- workers ---------------------------------------------------------------------------------

    def connect(
        self,
        worker: Worker,
        connection: WorkerConnection,
        attempts: Iterable[str] | Mapping[str, str] = (),
        isolated: Iterable[str] = (),
        draining: bool = False,
    ) -> ConnectedWorker:
        """The worker can be offered tasks from now on. `attempts` are those that it still runs (→ their skill).

        Those of them that are `isolated` run alone. An earlier connection of the same worker no longer counts.
        """
        connected = ConnectedWorker(worker, connection, attempts, isolated)
        self._connected.add(connected)
        if draining:
            self._set_draining(connected, True)
        self._claimer.slot_freed(connected)
        if not self._claimer.synced:
            self.wake()
        return connected

    def move(
        self, connected: ConnectedWorker, worker: Worker, connection: WorkerConnection
    ) -> ConnectedWorker:
        """The worker goes on over another connection, with all that it holds. The old connection is closed."""
        old = connected.connection
        moved = self.connect(worker, connection, connected.attempts, connected.isolated, connected.draining)
        moved.last_seen, moved.renewed_at = connected.last_seen, connected.renewed_at
        old.close(1000, "the worker has another connection")
        return moved

    def disconnect(self, worker_id: str, session: int) -> None:
        """The worker is gone from this instance; what it held is the lease's business."""
        self._connected.remove(worker_id, session)

    def connected_workers(self) -> list[ConnectedWorker]:
        """All workers that are connected here."""
        return list(self._connected)

    def grant(self, worker_id: str, session: int, credit: int | None) -> bool:
        """Say how many further offers the worker takes; None: as many as it has slots.

        A long-poll worker takes none while no poll is open (FENCES 10). False when this session is not connected here.
        """
        connected = self._find_session(worker_id, session)
        if connected is not None:
            self.set_credit(connected, credit)
        return connected is not None

    def set_credit(self, connected: ConnectedWorker, credit: int | None) -> None:
        """The same, for a worker that was found."""
        self._connected.give(connected, credit)
        self._claimer.slot_freed(connected)

    def cut(self, worker_id: str, session: int) -> None:
        """Its stream is closed: it is offered nothing until it is back. What it holds is the lease's business."""
        connected = self._find_session(worker_id, session)
        if connected is not None:
            connected.disconnected_at = self._clock.now()
            self._connected.give(connected, 0)

    def drain(self, worker_id: str, on: bool = True) -> bool:
        """No new tasks for this worker, until further notice. False when it is not connected here."""
        connected = self._connected.find(worker_id)
        if connected is None:
            return False
        self._set_draining(connected, on)
        return True

    def _set_draining(self, connected: ConnectedWorker, on: bool) -> None:
        self._connected.drain(connected, on)
        connected.connection.set_draining(on)
        self._claimer.slot_freed(connected)

    def update(self, worker: Worker) -> bool:
        """What the worker brings along has changed (skills, hot set, price …); what it holds has not."""
        connected = self._find_session(worker.id, worker.session)
        if connected is not None:
            self._connected.change(connected, worker)
            self._claimer.slot_freed(connected)
        return connected is not None

    def _find_session(self, worker_id: str, session: int) -> ConnectedWorker | None:
        connected = self._connected.find(worker_id)
        return connected if connected is not None and connected.worker.session == session else None

    # -- sync match ------------------------------------------------------------------------------

    def reserve(self, task: Task, now: datetime) -> Task | None:
        """The task as offered to a worker with a free slot, or None: it has to wait in its queue."""
        queue_key = task.queue_key
        connected = None
        is_first = self._claimer.synced and queue_key not in self.match_index.waiting
        if is_first and not task.isolated and self._admission.allows(task):
            connected = self.match_index.choose(queue_key, fresh=True)
            if self.peers.classes and self.peers.better_than(connected, queue_key) is not None:
                return None  # it is woken for it, and nothing has to wait behind it here
        if connected is None:
            # From now on: the next one must not overtake it on its way to the store.
            self.match_index.mark_waiting(queue_key)
            return None
        attempt_id = task.attempt_id
        if attempt_id in connected.attempts:
            # Two decide the same (a result or a key that came twice): one of them will lose, and must not
            # take the other's slot along.
            return None
        self._connected.hold(connected, attempt_id, task.type)
        return offer(task, connected.worker, now)

    def peer_for(self, task: Task) -> str:
        """The instance that has a slot for a task which found none here; empty when nobody is known to have one."""
        if not self.peers.classes or (queue_key := task.queue_key) in self.match_index.waiting:
            return ""
        peer = self.peers.better_than(self.match_index.choose(queue_key, fresh=True), queue_key)
        return "" if peer is None else self.peers.leave(peer, queue_key)

    def deliver(self, tasks: Sequence[Task]) -> None:
        """Hand over what was offered. Only for tasks whose offer is flushed."""
        by_worker: dict[str, list[Task]] = {}
        for task in tasks:
            by_worker.setdefault(task.worker_id or "", []).append(task)
        for worker_id, group in by_worker.items():
            connected = self._connected.find(worker_id)
            # A worker that left meanwhile got nothing; its lapsed lease will say so.
            if connected is not None and connected.worker.session == group[0].session:
                if connected.unsent_offers:
                    self._connected.sent(connected, [task.attempt_id for task in group])
                connected.connection.send(group)

    def release(self, worker_id: str | None, attempt_id: str) -> None:
        """The attempt is no longer in the worker's hands. Twice is fine."""
        connected = self._connected.find(worker_id)
        if connected is not None and self._connected.release(connected, attempt_id):
            self._claimer.slot_freed(connected)

    def cancel(self, worker_id: str | None, attempt_ids: Sequence[str]) -> None:
        """Tell the worker to stop. Lost words are said again with its heartbeat."""
        connected = self._connected.find(worker_id)
        if connected is not None:
            connected.connection.cancel(attempt_ids)

    # -- questions -------------------------------------------------------------------------------

    async def explain(self, task: Task) -> Explanation:
        """Why the task is not being done: every condition, for how many workers, and what would change it."""
        lanes = await self._storage.queue_status()
        known = await self._storage.workers()
        others = [worker for worker in known if self._connected.find(worker.id) is None]
        return explain(task, lanes, class_facts(self._connected.classes, others, task.type))

    async def explain_job(self, job: Job) -> Explanation:
        """Why the job is where it is, down to its first waiting tasks."""
        tasks = await self._tasks.tasks_of(job.id)
        groups = group_waiting_tasks(tasks)
        about = [(await self.explain(group[0]), len(group)) for group in groups[:_GROUPS_EXPLAINED]]
        return explain_job(job, tasks, about, await self._absent(tasks))

    async def _absent(self, tasks: Sequence[Task]) -> dict[str, Disconnection]:
        """Those who hold one of the tasks and are connected to nobody."""
        holders = {task.worker_id for task in tasks if task.worker_id and task.state in HELD_STATES}
        known = {worker.id: worker for worker in await self._storage.workers()} if holders else {}
        found = {}
        for worker_id in holders:
            connected, worker = self._connected.find(worker_id), known.get(worker_id)
            if connected is not None:
                absence = _absence(connected.disconnected_at, connected.worker)
            else:
                absence = Disconnection() if worker is None else _absence(worker.disconnected_at, worker)
            if absence is not None:
                found[worker_id] = absence
        return found

    async def dry_run(self, task: Task) -> list[Score]:
        """Who would get the task now, best first. Nothing is assigned."""
        return dry_run(task, self._connected.classes)

    # -- pull ------------------------------------------------------------------------------------

    def task_queued(self, queue_key: QueueKey) -> None:
        """A task was left in a queue: workers with a free slot may take it."""
        self._claimer.task_queued(queue_key)

    def wake(self) -> None:
        """Look at all queues soon."""
        self._claimer.wake()

    def start(self) -> None:
        """Offer (again)."""
        self._claimer.start()

    async def stop(self) -> None:
        """No more offers from here."""
        await self._claimer.stop()


def _absence(disconnected_at: datetime | None, worker: Worker) -> Disconnection | None:
    """Since when it is not connected; its lease is over later than that by a lease at most: it was renewed before."""
    if disconnected_at is None:
        return None
    return Disconnection(
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
