"""State: the hot state of a store, in memory, and the one place where a change is fenced and applied.

Synchronous and free of I/O: memory, sqlite and the simulated store all share it and differ only in
where its batches are written. Records are kept as their encoded bytes: a third of the size of live
objects, nothing for the garbage collector to walk, and each load returns a fresh copy.
"""

import logging
from collections import OrderedDict
from collections.abc import Collection, Iterable
from datetime import datetime
from itertools import islice
from typing import NamedTuple

import msgspec

from ..clock import Clock, SystemClock
from ..model import (
    Change,
    CommitOutcome,
    CommitStatus,
    Event,
    Job,
    JobMessage,
    OutboxEntry,
    QueueKey,
    Task,
    Worker,
)
from .base import Due, DueKind, Hint, HintKind, Version
from .codec import decode_entry, decode_job, decode_message, decode_task, encode, readable
from .counters import QuotaCounters, check_quota
from .deadlines import DeadlineIndex
from .index_fields import summary_of
from .journal import JobRow, JournalBatch, Snapshot
from .outbox import OutboxIndex
from .ready_queue import Leases, ReadyQueue
from .records import RecordTable, check_records
from .task_table import TaskTable, requeued

log = logging.getLogger("regista.storage")

#: Commit tokens that are remembered at least. A repetition comes within milliseconds; so many commits do not.
_TOKENS_KEPT = 8_192
_REPEATED = CommitOutcome(CommitStatus.REPEATED)
_STALE = CommitOutcome(CommitStatus.STALE)


class _JobCell:
    """A live job: its bytes, and what the store itself keeps about it."""

    __slots__ = ("body", "due", "number", "open", "revision", "seq", "tasks", "version")

    def __init__(self, version: Version) -> None:
        self.version = version
        self.body = b""
        #: Its deadline, as the index has it.
        self.due: datetime | None = None
        self.revision = 0
        self.seq = 0
        self.open = 0
        #: The batch that carries the newest write: readers wait for it.
        self.number = 0
        self.tasks: tuple[str, ...] | list[str] = ()


class _EncodedEntry(NamedTuple):
    """An entry of the outbox, and its bytes."""

    entry: OutboxEntry
    body: bytes


class _EncodedChild(NamedTuple):
    """A child that can be written."""

    job: Job
    body: bytes
    entry: _EncodedEntry | None


class _Encoded(NamedTuple):
    """A change that can be written: everything in it is encoded, so nothing is written by half."""

    job: bytes
    tasks: list[tuple[Task, bytes, str]]
    not_offered: tuple[str, ...]
    messages: list[tuple[JobMessage, bytes]]
    children: list[_EncodedChild]
    entry: _EncodedEntry | None


