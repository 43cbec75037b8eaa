"""Image: the hot state of a store, in memory, and the one place where a change is fenced and applied.

Synchronous and free of I/O: memory, sqlite and the simulated store all share it and differ only in
where its batches are written. Records are kept as their encoded bytes: a third of the size of live
objects, nothing for the garbage collector to walk, and whoever loads one owns a fresh copy.
"""

import logging
from collections import OrderedDict
from collections.abc import Collection, Iterable
from datetime import datetime
from itertools import islice
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from ..clock import Clock, SystemClock
from ..model import (
    HELD_STATES,
    AttemptState,
    Change,
    CommitOutcome,
    CommitStatus,
    Event,
    Job,
    JobMessage,
    JobSummary,
    OutboxEntry,
    QueueKey,
    Task,
    TaskWrite,
    Worker,
)
from .base import Due, DueKind, Hint, HintKind, Version
from .codec import decode_entry, decode_job, decode_message, decode_task, encode, encode_entry, readable
from .counters import Quotas, check_quota
from .deadlines import DeadlineIndex
from .journal import Batch, JobRow, Snapshot
from .lanes import Lanes, Line
from .ready import Leases, ReadyQueue
from .shelves import Shelves, check_items
from .told import Told

log = logging.getLogger("regista.storage")

_READY = Hint(HintKind.READY)
_DEADLINE = Hint(HintKind.DEADLINE)
#: Members that every commit needs: to find one through its class costs more than the rest of the line.
_CHANGED, _JOB, _TASK, _OFFERED = HintKind.CHANGED, DueKind.JOB, DueKind.TASK, AttemptState.OFFERED
#: `Hint(...)` and `JobRow(...)` at a third of the price.
_new = tuple.__new__
#: Commit tokens that are remembered at least. A repetition comes within milliseconds; so many commits do not.
_TOKENS_KEPT = 8_192
_APPLIED = CommitOutcome(CommitStatus.APPLIED)
_APPLIED_READY = CommitOutcome(CommitStatus.APPLIED, ready=True)
_REPEATED = CommitOutcome(CommitStatus.REPEATED)
_STALE = CommitOutcome(CommitStatus.STALE)
_MISSING = CommitOutcome(CommitStatus.MISSING)
_EXISTS = CommitOutcome(CommitStatus.EXISTS)
_OVER_QUOTA = CommitOutcome(CommitStatus.OVER_QUOTA)


class _JobCell:
    """A live job: its bytes, and what the store itself keeps about it."""

    __slots__ = ("body", "due", "going", "number", "open", "revision", "seq", "tasks", "version")

    def __init__(self, version: Version, client: str) -> None:
        self.version = version
        self.body = b""
        #: Its deadline, as the index has it.
        self.due: datetime | None = None
        #: Whose it is, while something may happen to it by itself; None: it is settled.
        self.going: str | None = client
        self.revision = 0
        self.seq = 0
        self.open = 0
        #: The batch that carries the newest write: readers wait for it.
        self.number = 0
        self.tasks: tuple[str, ...] | list[str] = ()


class _TaskCell:
    """A live task."""

    __slots__ = ("attempt", "body", "due", "job_id", "line", "state", "worker_id")

    #: What the record says.
    body: bytes
    attempt: int
    state: AttemptState
    #: Who may have it in its hands.
    worker_id: str | None

    def __init__(self, job_id: str) -> None:
        self.job_id = job_id
        #: Its deadline, as the index has it.
        self.due: datetime | None = None
        #: Where it waits, if it does.
        self.line: Line | None = None


#: An entry of the outbox, and its bytes.
_Told = tuple[OutboxEntry, bytes]


class _Birth(NamedTuple):
    """A child that can be written."""

    job: Job
    body: bytes
    told: _Told | None


