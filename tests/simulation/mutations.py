"""Bugs planted on purpose. Each breaks one law; the simulation must notice every one of them."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import pytest
from msgspec.structs import replace

from regista.dispatch import matcher
from regista.dispatch.connected import ConnectedWorkers
from regista.engines.native.offers import TaskOffers
from regista.engines.native.work_item import WorkItem
from regista.machine import retries, task_results, transitions
from regista.machine.step import Step
from regista.maintenance.loop import ExpiryGrace
from regista.model import (
    Change,
    CommitOutcome,
    CommitStatus,
    Event,
    Job,
    JobMessage,
    RecordWrite,
    Task,
    TaskWrite,
)
from regista.model.delivery import WebhookDelivery, delivery_write
from regista.storage import state as state_module
from regista.storage.base import Due, DueKind
from regista.storage.counters import QuotaCounters
from regista.storage.deadlines import DeadlineIndex
from regista.storage.group_commit import GroupCommit
from regista.storage.journal import JobRow, JournalBatch, Snapshot
from regista.storage.memory import MemoryStorage
from regista.storage.records import RecordTable
from regista.storage.state import State
from regista.storage.task_queues import ClientQueue
from regista.storage.task_table import TaskTable
from regista.webhooks import claims

Mutation = Callable[[pytest.MonkeyPatch], None]


def drop_the_revision_check(patch: pytest.MonkeyPatch) -> None:
    """Two deciders both win."""
    patch.setattr(State, "_is_stale", lambda self, cell, change: False)


def drop_the_commit_token(patch: pytest.MonkeyPatch) -> None:
    """A write whose answer was lost looks like one that lost a race."""
    original = State._check_fences

    def refuse(self: State, change: Change, cell: Any) -> CommitOutcome | None:
        outcome = original(self, change, cell)
        repeated = outcome is not None and outcome.kind is CommitStatus.REPEATED
        return CommitOutcome(CommitStatus.STALE) if repeated else outcome

    patch.setattr(State, "_check_fences", refuse)


def drop_the_attempt_fence(patch: pytest.MonkeyPatch) -> None:
    """A late result counts for a newer attempt; a timed-out task also runs."""

    def holds(self: TaskTable, job_id: str, write: TaskWrite) -> bool:
        return self.find(write.task.id) is not None

    patch.setattr(TaskTable, "fence_holds", holds)


def answer_before_the_flush(patch: pytest.MonkeyPatch) -> None:
    """Acknowledge what a power cut can still take back."""

    async def wait(self: GroupCommit[Any], number: int) -> None:
        return None

    patch.setattr(GroupCommit, "wait", wait)


def hand_over_before_the_flush(patch: pytest.MonkeyPatch) -> None:
    """A worker sees a task that the disk has not seen."""
    original = TaskOffers.match

    def match(self: TaskOffers, item: WorkItem, step: Step) -> None:
        original(self, item, step)
        self.send(item, ())
        item.offers = ()

    patch.setattr(TaskOffers, "match", match)


def forget_the_deadlines_of_jobs(patch: pytest.MonkeyPatch) -> None:
    """Timers and retries never ring."""
    original = DeadlineIndex.set

    def set_deadline(self: DeadlineIndex, kind: DueKind, id: str, job_id: str, at: datetime | None) -> bool:
        return original(self, kind, id, job_id, at if kind is DueKind.TASK else None)

    patch.setattr(DeadlineIndex, "set", set_deadline)


def forget_the_deadlines_of_tasks(patch: pytest.MonkeyPatch) -> None:
    """A task that waits for its retry waits for ever."""
    original = DeadlineIndex.set

    def set_deadline(self: DeadlineIndex, kind: DueKind, id: str, job_id: str, at: datetime | None) -> bool:
        return original(self, kind, id, job_id, at if kind is DueKind.JOB else None)

    patch.setattr(DeadlineIndex, "set", set_deadline)


def pop_a_deadline_before_acting(patch: pytest.MonkeyPatch) -> None:
    """Whoever dies between looking and acting takes the deadline along."""
    original = State.due

    def due(self: State, now: datetime, limit: int) -> list[Due]:
        found = original(self, now, limit)
        for entry in found:
            self.deadlines.set(entry.kind, entry.id, entry.job_id, None)
        return found

    patch.setattr(State, "due", due)


def count_a_branch_twice(patch: pytest.MonkeyPatch) -> None:
    """The aggregator runs too early."""
    original = State.apply

    def apply(self: State, change: Change, *rest: Any) -> CommitOutcome:
        return original(self, replace(change, closes_branches=change.closes_branches * 2), *rest)

    patch.setattr(State, "apply", apply)


def forget_to_count_a_branch(patch: pytest.MonkeyPatch) -> None:
    """The end of a branch that was retried is not counted, and the aggregator never runs."""
    original = State.apply

    def apply(self: State, change: Change, *rest: Any) -> CommitOutcome:
        if any(write.attempt > 1 for write in change.tasks):
            change = replace(change, closes_branches=0)
        return original(self, change, *rest)

    patch.setattr(State, "apply", apply)


def lose_the_branch_count_in_a_power_cut(patch: pytest.MonkeyPatch) -> None:
    """Open branches are kept in memory only."""
    _patch_restore(patch, lambda row: row._replace(open_branches=0))


def lose_the_sequence_in_a_power_cut(patch: pytest.MonkeyPatch) -> None:
    """Events after a restart are numbered from one again."""
    _patch_restore(patch, lambda row: row._replace(seq=0))


def _patch_restore(patch: pytest.MonkeyPatch, spoil: Callable[[JobRow], JobRow]) -> None:
    original = State.restore

    def restore(self: State, snapshot: Snapshot, first_entry: int) -> None:
        original(self, snapshot._replace(jobs=[spoil(row) for row in snapshot.jobs]), first_entry)

    patch.setattr(State, "restore", restore)


def forget_to_queue_after_the_last_branch(patch: pytest.MonkeyPatch) -> None:
    """Whoever reaches zero does not write the ready entry."""
    patch.setattr(State, "_wake", lambda self, cell, change, batch: False)


def forget_lapsed_leases(patch: pytest.MonkeyPatch) -> None:
    """A job whose instance died is never given to another."""
    patch.setattr(State, "_return_lapsed", lambda self, elapsed: None)


def expire_everything_after_an_outage(patch: pytest.MonkeyPatch) -> None:
    """A living worker loses its tasks because we were away."""
    patch.setattr(ExpiryGrace, "over", property(lambda self: True))
    patch.setattr(ExpiryGrace, "over_for", lambda self, lease_s: True)


def offer_without_taking_from_the_lane(patch: pytest.MonkeyPatch) -> None:
    """The same attempt is handed to two workers."""
    patch.setattr(ClientQueue, "take", lambda self, limit: [self.head()[2]])


def ignore_what_a_task_requires(patch: pytest.MonkeyPatch) -> None:
    """Any worker will do."""
    patch.setattr(matcher, "first_mismatch", lambda queue_key, worker: None)


def never_free_a_slot(patch: pytest.MonkeyPatch) -> None:
    """A worker that was given as many tasks as it has slots gets no more."""
    patch.setattr(ConnectedWorkers, "release", lambda self, connected, attempt_id: False)


def forget_that_something_waits(patch: pytest.MonkeyPatch) -> None:
    """A task that found no worker is never offered again."""
    patch.setattr(matcher.MatchIndex, "mark_waiting", lambda self, queue_key: None)


def retry_under_the_same_attempt(patch: pytest.MonkeyPatch) -> None:
    """A late result of a lost attempt cannot be told from the new one's."""
    original = retries.next_attempt

    def next_attempt(task: Task, now: datetime, **rest: Any) -> Task:
        return replace(original(task, now, **rest), attempt=task.attempt)

    patch.setattr(retries, "next_attempt", next_attempt)