class State:
    """The volatile state. `apply` writes to memory and to the open batch in one go."""

    def __init__(self, keep_ended: int, clock: Clock | None = None) -> None:
        self._keep_ended = keep_ended
        clock = clock or SystemClock()
        self.records = RecordTable(clock)
        self.quotas = QuotaCounters(clock)
        self._jobs: dict[str, _JobCell] = {}
        self._ended: OrderedDict[str, tuple[bytes, int]] = OrderedDict()
        #: No job above this id was ever forgotten. Ids mostly grow, so most new ones need no look at the journal.
        self._forgotten = ""
        self.deadlines = DeadlineIndex()
        self.tasks = TaskTable(self.deadlines)
        self.ready = ReadyQueue()
        self.leases = Leases()
        #: Each version once, however many jobs have it.
        self._versions: dict[Version, Version] = {}
        self._messages: dict[str, bytes] = {}
        #: The tokens of the last commits → their jobs, and those of the commits before them.
        self._tokens: dict[str, str] = {}
        self._older_tokens: dict[str, str] = {}
        self.outbox = OutboxIndex()

    # -- reading ---------------------------------------------------------------------------------

    def find_job(self, job_id: str) -> tuple[bytes, int] | None:
        """The bytes of a live or lately ended job, and the batch that carries them."""
        cell = self._jobs.get(job_id)
        return (cell.body, cell.number) if cell is not None else self._ended.get(job_id)

    def tasks_of(self, job_id: str) -> list[Task]:
        cell = self._jobs.get(job_id)
        found = map(self.tasks.find, cell.tasks) if cell is not None else ()
        return [task for task in found if task is not None]

    def messages(self, limit: int) -> list[JobMessage]:
        return readable(decode_message, islice(self._messages.values(), limit))

    def due(self, now: datetime, limit: int) -> list[Due]:
        return self.deadlines.due(now, limit)

    # -- changing --------------------------------------------------------------------------------

    def apply(
        self, change: Change, batch: JournalBatch, number: int, instance: str, elapsed: float
    ) -> CommitOutcome:
        """Write the change whole, or refuse it and write nothing."""
        if change.job is None and not change.tasks:
            return self._consume(change, batch, number)
        cell = self._jobs.get(change.job_id)
        refusal = self._check_fences(change, cell)
        if refusal is not None:
            return refusal
        encoded = self._encode(change, cell)
        job = change.job
        if cell is None:
            assert job is not None  # _check_fences lets only a creation pass without a cell
            cell = self._open_cell(job)
            if change.quota is not None:  # only a creation counts
                self.quotas.count(change.quota, batch)
        elif job is not None:
            self.leases.let_go(job.id)
            self.ready.discard(cell.version, job.id)
        self._write_tasks(change, cell, encoded, batch)
        self._write_others(change, encoded, batch, number)
        if job is not None:
            self._put_job(cell, job, encoded.job, batch)
        if encoded.entry is not None:
            self._put_entry(cell, encoded.entry, batch, number)
        cell.number = number
        if job is None:
            woken, live = self._wake(cell, change, batch), True
        else:
            woken, live = False, self._after_status(cell, job, change.keep_lease_s, batch, instance, elapsed)
        batch.jobs[change.job_id] = JobRow(change.job_id, live, cell.seq, cell.open, cell.body)
        return CommitOutcome(CommitStatus.APPLIED, ready=woken, not_offered=encoded.not_offered)

    def _check_fences(self, change: Change, cell: _JobCell | None) -> CommitOutcome | None:
        """Revision and token of the job, state of each task's attempt, the message. None: all hold."""
        ended = self._ended.get(change.job_id) if cell is None else None
        if ended is not None:
            # It may have ended between a write and its repetition: the token says so, as long as it is known.
            return _REPEATED if self._is_known(change) else refuse_ended(change, ended[0])
        if change.job is not None and change.expected is None:
            if cell is not None:
                return _REPEATED if self._was_applied(change, cell) else CommitOutcome(CommitStatus.EXISTS)
            if change.quota is not None and not self.quotas.allows(change.quota):
                return CommitOutcome(CommitStatus.OVER_QUOTA)
        elif cell is None:
            return CommitOutcome(CommitStatus.MISSING)
        elif change.expected is not None and self._is_stale(cell, change):
            return _REPEATED if self._was_applied(change, cell) else _STALE
        for write in change.tasks:
            if write.attempt and not self.tasks.fence_holds(change.job_id, write):
                return _STALE
        if change.consumes_message is not None and change.consumes_message not in self._messages:
            return _STALE
        return None

    def _encode(self, change: Change, cell: _JobCell | None) -> _Encoded:
        """Encode all records of the change; raises one of UNENCODABLE before anything is written."""
        tasks: list[tuple[Task, bytes, str]] = []
        not_offered: list[str] = []
        for write in change.tasks:
            if change.drop_tasks and write.attempt:
                continue  # only checked
            task = write.task
            if self.tasks.is_replaced(task):
                task = requeued(task)
                not_offered.append(task.id)
            tasks.append((task, encode(task), write.notify_instance))
        children = self._encode_children(change)
        check_records(change.records)
        if cell is None and change.quota is not None:
            check_quota(change.quota)
        ahead = sum(child.entry is not None for child in children)
        seq = 0 if cell is None else cell.seq
        return _Encoded(
            b"" if change.job is None else encode(change.job),
            tasks,
            tuple(not_offered),
            [(message, encode(message)) for message in change.messages],
            children,
            self._encode_entry(ahead, change.job_id, seq, change.events, change.job),
        )

    def _encode_children(self, change: Change) -> list[_EncodedChild]:
        children: list[_EncodedChild] = []
        ahead = 0
        for child in change.children:
            job = child.job
            if job.id in self._jobs or job.id in self._ended:
                continue  # its id follows from the parent's visit: it was created by an earlier, equal write
            entry = self._encode_entry(ahead, job.id, 0, child.events, job)
            ahead += entry is not None
            children.append(_EncodedChild(job, encode(job), entry))
        return children

    def _encode_entry(
        self, ahead: int, job_id: str, seq: int, events: tuple[Event, ...], job: Job | None
    ) -> _EncodedEntry | None:
        """The outbox entry of these events; `ahead` others of the same change come before it."""
        if not events:
            return None
        summary = None if job is None else summary_of(job)
        entry = OutboxEntry(self.outbox.last + ahead + 1, job_id, seq + 1, events, summary)
        return _EncodedEntry(entry, encode(entry))

    def _consume(self, change: Change, batch: JournalBatch, number: int) -> CommitOutcome:
        """A message that changes nothing (any more), whether or not its job still lives."""
        check_records(change.records)
        if change.consumes_message is None or self._messages.pop(change.consumes_message, None) is None:
            return _STALE
        self.records.put(change.records, batch, number, fenced=False)
        batch.messages[change.consumes_message] = None
        return CommitOutcome(CommitStatus.APPLIED)

    def _write_tasks(self, change: Change, cell: _JobCell, encoded: _Encoded, batch: JournalBatch) -> None:
        if change.drop_tasks and cell.tasks:
            self._drop_tasks(cell, batch)
        for task, body, notify_instance in encoded.tasks:
            self._put_task(cell, task, body, batch, notify_instance)
        if change.opens_branches is not None:
            cell.open = change.opens_branches
        cell.open -= change.closes_branches

    def _put_task(
        self, cell: _JobCell, task: Task, body: bytes, batch: JournalBatch, notify_instance: str = ""
    ) -> None:
        if not self.tasks.put(task, body, batch, notify_instance):
            return
        # Mostly there is one task, and a tuple of one is half a list; more of them grow in place.
        if not cell.tasks:
            cell.tasks = (task.id,)
        elif isinstance(cell.tasks, tuple):
            cell.tasks = [*cell.tasks, task.id]
        else:
            cell.tasks.append(task.id)

    def _drop_tasks(self, cell: _JobCell, batch: JournalBatch) -> None:
        self.tasks.drop(cell.tasks, batch)
        cell.tasks = ()

    def _write_others(self, change: Change, encoded: _Encoded, batch: JournalBatch, number: int) -> None:
        """Children, messages and records."""
        for child in encoded.children:
            self._put_child(child, batch, number)
        for message, body in encoded.messages:
            self._messages[message.id] = batch.messages[message.id] = body
            batch.hints[Hint(HintKind.MESSAGE, message.to_job)] = None
        if change.consumes_message is not None:
            del self._messages[change.consumes_message]
            batch.messages[change.consumes_message] = None
        if change.records:
            self.records.put(change.records, batch, number, fenced=False)

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

    def _open_cell(self, job: Job) -> _JobCell:
        version = (job.blueprint, job.version)
        cell = self._jobs[job.id] = _JobCell(self._versions.setdefault(version, version))
        return cell

    def _put_job(self, cell: _JobCell, job: Job, body: bytes, batch: JournalBatch) -> None:
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
            if self.deadlines.set(DueKind.JOB, job.id, job.id, due):
                batch.hints[Hint(HintKind.DEADLINE)] = None

    def _put_child(self, child: _EncodedChild, batch: JournalBatch, number: int) -> None:
        job = child.job
        cell = self._open_cell(job)
        self._put_job(cell, job, child.body, batch)
        if child.entry is not None:
            self._put_entry(cell, child.entry, batch, number)
        cell.number = number
        batch.jobs[job.id] = JobRow(job.id, True, cell.seq, 0, cell.body)
        self._queue_job(job.id, cell, batch)

    def _wake(self, cell: _JobCell, change: Change, batch: JournalBatch) -> bool:
        """Queue the job if this change of tasks alone has closed its last branch. True: it has."""
        woken = change.closes_branches > 0 and cell.open == 0 and decode_job(cell.body).runnable(0)
        if woken:
            self._queue_job(change.job_id, cell, batch)
        return woken

    def _after_status(
        self,
        cell: _JobCell,
        job: Job,
        keep_lease_s: float | None,
        batch: JournalBatch,
        instance: str,
        elapsed: float,
    ) -> bool:
        """What follows from the new status: ready entry, lease, or the end. False: the job has ended."""
        if job.status.settled:
            batch.hints[Hint(HintKind.CHANGED, job.id)] = None
        if job.status.terminal:
            self._end(job.id, cell, batch)
            return False
        if job.runnable(cell.open):
            if keep_lease_s is not None:
                self.leases.take(job.id, instance, elapsed + keep_lease_s)
            else:
                self._queue_job(job.id, cell, batch)
        return True

    def _end(self, job_id: str, cell: _JobCell, batch: JournalBatch) -> None:
        if cell.tasks:
            self._drop_tasks(cell, batch)
        del self._jobs[job_id]
        self._ended[job_id] = (cell.body, cell.number)

    def _put_entry(self, cell: _JobCell, encoded: _EncodedEntry, batch: JournalBatch, number: int) -> None:
        cell.seq += len(encoded.entry.events)
        self.outbox.put(number, encoded.entry)
        batch.entries.append((encoded.entry.number, encoded.body))

    def claim_tasks(
        self,
        worker: Worker,
        keys: Collection[QueueKey],
        limit: int,
        now: datetime,
        batch: JournalBatch,
        number: int,
    ) -> list[Task]:
        """Offer the best tasks that wait under these keys to the worker, in the open batch."""
        offered = self.tasks.claim(worker, keys, limit, now, batch)
        for task in offered:
            self._jobs[task.job_id].number = number
        return offered

    # -- ended jobs ------------------------------------------------------------------------------

    def drop_ended(self, job_ids: Iterable[str]) -> None:
        """Forget these ended jobs."""
        for job_id in job_ids:
            self._ended.pop(job_id, None)

    def forget_ended(self, flushed: int) -> None:
        """Forget the oldest ended jobs that are durable, beyond the number to keep."""
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

    # -- ready queue -----------------------------------------------------------------------------

    def _queue_job(self, job_id: str, cell: _JobCell, batch: JournalBatch | None) -> None:
        self.ready.add(cell.version, job_id, cell.revision)
        if batch is not None:
            batch.hints[Hint(HintKind.READY)] = None

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
        """Queue jobs whose lease is over."""
        self._return(self.leases.lapsed(elapsed))

    def release_leases(self, instance: str) -> int:
        return self._return(self.leases.relinquished(instance))

    def _return(self, job_ids: list[str]) -> int:
        for job_id in job_ids:
            cell = self._jobs[job_id]
            if decode_job(cell.body).runnable(cell.open):
                self._queue_job(job_id, cell, None)
        return len(job_ids)

    def extend_leases(self, instance: str, job_ids: Collection[str], until: float) -> list[str]:
        kept = [job_id for job_id in job_ids if self.leases.holder(job_id) == instance]
        for job_id in kept:
            self.leases.take(job_id, instance, until)
        return kept

    def stranded(self, known: Collection[Version], limit: int, elapsed: float) -> list[Job]:
        self._return_lapsed(elapsed)
        return [decode_job(self._jobs[job_id].body) for job_id in islice(self.ready.others(known), limit)]

    # -- recovery --------------------------------------------------------------------------------

    def restore(self, snapshot: Snapshot, first_entry: int) -> None:
        """Rebuild everything from what the journal kept. Leases are gone: no instance holds anything.

        A row that cannot be read is logged and skipped: one damaged job must not stop all the others.
        """
        self._forgotten = snapshot.last_id
        self.records.restore(snapshot.records)
        self.quotas.restore(snapshot.counts)
        for message in readable(decode_message, snapshot.messages):
            self._messages[message.id] = encode(message)
        for row in snapshot.jobs:
            self._restore_job(row)
        scratch = JournalBatch()
        # Equal tasks of one job wait in dispatch order again; those of different jobs in the order of the
        # jobs' ids, which is that of their creation.
        for task in sorted(readable(decode_task, snapshot.tasks), key=lambda task: (task.job_id, task.index)):
            cell = self._jobs.get(task.job_id)
            if cell is not None:
                self._put_task(cell, task, encode(task), scratch)
        for entry in readable(decode_entry, snapshot.entries):
            self.outbox.put(0, entry)
        self.outbox.last = max(self.outbox.last, first_entry)

    def _restore_job(self, row: JobRow) -> None:
        try:
            job = decode_job(row.body)
        except msgspec.MsgspecError as error:
            fields = {"job_id": row.id, "action": "unreadable"}
            log.error("job %s cannot be read and is left alone: %s", row.id, error, extra=fields)
            return
        cell = self._open_cell(job)
        cell.body, cell.revision = row.body, job.revision
        cell.seq, cell.open = row.seq, row.open_branches
        cell.due = job.deadline
        self.deadlines.set(DueKind.JOB, job.id, job.id, cell.due)
        if job.runnable(cell.open):
            self._queue_job(job.id, cell, None)


def refuse_ended(change: Change, body: bytes) -> CommitOutcome:
    """The answer of a job that has ended: nothing changes it, but its own last change had been applied."""
    if change.job is None:
        return _STALE
    if decode_job(body).token == change.token:
        return _REPEATED
    return CommitOutcome(CommitStatus.EXISTS) if change.expected is None else _STALE
