"""TaskTable: the live tasks of a store, where each of them waits, and which worker holds it."""

from collections.abc import Collection
from datetime import datetime

from msgspec.structs import replace

from ..model import HELD_STATES, AttemptState, QueueKey, Task, TaskWrite, Worker
from .base import DueKind, Hint, HintKind
from .codec import decode_task, encode
from .deadlines import DeadlineIndex
from .journal import JournalBatch
from .task_queues import ClientQueue, TaskQueues


class TaskCell:
    """A live task: its bytes, and where it is."""

    __slots__ = ("attempt", "body", "due", "job_id", "queue", "state", "worker_id")

    #: From the record.
    body: bytes
    attempt: int
    state: AttemptState
    #: The worker that holds it.
    worker_id: str | None

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        #: Its deadline, as the index has it.
        self.due: datetime | None = None
        #: Where it waits, if it does.
        self.queue: ClientQueue | None = None


class TaskTable:
    """Tasks by id. A task is linked to the queue in which it waits or to the worker that holds it."""

    def __init__(self, deadlines: DeadlineIndex) -> None:
        self._deadlines = deadlines
        self._cells: dict[str, TaskCell] = {}
        self._held: dict[str, dict[str, None]] = {}
        self.queues = TaskQueues()
        #: The newest session of each registered worker. A worker that is not here may be offered anything.
        self.sessions: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._cells)

    # -- reading ---------------------------------------------------------------------------------

    def find(self, task_id: str) -> Task | None:
        cell = self._cells.get(task_id)
        return decode_task(cell.body) if cell is not None else None

    def held_by(self, worker_id: str) -> list[Task]:
        return [decode_task(self._cells[task_id].body) for task_id in self._held.get(worker_id, ())]

    def holders(self) -> list[str]:
        return list(self._held)

    def fence_holds(self, job_id: str, write: TaskWrite) -> bool:
        """The stored task is in the attempt and one of the states that the write expects."""
        cell = self._cells.get(write.task.id)
        return (
            cell is not None
            and cell.job_id == job_id
            and cell.attempt == write.attempt
            and cell.state in write.states
        )

    def is_replaced(self, task: Task) -> bool:
        """The task is offered anew, to a session that its worker has replaced by a newer one."""
        if task.state is not AttemptState.OFFERED or task.session >= self.sessions.get(
            task.worker_id or "", 0
        ):
            return False
        cell = self._cells.get(task.id)
        return cell is None or cell.state is not AttemptState.OFFERED or cell.attempt != task.attempt

    # -- writing ---------------------------------------------------------------------------------

    def put(self, task: Task, body: bytes, batch: JournalBatch, notify_instance: str = "") -> bool:
        """Store the task. True if it is new. `wakes` names the only instance that should take it from its queue."""
        cell = self._cells.get(task.id)
        is_new = cell is None
        if cell is None:
            cell = self._cells[task.id] = TaskCell(task.job_id)
        else:
            self._unlink(task.id, cell)
        self._link(cell, task, body, batch, notify_instance)
        return is_new

    def _link(
        self, cell: TaskCell, task: Task, body: bytes, batch: JournalBatch, notify_instance: str
    ) -> None:
        """What follows from the record: deadline, and queue or worker. The cell is in neither."""
        cell.state = task.state
        cell.attempt = task.attempt
        cell.body = batch.tasks[task.id] = body
        cell.worker_id = task.worker_id if task.state in HELD_STATES else None
        due = task.deadline
        if due is not cell.due:
            cell.due = due
            if self._deadlines.set(DueKind.TASK, task.id, cell.job_id, due):
                batch.hints[Hint(HintKind.DEADLINE)] = None
        if cell.worker_id is not None:
            self._held.setdefault(cell.worker_id, {})[task.id] = None
            if task.cancel_requested:
                batch.hints[Hint(HintKind.CANCEL, cell.worker_id)] = None
        elif task.waiting:
            cell.queue = self.queues.add(task)
            batch.hints[Hint(HintKind.TASK, cell.queue.name, notify_instance)] = None

    def _unlink(self, task_id: str, cell: TaskCell) -> None:
        if cell.queue is not None:
            self.queues.discard(cell.queue, task_id)
            cell.queue = None
        elif cell.worker_id is not None:
            held = self._held[cell.worker_id]
            del held[task_id]
            if not held:
                del self._held[cell.worker_id]

    def drop(self, task_ids: Collection[str], batch: JournalBatch) -> None:
        """Remove these tasks."""
        for task_id in task_ids:
            cell = self._cells.pop(task_id)
            self._unlink(task_id, cell)
            if cell.due is not None:
                self._deadlines.set(DueKind.TASK, task_id, cell.job_id, None)
            batch.tasks[task_id] = None

    def claim(
        self, worker: Worker, keys: Collection[QueueKey], limit: int, now: datetime, batch: JournalBatch
    ) -> list[Task]:
        """Offer the best tasks that wait under these keys to the worker, in the open batch."""
        offered: list[Task] = []
        for task_id in self.queues.take(keys, limit):
            cell = self._cells[task_id]
            cell.queue = None
            task = _offered_to(decode_task(cell.body), worker, now)
            self._link(cell, task, encode(task), batch, "")
            offered.append(task)
        return offered


def _offered_to(task: Task, worker: Worker, now: datetime) -> Task:
    return replace(
        task,
        state=AttemptState.OFFERED,
        worker_id=worker.id,
        session=worker.session,
        price=worker.profile.cost_of(task.type),
        offered_at=now,
        seen_at=now,
    )


def requeued(task: Task) -> Task:
    """The task without its offer: it waits for another worker."""
    return replace(
        task, state=AttemptState.QUEUED, worker_id=None, session=0, price=0.0, offered_at=None, seen_at=None
    )