def lose_a_message(patch: pytest.MonkeyPatch) -> None:
    """The end of a child is told from memory, not from the store."""

    def tell(job: Job) -> tuple[JobMessage, ...]:
        return ()

    patch.setattr(transitions, "_child_ended_message", tell)


def follow_a_success_after_cancel(patch: pytest.MonkeyPatch) -> None:
    """Cancel does not win."""
    original = task_results.close_attempt

    def settle(job: Job, *rest: Any) -> Any:
        from regista.model import JobStatus

        waits = JobStatus.WAITING_FOR_WORKER if job.status is JobStatus.CANCELLING else job.status
        return original(replace(job, status=waits), *rest)

    patch.setattr(task_results, "close_attempt", settle)


def report_a_lost_race_as_won(patch: pytest.MonkeyPatch) -> None:
    """A change that was refused is answered as if it had been written."""
    patch.setattr(state_module, "_STALE", CommitOutcome(CommitStatus.APPLIED))


def write_the_events_twice(patch: pytest.MonkeyPatch) -> None:
    """History gets the last line of a commit twice."""
    original = State._encode_entry

    def tell(
        self: State, ahead: int, job_id: str, seq: int, events: tuple[Event, ...], job: Job | None
    ) -> Any:
        return original(self, ahead, job_id, seq, (*events, *events[-1:]), job)

    patch.setattr(State, "_encode_entry", tell)


