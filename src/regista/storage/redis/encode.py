"""From records to what the scripts read: bodies that they only carry, and beside them what they must know."""

from datetime import timedelta
from functools import cache
from typing import Any

import msgspec

from ...model import (
    HELD_STATES,
    AttemptState,
    Change,
    Event,
    Job,
    JobSummary,
    Quota,
    RecordWrite,
    Task,
    TaskWrite,
    queue_key_text,
)
from ..base import Version
from ..codec import encode, micros
from ..counters import check_quota
from ..index_fields import summary_of
from ..records import check_records
from ..task_queues import order_key

#: One letter for each state of an attempt.
LETTERS = {state: state.value[0] for state in AttemptState}
STATES = {letter: state for state, letter in LETTERS.items()}

_MICROSECOND = timedelta(microseconds=1)
#: Longer than any calendar.
_CENTURIES_S = 1e11


class StoredEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An outbox entry as it is stored: without its numbers, which the store gives."""

    events: tuple[Event, ...]
    summary: JobSummary | None


def length(seconds: float) -> int:
    """A duration, in microseconds."""
    return round(seconds * 1_000_000)


def _lifetime(seconds: float) -> int:
    """A time to live, in microseconds: below 0 would mean that there is none."""
    return length(min(max(seconds, 0.0), _CENTURIES_S))


def record_write(write: RecordWrite, bodies: list[bytes]) -> list[Any]:
    """A write of a record, as lib/records.lua names its places; its value joins the bodies."""
    if write.value is not None:
        bodies.append(write.value)
    return [
        write.collection,
        write.key,
        0 if write.value is None else len(bodies),
        False if write.due is None else micros(write.due),
        -1 if write.ttl_s is None else _lifetime(write.ttl_s),
        -1 if write.expected is None else write.expected,
    ]


def _quota(quota: Quota) -> list[Any]:
    check_quota(quota)
    return [quota.counter, -1 if quota.limit is None else quota.limit, _lifetime(quota.ttl_s)]


def version_name(version: Version) -> str:
    """A version as one string."""
    return "\n".join(version)


@cache
def letters_of(states: tuple[AttemptState, ...]) -> str:
    """The states that a fence lets through."""
    return "".join([LETTERS[state] for state in states])


class ScriptBatch:
    """The changes, or the writes of records, of one script call, with their bodies.

    What cannot be encoded leaves no trace in it.
    """

    def __init__(self) -> None:
        self.changes: list[list[Any]] = []
        self.bodies: list[bytes] = []
        #: Bytes of all bodies.
        self.size = 0

    def add(self, change: Change, instance: str) -> None:
        """Encode the change whole, or raise one of `UNENCODABLE` and take nothing."""
        before, size = len(self.bodies), self.size
        try:
            self.changes.append(self._change(change, instance))
        except BaseException:
            del self.bodies[before:]
            self.size = size
            raise

    def put(self, write: RecordWrite) -> None:
        """Take along a write that was checked."""
        self.size += len(write.value or b"")
        self.changes.append(record_write(write, self.bodies))

    def packed(self) -> bytes:
        """The changes as the script unpacks them."""
        return encode(self.changes)

    def _body(self, body: bytes) -> int:
        self.bodies.append(body)
        self.size += len(body)
        return len(self.bodies)

    def _change(self, change: Change, instance: str) -> list[Any]:
        # By place, as commit.lua names them.
        job = change.job
        return [
            change.job_id,
            change.token,
            -1 if change.expected is None else change.expected,
            False if job is None else self._job(job),
            [self._write(change, write) for write in change.tasks],
            self._entry(change.events, job),
            len(change.events),
            self._rest(change, instance) if is_special(change) else change.drop_tasks,
        ]

    def _rest(self, change: Change, instance: str) -> list[Any]:
        """What few changes have."""
        return [
            change.drop_tasks,
            change.closes_branches,
            -1 if change.opens_branches is None else change.opens_branches,
            [
                [b.job.id, self._job(b.job), self._entry(b.events, b.job), len(b.events)]
                for b in change.children
            ],
            [[message.id, message.to_job, self._body(encode(message))] for message in change.messages],
            False if change.consumes_message is None else change.consumes_message,
            -1 if change.keep_lease_s is None else length(change.keep_lease_s),
            instance if change.keep_lease_s is not None else "",
            self._records(change.records) if change.records else False,
            False if change.quota is None else _quota(change.quota),
        ]

    def _records(self, writes: tuple[RecordWrite, ...]) -> list[list[Any]]:
        check_records(writes)
        self.size += sum(len(write.value or b"") for write in writes)
        return [record_write(write, self.bodies) for write in writes]

    def _job(self, job: Job) -> list[Any]:
        deadline, status = job.deadline, job.status
        flags = "r" if job.runnable(0) else ""
        if job.runnable(1):
            flags += "o"
        if status.settled:
            flags += "te" if status.terminal else "t"
        return [
            self._body(encode(job)),
            job.revision,
            f"{job.blueprint}\n{job.version}",
            0 if deadline is None else micros(deadline),
            job.token,
            flags,
        ]

    def _entry(self, events: tuple[Event, ...], job: Job | None) -> int:
        if not events:
            return 0
        return self._body(encode(StoredEntry(events, None if job is None else summary_of(job))))

    def _write(self, change: Change, write: TaskWrite) -> list[Any]:
        task = write.task
        field = field_of(change.job_id, task.id)
        if field[0] == "?" and not write.attempt:
            raise ValueError(f"expected a task id like {change.job_id}_1_0, got {task.id}")
        only_checked = change.drop_tasks and write.attempt
        return [
            field,
            write.attempt,
            letters_of(write.states),
            False if only_checked else self._task(task, write.notify_instance),
        ]

    def _task(self, task: Task, notify_instance: str) -> list[Any]:
        state, deadline = task.state, task.deadline
        return [
            self._body(encode(task)),
            task.attempt,
            LETTERS[state],
            (task.worker_id or "") if state in HELD_STATES else "",
            task.session,
            0 if deadline is None else micros(deadline),
            task.cancel_requested,
            # An offer that comes too late for its worker waits in line after all.
            _line(task, notify_instance) if state is AttemptState.OFFERED or task.waiting else False,
        ]


def is_special(change: Change) -> bool:
    """It does more than most: beyond the job, its tasks and its events."""
    return bool(
        change.closes_branches
        or change.opens_branches is not None
        or change.children
        or change.messages
        or change.consumes_message is not None
        or change.keep_lease_s is not None
        or change.records
        or change.quota is not None
    )


def _line(task: Task, notify_instance: str) -> list[Any]:
    """Where a task waits for a worker, or would."""
    queued = task.queued_at if task.priority else None
    due, dispatch_by = task.result_by, task.dispatch_by
    if dispatch_by is not None and (due is None or dispatch_by < due):
        due = dispatch_by
    return [
        queue_key_text(task.queue_key),
        task.client,
        order_key(task),
        queued.timestamp() if queued is not None else False,
        0 if task.result_by is None else micros(task.result_by),
        _timeout(task),
        notify_instance,
        0 if due is None else micros(due),
    ]


def field_of(job_id: str, task_id: str) -> str:
    """The field of a task in its job's hash: what its id adds to the job's. A stranger's has none."""
    suffix = task_id.removeprefix(job_id)
    return (
        suffix if suffix.startswith("_") and suffix.count("_") == 2 and suffix != task_id else f"?{task_id}"
    )


def _timeout(task: Task) -> int:
    """How long after an offer somebody must look: the nearer of the two timeouts of an attempt; -1 is never."""
    timeout_s, silence_s = task.attempt_timeout_s, task.heartbeat_timeout_s
    if timeout_s is None or (silence_s is not None and silence_s < timeout_s):
        timeout_s = silence_s
    return -1 if timeout_s is None else timedelta(seconds=min(timeout_s, _CENTURIES_S)) // _MICROSECOND
