"""A model of the storage contract, as naive as can be: lists, dictionaries and sorting."""

import math
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from regista.model import (
    HELD_STATES,
    AttemptState,
    Change,
    CommitStatus,
    Job,
    JobMessage,
    QueueKey,
    QueueStatus,
    Quota,
    Record,
    RecordWrite,
    Task,
    TaskWrite,
    Worker,
)
from regista.storage.base import AGEING_STEP_S, Due, DueKind
from regista.testing.conformance.storage.kit import START


class Model:
    """What a store must know after the calls that it got."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.tokens: dict[str, list[str]] = {}
        self.tasks: dict[str, Task] = {}
        self.arrivals: dict[str, int] = {}
        #: When each line was last served; only lines in which something waits.
        self.turns: dict[tuple[QueueKey, str], int] = {}
        self.open: dict[str, int] = {}
        self.messages: dict[str, JobMessage] = {}
        self.told: list[tuple[str, int, tuple[str | None, ...]]] = []
        self.leases: dict[str, tuple[str, float]] = {}
        self._arrived = 0
        #: Each with the moment when its time is over.
        self.items: dict[tuple[str, str], tuple[Record, float]] = {}
        #: How often each quota was used, and until when that is known.
        self.counts: dict[str, tuple[int, float]] = {}
        #: Bucket → what is left in it, and when that was so.
        self.buckets: dict[str, tuple[float, float]] = {}

    # writing

    def commit(self, change: Change, instance: str, elapsed: float) -> tuple[CommitStatus, bool]:
        """How the change goes, and whether it closed the last branch."""
        if change.job is None and not change.tasks:
            there = self.messages.pop(change.consumes_message or "", None)
            return (CommitStatus.STALE if there is None else CommitStatus.APPLIED, False)
        refusal = self._refuse(change, elapsed)
        if refusal is not None:
            return refusal, False
        if change.quota is not None and change.expected is None:
            used = self.used(change.quota.counter, elapsed) + 1
            self.counts[change.quota.counter] = (used, elapsed + change.quota.ttl_s)
        for item in change.records:
            self.put(replace(item, expected=None), elapsed)
        self._apply(change)
        job = self.jobs[change.job_id]
        if change.job is None:
            woken = change.closes_branches > 0 and job.runnable(self.open[job.id]) and not self.open[job.id]
            return CommitStatus.APPLIED, woken
        self.leases.pop(job.id, None)
        if change.keep_lease_s is not None and job.runnable(self.open[job.id]):
            self.leases[job.id] = (instance, elapsed + change.keep_lease_s)
        return CommitStatus.APPLIED, False

    def put(self, write: RecordWrite, elapsed: float) -> bool:
        """Write the item, unless its fence does not hold."""
        old = self.item(write.collection, write.key, elapsed)
        revision = 0 if old is None else old.revision
        if write.expected not in (None, revision):
            return False
        self.items.pop((write.collection, write.key), None)
        if write.value is not None:
            item = Record(write.collection, write.key, write.value, revision + 1, write.due)
            until = math.inf if write.ttl_s is None else elapsed + write.ttl_s
            self.items[write.collection, write.key] = (item, until)
        return True

    def item(self, collection: str, key: str, elapsed: float) -> Record | None:
        """The item, unless its time is over."""
        item, until = self.items.get((collection, key), (None, 0.0))
        return item if until > elapsed else None

    def collection(self, collection: str, elapsed: float) -> list[Record]:
        """The items of a shelf, in the order of their keys."""
        there = (self.item(*name, elapsed) for name in sorted(self.items) if name[0] == collection)
        return [item for item in there if item is not None]

    def used(self, counter: str, elapsed: float) -> int:
        """How often the quota was used."""
        used, until = self.counts.get(counter, (0, 0.0))
        return used if until > elapsed else 0

    def take(self, bucket: str, n: int, limit: int, window_s: float, elapsed: float) -> bool:
        """Whether so many tokens are there; then they are taken."""
        left, since = self.buckets.get(bucket, (limit, elapsed))
        left = min(limit, left + (elapsed - since) * limit / window_s)
        taken = left + 1e-6 >= n
        self.buckets[bucket] = (left - n if taken else left, elapsed)
        return taken

    def _refuse(self, change: Change, elapsed: float) -> CommitStatus | None:
        job = self.jobs.get(change.job_id)
        creates = change.job is not None and change.expected is None
        if job is None and not creates:
            return CommitStatus.MISSING
        if job is not None and change.job is not None and (creates or job.revision != change.expected):
            if change.token in self.tokens[job.id] or change.token == job.token:
                return CommitStatus.REPEATED
            return CommitStatus.EXISTS if creates else CommitStatus.STALE
        if job is not None and job.status.terminal:
            return CommitStatus.STALE
        if creates and self._is_used_up(change.quota, elapsed):
            return CommitStatus.OVER_QUOTA
        if not all(self._fence_holds(write) for write in change.tasks):
            return CommitStatus.STALE
        if change.consumes_message is not None and change.consumes_message not in self.messages:
            return CommitStatus.STALE
        return None

    def _is_used_up(self, quota: Quota | None, elapsed: float) -> bool:
        if quota is None or quota.limit is None:
            return False
        return self.used(quota.counter, elapsed) >= quota.limit

    def _fence_holds(self, write: TaskWrite) -> bool:
        if not write.attempt:
            return True
        task = self.tasks.get(write.task.id)
        return task is not None and task.attempt == write.attempt and task.state in write.states

    def _apply(self, change: Change) -> None:
        if change.drop_tasks:
            self._drop_tasks(change.job_id)
        for write in change.tasks:
            if not (change.drop_tasks and write.attempt):
                self._put_task(write.task)
        self.open.setdefault(change.job_id, 0)
        if change.opens_branches is not None:
            self.open[change.job_id] = change.opens_branches
        self.open[change.job_id] -= change.closes_branches
        for birth in change.children:
            if birth.job.id not in self.jobs:
                self.open[birth.job.id] = 0
                self._put_job(birth.job)
                self._tell(birth.job.id, birth.events)
        for message in change.messages:
            self.messages[message.id] = message
        if change.consumes_message is not None:
            del self.messages[change.consumes_message]
        if change.job is not None:
            self._put_job(change.job)
        self._tell(change.job_id, change.events)

    def _put_job(self, job: Job) -> None:
        self.jobs[job.id] = job
        self.tokens.setdefault(job.id, []).append(job.token)
        if job.status.terminal:
            self._drop_tasks(job.id)

    def _put_task(self, task: Task) -> None:
        if self.tasks.pop(task.id, None) is not None:
            self._drop_empty_lines()
        self.tasks[task.id] = task
        self._arrived += 1
        self.arrivals[task.id] = self._arrived
        if task.waiting and _line(task) not in self.turns:
            self.turns[_line(task)] = self._next_turn()

    def _drop_tasks(self, job_id: str) -> None:
        self.tasks = {id: task for id, task in self.tasks.items() if task.job_id != job_id}
        self._drop_empty_lines()

    def _waiting(self) -> list[Task]:
        return [task for task in self.tasks.values() if task.waiting]

    def _drop_empty_lines(self) -> None:
        there = {_line(task) for task in self._waiting()}
        self.turns = {line: turn for line, turn in self.turns.items() if line in there}

    def _next_turn(self) -> int:
        return max(self.turns.values(), default=0) + 1

    def _tell(self, job_id: str, events: tuple[Any, ...]) -> None:
        if events:
            seq = sum(len(words) for job, _, words in self.told if job == job_id)
            self.told.append((job_id, seq + 1, tuple(event.message for event in events)))

    def claimed(self, job_id: str, instance: str, until: float) -> None:
        """Somebody got a lease."""
        self.leases[job_id] = (instance, until)

    def offer(self, worker: Worker, lanes: list[QueueKey], limit: int, now: datetime) -> list[Task]:
        """The next tasks of these lanes, offered to the worker."""
        offered: list[Task] = []
        while len(offered) < limit and (task := self._next(lanes)) is not None:
            there = {
                "state": AttemptState.OFFERED,
                "worker_id": worker.id,
                "session": worker.session,
                "offered_at": now,
                "seen_at": now,
            }
            self.tasks[task.id] = replace(task, **there)
            self._drop_empty_lines()
            offered.append(self.tasks[task.id])
        return offered

    def _next(self, lanes: list[QueueKey]) -> Task | None:
        """The best task of the client that was served longest ago in any of these lanes."""
        lines = [line for line in self.turns if line[0] in lanes]
        if not lines:
            return None
        _, client = min(lines, key=lambda line: self.turns[line])
        waiting = [task for task in self._waiting() if task.queue_key in lanes and task.client == client]
        turn = self._next_turn()
        self.turns.update({line: turn for line in lines if line[1] == client})
        return min(waiting, key=lambda task: (_age(task), self.arrivals[task.id]))

    def restart(self) -> None:
        """Leases are gone; a repetition is known by the token of the record alone; equal tasks stand by their jobs' ids."""
        self.leases.clear()
        self.buckets.clear()
        self.tokens = {job_id: [] for job_id in self.tokens}
        self.turns.clear()
        for task in sorted(self.tasks.values(), key=lambda task: (task.job_id, task.index)):
            self._arrived += 1
            self.arrivals[task.id] = self._arrived
            if task.waiting:
                self.turns.setdefault(_line(task), self._next_turn())

    # reading

    def lanes(self) -> list[QueueKey]:
        """Where something waits."""
        return sorted({task.queue_key for task in self._waiting()})

    def lane_statuses(self) -> list[QueueStatus]:
        """How much waits where, and since when."""
        rows = []
        for queue_key, client in sorted(self.turns):
            line = [task for task in self._waiting() if _line(task) == (queue_key, client)]
            rows.append(
                QueueStatus(queue_key, client, len(line), min(task.queued_at or START for task in line))
            )
        return rows

    def ready(self, elapsed: float) -> set[str]:
        """The jobs that somebody could claim now."""
        leased = {job_id for job_id, (_, until) in self.leases.items() if until > elapsed}
        runnable = {job.id for job in self.jobs.values() if job.runnable(self.open[job.id])}
        return runnable - leased

    def due(self) -> list[Due]:
        """All deadlines, which follow from the records."""
        rows = [
            Due(job.deadline, DueKind.JOB, job.id, job.id)
            for job in self.jobs.values()
            if job.deadline is not None
        ]
        rows += [
            Due(task.deadline, DueKind.TASK, task.id, task.job_id)
            for task in self.tasks.values()
            if task.deadline is not None
        ]
        return sorted(rows)

    def tasks_of(self, job_id: str) -> list[Task]:
        """In dispatch order."""
        return sorted(
            (task for task in self.tasks.values() if task.job_id == job_id), key=lambda task: task.index
        )

    def held(self) -> dict[str, set[str]]:
        """Worker → the tasks in its hands."""
        held: dict[str, set[str]] = {}
        for task in self.tasks.values():
            if task.state in HELD_STATES and task.worker_id:
                held.setdefault(task.worker_id, set()).add(task.id)
        return held


def ripe_of(items: list[Record], now: datetime) -> list[Record]:
    """Those whose time has come, earliest first."""
    there = [(item.due, item.key, item) for item in items if item.due is not None and item.due <= now]
    return [item for _, _, item in sorted(there, key=lambda each: each[:2])]


def _line(task: Task) -> tuple[QueueKey, str]:
    return task.queue_key, task.client


def _age(task: Task) -> float:
    assert task.queued_at is not None
    return task.queued_at.timestamp() - task.priority * AGEING_STEP_S