def prune_what_history_never_saw(patch: pytest.MonkeyPatch) -> None:
    """The outbox is emptied too early."""
    original = MemoryStorage.prune

    async def prune(self: MemoryStorage, upto: int) -> None:
        await original(self, upto + 3)

    patch.setattr(MemoryStorage, "prune", prune)


def flush_half_a_batch(patch: pytest.MonkeyPatch) -> None:
    """Tasks are forgotten when jobs are written."""
    from regista.testing.disk import SimulatedDisk

    original = SimulatedDisk._keep

    def keep(self: SimulatedDisk, batch: JournalBatch) -> None:
        batch.tasks = {}
        original(self, batch)

    patch.setattr(SimulatedDisk, "_keep", keep)


def count_a_quota_apart_from_its_job(patch: pytest.MonkeyPatch) -> None:
    """A power cut takes the count and leaves the job."""
    original = QuotaCounters.count
    patch.setattr(QuotaCounters, "count", lambda self, quota, batch: original(self, quota, JournalBatch()))


def count_a_quota_when_it_is_only_asked_for(patch: pytest.MonkeyPatch) -> None:
    """A repeated creation counts once more."""
    original = State.apply

    def apply(
        self: State, change: Change, batch: JournalBatch, number: int, instance: str, elapsed: float
    ) -> CommitOutcome:
        outcome = original(self, change, batch, number, instance, elapsed)
        if change.quota is not None and outcome.kind is CommitStatus.REPEATED:
            self.quotas.count(change.quota, batch)
        return outcome

    patch.setattr(State, "apply", apply)


def write_a_word_apart_from_its_commit(patch: pytest.MonkeyPatch) -> None:
    """A power cut takes the word to the webhook and leaves the end that it tells of."""
    original = RecordTable.put

    def put(
        self: RecordTable,
        writes: Sequence[RecordWrite],
        batch: JournalBatch,
        number: int,
        *,
        fenced: bool = True,
    ) -> list[bool]:
        return original(self, writes, batch if fenced else JournalBatch(), number, fenced=fenced)

    patch.setattr(RecordTable, "put", put)


def forget_a_word_before_it_was_heard(patch: pytest.MonkeyPatch) -> None:
    """Whoever takes a delivery on removes it, and may die before it is told."""
    original = delivery_write

    def write(delivery: WebhookDelivery, due: datetime, expected: int | None = None) -> RecordWrite:
        return replace(original(delivery, due, expected), value=None)

    patch.setattr(claims, "delivery_write", write)


ALL: Sequence[Mutation] = [
    drop_the_revision_check,
    drop_the_commit_token,
    drop_the_attempt_fence,
    answer_before_the_flush,
    hand_over_before_the_flush,
    forget_the_deadlines_of_jobs,
    forget_the_deadlines_of_tasks,
    pop_a_deadline_before_acting,
    count_a_branch_twice,
    forget_to_count_a_branch,
    lose_the_branch_count_in_a_power_cut,
    lose_the_sequence_in_a_power_cut,
    forget_to_queue_after_the_last_branch,
    forget_lapsed_leases,
    expire_everything_after_an_outage,
    offer_without_taking_from_the_lane,
    ignore_what_a_task_requires,
    never_free_a_slot,
    forget_that_something_waits,
    retry_under_the_same_attempt,
    lose_a_message,
    follow_a_success_after_cancel,
    report_a_lost_race_as_won,
    write_the_events_twice,
    prune_what_history_never_saw,
    flush_half_a_batch,
    count_a_quota_apart_from_its_job,
    count_a_quota_when_it_is_only_asked_for,
    write_a_word_apart_from_its_commit,
    forget_a_word_before_it_was_heard,
]