class Image:
    """The volatile image. `apply` writes to memory and to the open batch in one go."""

    def __init__(self, keep_ended: int, clock: Clock | None = None) -> None:
        self._keep_ended = keep_ended
        clock = clock or SystemClock()
        self.shelves = Shelves(clock)
        self.quotas = Quotas(clock)
        self._jobs: dict[str, _JobCell] = {}
        self._ended: OrderedDict[str, tuple[bytes, int]] = OrderedDict()
        #: No job above this id was ever forgotten. Ids mostly grow, so for most new ones nobody has to look.
        self._forgotten = ""
        self._tasks: dict[str, _TaskCell] = {}
        self._held: dict[str, dict[str, None]] = {}
        #: The newest session of each registered worker. A worker that is not here may be offered anything.
        self.sessions: dict[str, int] = {}
        self.ready = ReadyQueue()
        self.leases = Leases()
        #: Each once, however many jobs have it.
        self._versions: dict[Version, Version] = {}
        self._clients: dict[str, str] = {}
        self._messages: dict[str, bytes] = {}
        #: The tokens of the last commits → their jobs, and those of the commits before them.
        self._tokens: dict[str, str] = {}
        self._older_tokens: dict[str, str] = {}
        #: What happened, on its way to history.
        self.told = Told()
        self.lanes = Lanes()
        self.deadlines = DeadlineIndex()

    # -- reading ---------------------------------------------------------------------------------

    def find_job(self, job_id: str) -> tuple[bytes, int] | None:
        """The bytes of a live or lately ended job, and the batch that carries them."""
        cell = self._jobs.get(job_id)
        return (cell.body, cell.number) if cell is not None else self._ended.get(job_id)

    def standing(self, job_id: str) -> tuple[bytes, int, str | None] | None:
        """The same, and whose job it is if it goes on; None in its place: it is settled."""
        cell = self._jobs.get(job_id)
        if cell is not None:
            return cell.body, cell.number, cell.going
        ended = self._ended.get(job_id)
        return None if ended is None else (*ended, None)

    def find_task(self, task_id: str) -> Task | None:
        cell = self._tasks.get(task_id)
        return decode_task(cell.body) if cell is not None else None

    def tasks_of(self, job_id: str) -> list[Task]:
        cell = self._jobs.get(job_id)
        return [decode_task(self._tasks[task_id].body) for task_id in cell.tasks] if cell else []

    def held_by(self, worker_id: str) -> list[Task]:
        return [decode_task(self._tasks[task_id].body) for task_id in self._held.get(worker_id, ())]

    def holders(self) -> list[str]:
        return list(self._held)

    def messages(self, limit: int) -> list[JobMessage]:
        return readable(decode_message, islice(self._messages.values(), limit))

    # -- changing --------------------------------------------------------------------------------

    def apply(
        self, change: Change, batch: Batch, number: int, instance: str, elapsed: float
    ) -> CommitOutcome:
        """Write the change whole, or refuse it and write nothing."""
        if change.job is None and not change.tasks:
            return self._consume(change, batch, number)
        cell = self._jobs.get(change.job_id)
        refusal = self._refuse(change, cell)
        if refusal is not None:
            return refusal
        # All is encoded before anything is written: what cannot be leaves no half behind.
        job = change.job
        drops = change.drop_tasks
        tasks: list[tuple[Task, bytes, str]] = []
        not_offered: list[str] = []
        for write in change.tasks:
            if drops and write.attempt:
                continue
            task = write.task
            if task.state is _OFFERED and self._is_replaced(task):
                task = requeued(task)
                not_offered.append(task.id)
            tasks.append((task, encode(task), write.notify_instance))
        messages = [(message, encode(message)) for message in change.messages] if change.messages else ()
        births = self._encode_births(change) if change.children else ()
        if change.records:
            check_items(change.records)
        quota = change.quota if cell is None else None  # only a creation counts
        if quota is not None:
            check_quota(quota)
        body = b"" if job is None else encode(job)
        ahead = sum(birth.told is not None for birth in births) if births else 0
        told = self._tell(ahead, change.job_id, 0 if cell is None else cell.seq, change.events, job)
        if cell is None:
            assert job is not None  # _refuse lets only a creation pass without a cell
            cell = self._open_cell(job)
        else:
            if job is not None:
                self.leases.let_go(job.id)
                self.ready.discard(cell.version, job.id)
            if drops:
                self._drop_tasks(cell, batch)
        for task, task_body, notify_instance in tasks:
            self._put_task(cell, task, task_body, batch, notify_instance)
        if change.opens_branches is not None:
            cell.open = change.opens_branches
        cell.open -= change.closes_branches
        for birth in births:
            self._bear(birth, batch, number)
        for message, message_body in messages:
            self._messages[message.id] = batch.messages[message.id] = message_body
            batch.hints[Hint(HintKind.MESSAGE, message.to_job)] = None
        if change.consumes_message is not None:
            del self._messages[change.consumes_message]
            batch.messages[change.consumes_message] = None
        if change.records:
            self.shelves.put(change.records, batch, number, fenced=False)
        if quota is not None:
            self.quotas.count(quota, batch)
        if job is not None:
            self._put_job(cell, job, body, batch)
        if told is not None:
            self._put_entry(cell, told, batch, number)
        cell.number = number
        if job is None:
            woken, live = self._wake(cell, change, batch), True
        else:
            woken, live = False, self._settle(cell, job, change.keep_lease_s, batch, instance, elapsed)
        batch.jobs[change.job_id] = _new(JobRow, (change.job_id, live, cell.seq, cell.open, cell.body))
        if not_offered:
            return CommitOutcome(CommitStatus.APPLIED, not_offered=tuple(not_offered))
        return _APPLIED_READY if woken else _APPLIED

    def _is_replaced(self, task: Task) -> bool:
        """Whether the task is offered anew, and to a session that its worker has replaced by a newer one."""
        newest = self.sessions.get(task.worker_id or "", 0)
        if task.session >= newest:
            return False
        known = self._tasks.get(task.id)
        return known is None or known.state is not _OFFERED or known.attempt != task.attempt

    def _refuse(self, change: Change, cell: _JobCell | None) -> CommitOutcome | None:
        """The fences: revision and token of the job, state of each task's attempt, the message."""
        ended = self._ended.get(change.job_id) if cell is None else None
        if ended is not None:
            # It may have ended between a write and its repetition: the token says so, as long as it is known.
            return _REPEATED if self._is_known(change) else refuse_ended(change, ended[0])
        if change.job is not None and change.expected is None:
            if cell is not None:
                return _REPEATED if self._was_applied(change, cell) else _EXISTS
            if change.quota is not None and not self.quotas.allows(change.quota):
                return _OVER_QUOTA
        elif cell is None:
            return _MISSING
        elif change.expected is not None and self._is_stale(cell, change):
            return _REPEATED if self._was_applied(change, cell) else _STALE
        for write in change.tasks:
            if write.attempt and not self._fence_holds(change.job_id, write):
                return _STALE
        if change.consumes_message is not None and change.consumes_message not in self._messages:
            return _STALE
        return None

    def _encode_births(self, change: Change) -> list[_Birth]:
        births: list[_Birth] = []
        ahead = 0
        for birth in change.children:
            job = birth.job
            if job.id in self._jobs or job.id in self._ended:
                continue  # its id follows from the parent's visit: it was born in an earlier, equal write
            told = self._tell(ahead, job.id, 0, birth.events, job)
            ahead += told is not None
            births.append(_Birth(job, encode(job), told))
        return births

    def _tell(
        self, ahead: int, job_id: str, seq: int, events: tuple[Event, ...], job: Job | None
    ) -> _Told | None:
        """The outbox entry of these events; `ahead` others of the same change come before it."""
        if not events:
            return None
        summary = None if job is None else summary_of(job)
        entry = OutboxEntry(self.told.last + ahead + 1, job_id, seq + 1, events, summary)
        return entry, encode_entry(entry)

    def _consume(self, change: Change, batch: Batch, number: int) -> CommitOutcome:
        """A message that changes nothing (any more), whether or not its job still lives."""
        check_items(change.records)
        if change.consumes_message is None or self._messages.pop(change.consumes_message, None) is None:
            return _STALE
        self.shelves.put(change.records, batch, number, fenced=False)
        batch.messages[change.consumes_message] = None
        return _APPLIED

    def _was_applied(self, change: Change, cell: _JobCell) -> bool:
        """Only the answer of the change was lost. Others may have written since."""
        if self._is_known(change):
            return True
        return decode_job(cell.body).token == change.token  # all that is known after a restart

    def _is_known(self, change: Change) -> bool:
        """Its token is among those of the last commits."""
        token = change.token
        return (self._tokens.get(token) or self._older_tokens.get(token)) == change.job_id

    def _is_stale(self, cell: _JobCell, change: Change) -> bool:
        return cell.revision != change.expected

    def _fence_holds(self, job_id: str, write: TaskWrite) -> bool:
        task = self._tasks.get(write.task.id)
        return (
            task is not None
            and task.job_id == job_id
            and task.attempt == write.attempt
            and task.state in write.states
        )

    def _open_cell(self, job: Job) -> _JobCell:
        version, client = (job.blueprint, job.version), job.client
        cell = self._jobs[job.id] = _JobCell(
            self._versions.setdefault(version, version), self._clients.setdefault(client, client)
        )
        return cell

    def _put_job(self, cell: _JobCell, job: Job, body: bytes, batch: Batch) -> None:
        version = (job.blueprint, job.version)
        if cell.version != version:
            cell.version = self._versions.setdefault(version, version)
        cell.body = body
        cell.revision = job.revision
        self._tokens[job.token] = job.id
        if len(self._tokens) >= _TOKENS_KEPT:
            self._tokens, self._older_tokens = {}, self._tokens
        due = job.deadline
        if due is not cell.due:
            cell.due = due
            if self.deadlines.set(_JOB, job.id, job.id, due):
                batch.hints[_DEADLINE] = None

    def _bear(self, birth: _Birth, batch: Batch, number: int) -> None:
        job = birth.job
        cell = self._open_cell(job)
        self._put_job(cell, job, birth.body, batch)
        if birth.told is not None:
            self._put_entry(cell, birth.told, batch, number)
        cell.number = number
        batch.jobs[job.id] = JobRow(job.id, True, cell.seq, 0, cell.body)
        self._make_ready(job.id, cell, batch)

    def _wake(self, cell: _JobCell, change: Change, batch: Batch) -> bool:
        """Only tasks were written: whoever closes the last branch makes the job ready. True: it is."""
        woken = change.closes_branches > 0 and cell.open == 0 and decode_job(cell.body).runnable(0)
        if woken:
            self._make_ready(change.job_id, cell, batch)
        return woken

    def _settle(
        self,
        cell: _JobCell,
        job: Job,
        keep_lease_s: float | None,
        batch: Batch,
        instance: str,
        elapsed: float,
    ) -> bool:
        """What follows from the new state: ready entry, lease, or the end. False: it has ended."""
        job_id, status = job.id, job.status
        if status.settled:
            batch.hints[_new(Hint, (_CHANGED, job_id, ""))] = None
            if status.terminal:
                self._end(job_id, cell, batch)
                return False
            cell.going = None
        elif cell.going is None:
            cell.going = job.client
        if job.runnable(cell.open):
            if keep_lease_s is not None:
                self.leases.take(job_id, instance, elapsed + keep_lease_s)
            else:
                self._make_ready(job_id, cell, batch)
        return True

    def _end(self, job_id: str, cell: _JobCell, batch: Batch) -> None:
        if cell.tasks:
            self._drop_tasks(cell, batch)
        del self._jobs[job_id]
        self._ended[job_id] = (cell.body, cell.number)

    def drop_ended(self, job_ids: Iterable[str]) -> None:
        """Let go of these ended jobs, cached or not."""
        for job_id in job_ids:
            self._ended.pop(job_id, None)

    def forget_ended(self, flushed: int) -> None:
        """Let go of the oldest ended jobs that are durable, beyond the number to keep."""
        beyond = len(self._ended) - self._keep_ended
        if beyond <= 0:
            return
        for job_id, (_, number) in list(islice(self._ended.items(), beyond)):
            if number > flushed:
                return
            del self._ended[job_id]
            if job_id > self._forgotten:
                self._forgotten = job_id

    def may_be_forgotten(self, job_id: str) -> bool:
        """A job that is not here may be known to the journal."""
        return job_id <= self._forgotten

    def _put_entry(self, cell: _JobCell, told: _Told, batch: Batch, number: int) -> None:
        entry, body = told
        cell.seq += len(entry.events)
        self.told.put(number, entry)
        batch.entries.append((entry.number, body))

    # -- tasks -----------------------------------------------------------------------------------

    def _put_task(
        self, job: _JobCell, task: Task, body: bytes, batch: Batch, notify_instance: str = ""
    ) -> None:
        task_id = task.id
        cell = self._tasks.get(task_id)
        if cell is not None:
            self._unlink(task_id, cell)
        else:
            cell = self._tasks[task_id] = _TaskCell(task.job_id)
            # Mostly there is one task, and a tuple of one is half a list; more of them grow in place.
            if not job.tasks:
                job.tasks = (task_id,)
            elif isinstance(job.tasks, tuple):
                job.tasks = [*job.tasks, task_id]
            else:
                job.tasks.append(task_id)
        self._show_task(task_id, cell, task, body, batch, notify_instance)

    def _show_task(
        self, task_id: str, cell: _TaskCell, task: Task, body: bytes, batch: Batch, notify_instance: str
    ) -> None:
        """What follows from the record: deadline, and lane or worker. The cell is in neither."""
        cell.state = state = task.state
        cell.attempt = task.attempt
        cell.body = batch.tasks[task_id] = body
        cell.worker_id = worker_id = task.worker_id if state in HELD_STATES else None
        due = task.deadline
        if due is not cell.due:
            cell.due = due
            if self.deadlines.set(_TASK, task_id, cell.job_id, due):
                batch.hints[_DEADLINE] = None
        if worker_id is not None:
            held = self._held.get(worker_id)
            if held is None:
                held = self._held[worker_id] = {}
            held[task_id] = None
            if task.cancel_requested:
                batch.hints[Hint(HintKind.CANCEL, worker_id)] = None
        elif task.waiting:
            cell.line, hint = self.lanes.add(task.queue_key, task)
            batch.hints[Hint(hint.kind, hint.id, notify_instance) if notify_instance else hint] = None

    def _unlink(self, task_id: str, cell: _TaskCell) -> None:
        if cell.line is not None:
            self.lanes.discard(cell.line, task_id)
            cell.line = None
        elif cell.worker_id is not None:
            held = self._held[cell.worker_id]
            del held[task_id]
            if not held:
                del self._held[cell.worker_id]

    def _drop_tasks(self, job: _JobCell, batch: Batch) -> None:
        for task_id in job.tasks:
            cell = self._tasks.pop(task_id)
            self._unlink(task_id, cell)
            if cell.due is not None:
                self.deadlines.set(_TASK, task_id, cell.job_id, None)
            batch.tasks[task_id] = None
        job.tasks = ()

    def claim_tasks(
        self,
        worker: Worker,
        lanes: Collection[QueueKey],
        limit: int,
        now: datetime,
        batch: Batch,
        number: int,
    ) -> list[Task]:
        """Offer the best tasks that wait in these lanes to the worker, in the open batch."""
        worker_id, session, profile = worker.id, worker.session, worker.profile
        offered: list[Task] = []
        for task_id in self.lanes.take(lanes, limit):
            cell = self._tasks[task_id]
            cell.line = None
            waiting = decode_task(cell.body)
            task = replace(
                waiting,
                state=_OFFERED,
                worker_id=worker_id,
                session=session,
                price=profile.cost_of(waiting.type),
                offered_at=now,
                seen_at=now,
            )
            self._show_task(task_id, cell, task, encode(task), batch, "")
            self._jobs[cell.job_id].number = number
            offered.append(task)
        return offered

    def place(self, task_id: str) -> int | None:
        cell = self._tasks.get(task_id)
        return cell.line.place(task_id) if cell is not None and cell.line is not None else None

    # -- ready queue -----------------------------------------------------------------------------

    def _make_ready(self, job_id: str, cell: _JobCell, batch: Batch | None) -> None:
        self.ready.add(cell.version, job_id, cell.revision)
        if batch is not None:
            batch.hints[_READY] = None

    def claim_ready(
        self, instance: str, versions: Collection[Version], limit: int, elapsed: float, lease_s: float
    ) -> list[Job]:
        self._return_lapsed(elapsed)
        claimed: list[Job] = []
        entries = self.ready.take(versions)
        while len(claimed) < limit and (entry := next(entries, None)) is not None:
            job_id, revision = entry
            cell = self._jobs.get(job_id)
            # An entry for a revision that has passed is dropped.
            if cell is not None and cell.revision == revision and job_id not in self.leases:
                self.leases.take(job_id, instance, elapsed + lease_s)
                claimed.append(decode_job(cell.body))
        return claimed

    def _return_lapsed(self, elapsed: float) -> None:
        """Put jobs whose lease is over back in line."""
        self._return(self.leases.lapsed(elapsed))

    def relinquish(self, instance: str) -> int:
        return self._return(self.leases.relinquished(instance))

    def _return(self, job_ids: list[str]) -> int:
        for job_id in job_ids:
            cell = self._jobs[job_id]
            if decode_job(cell.body).runnable(cell.open):
                self._make_ready(job_id, cell, None)
        return len(job_ids)

    def extend(self, instance: str, job_ids: Collection[str], until: float) -> list[str]:
        kept = [job_id for job_id in job_ids if self.leases.holder(job_id) == instance]
        for job_id in kept:
            self.leases.take(job_id, instance, until)
        return kept

    def stranded(self, attended: Collection[Version], limit: int, elapsed: float) -> list[Job]:
        self._return_lapsed(elapsed)
        return [decode_job(self._jobs[job_id].body) for job_id in islice(self.ready.others(attended), limit)]

    def due(self, now: datetime, limit: int) -> list[Due]:
        return self.deadlines.due(now, limit)

    # -- recovery --------------------------------------------------------------------------------

    def restore(self, snapshot: Snapshot, first_entry: int) -> None:
        """Rebuild everything from what the journal kept. Leases are gone: nobody holds anything.

        A row that cannot be read is named in the log and left alone: one spoiled job must not keep all
        the others from going on.
        """
        self._forgotten = snapshot.last_id
        self.shelves.restore(snapshot.items)
        self.quotas.restore(snapshot.counts)
        for message in readable(decode_message, snapshot.messages):
            self._messages[message.id] = encode(message)
        for row in snapshot.jobs:
            try:
                job = decode_job(row.body)
            except msgspec.MsgspecError as error:
                log.error(
                    "job %s cannot be read and is left alone: %s", row.id, error, extra={"job_id": row.id}
                )
                continue
            self._restore_job(row, job)
        scratch = Batch()
        # Equal tasks of one job wait in dispatch order again; those of different jobs in the order of the
        # jobs' ids, which is that of their birth.
        for task in sorted(readable(decode_task, snapshot.tasks), key=lambda task: (task.job_id, task.index)):
            cell = self._jobs.get(task.job_id)
            if cell is not None:
                self._put_task(cell, task, encode(task), scratch)
        for entry in readable(decode_entry, snapshot.entries):
            self.told.put(0, entry)
        self.told.last = max(self.told.last, first_entry)

    def _restore_job(self, row: JobRow, job: Job) -> None:
        cell = self._open_cell(job)
        cell.body, cell.revision = row.body, job.revision
        cell.seq, cell.open = row.seq, row.open_branches
        if job.status.settled:
            cell.going = None
        cell.due = job.deadline
        self.deadlines.set(_JOB, job.id, job.id, cell.due)
        if job.runnable(cell.open):
            self._make_ready(job.id, cell, None)


def requeued(task: Task) -> Task:
    """The task without its offer: it waits for another worker."""
    return replace(
        task, state=AttemptState.QUEUED, worker_id=None, session=0, price=0.0, offered_at=None, seen_at=None
    )


def refuse_ended(change: Change, body: bytes) -> CommitOutcome:
    """The answer of a job that has ended: nothing moves it, but its own last change had been applied."""
    if change.job is None:
        return _STALE
    if decode_job(body).token == change.token:
        return _REPEATED
    return _EXISTS if change.expected is None else _STALE


def summary_of(job: Job) -> JobSummary:
    """The row that lists and searches read."""
    return JobSummary(
        job_id=job.id,
        blueprint=job.blueprint,
        version=job.version,
        client=job.client,
        status=job.status,
        state=job.state,
        created_at=job.created_at,
        updated_at=job.updated_at,
        finished_at=job.finished_at,
        parent_id=job.parent_id,
        error_code=job.error.code if job.error else None,
        search_attributes=job.search_attributes,
    )
