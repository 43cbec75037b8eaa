"""From records to what the scripts read: bodies that they only carry, and beside them what they must know."""

from datetime import timedelta
from typing import Any

import msgspec

from ...model import (
    HELD_STATES,
    AttemptState,
    Change,
    Event,
    ItemWrite,
    Job,
    Quota,
    Summary,
    Task,
    TaskWrite,
    lane_name,
)
from ..base import Version
from ..codec import encode, micros
from ..counters import check_quota
from ..image import summary_of
from ..lanes import order_key
from ..shelves import check_items

#: One letter for each state of an attempt.
LETTERS = {state: state.value[0] for state in AttemptState}
STATES = {letter: state for state, letter in LETTERS.items()}

_MICROSECOND = timedelta(microseconds=1)
#: Longer than any calendar.
_CENTURIES_S = 1e11


class Told(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An outbox entry as it is stored: without its numbers, which the store gives."""

    events: tuple[Event, ...]
    summary: Summary | None


def length(seconds: float) -> int:
    """A duration, in microseconds."""
    return round(seconds * 1_000_000)


def _lifetime(seconds: float) -> int:
    """A time to live, in microseconds: below 0 would mean that there is none."""
    return length(min(max(seconds, 0.0), _CENTURIES_S))


def item_write(write: ItemWrite, bodies: list[bytes]) -> list[Any]:
    """A write of an item, as shelf.lua names its places; its value joins the bodies."""
    if write.value is not None:
        bodies.append(write.value)
    return [
        write.shelf,
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


class Parcel:
    """The changes of one script call, with their bodies. What cannot be encoded leaves no trace in it."""

    def __init__(self) -> None:
        self.changes: list[list[Any]] = []
        self.bodies: list[bytes] = []

    def add(self, change: Change, instance: str) -> None:
        """Encode the change whole, or raise one of `UNENCODABLE` and take nothing."""
        before = len(self.bodies)
        try:
            self.changes.append(self._change(change, instance))
        except BaseException:
            del self.bodies[before:]
            raise

    def packed(self) -> bytes:
        """The changes as the script unpacks them."""
        return encode(self.changes)

    def _body(self, body: bytes) -> int:
        self.bodies.append(body)
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
            change.drop_tasks,
            change.closes_branches,
            -1 if change.opens_branches is None else change.opens_branches,
            [[b.job.id, self._job(b.job), self._entry(b.events, b.job)] for b in change.children],
            [[message.id, message.to_job, self._body(encode(message))] for message in change.messages],
            False if change.consumes is None else change.consumes,
            self._entry(change.events, job),
            -1 if change.hold_s is None else length(change.hold_s),
            instance if change.hold_s is not None else "",
            self._items(change.items) if change.items else False,
            False if change.quota is None else _quota(change.quota),
        ]

    def _items(self, writes: tuple[ItemWrite, ...]) -> list[list[Any]]:
        check_items(writes)
        return [item_write(write, self.bodies) for write in writes]

    def _job(self, job: Job) -> list[Any]:
        deadline, status = job.deadline, job.status
        return [
            self._body(encode(job)),
            job.revision,
            version_name((job.blueprint, job.version)),
            job.runnable(0),
            job.runnable(1),
            0 if deadline is None else micros(deadline),
            status.terminal,
            status.settled,
            job.token,
        ]

    def _entry(self, events: tuple[Event, ...], job: Job | None) -> list[int] | bool:
        if not events:
            return False
        summary = None if job is None else summary_of(job)
        return [self._body(encode(Told(events, summary))), len(events)]

    def _write(self, change: Change, write: TaskWrite) -> list[Any]:
        task = write.task
        only_checked = change.drop_tasks and bool(write.attempt)
        field = field_of(change.job_id, task.id)
        if field.startswith("?") and not write.attempt:
            raise ValueError(f"expected a task id like {change.job_id}_1_0, got {task.id}")
        states = "".join(LETTERS[state] for state in write.states)
        return [field, write.attempt, states, False if only_checked else self._task(task, write.wakes)]

    def _task(self, task: Task, wakes: str) -> list[Any]:
        waiting, deadline = task.waiting, task.deadline
        queued = task.queued_at if task.priority and waiting else None
        return [
            self._body(encode(task)),
            task.attempt,
            LETTERS[task.state],
            (task.worker_id or "") if task.state in HELD_STATES else "",
            lane_name(task.lane) if waiting else "",
            task.client,
            order_key(task) if waiting else 0,
            queued.timestamp() if queued is not None else False,
            0 if deadline is None else micros(deadline),
            0 if task.result_by is None else micros(task.result_by),
            _timeout(task),
            task.cancel_requested,
            wakes,
        ]


def field_of(job_id: str, task_id: str) -> str:
    """The field of a task in its job's hash: what its id adds to the job's. A stranger's has none."""
    suffix = task_id.removeprefix(job_id)
    return (
        suffix if suffix.startswith("_") and suffix.count("_") == 2 and suffix != task_id else f"?{task_id}"
    )


def _timeout(task: Task) -> int:
    """How long after an offer somebody must look: the nearer of the two timeouts of an attempt; -1 is never."""
    timeouts = [s for s in (task.attempt_timeout_s, task.heartbeat_timeout_s) if s is not None]
    return timedelta(seconds=min(*timeouts, _CENTURIES_S)) // _MICROSECOND if timeouts else -1
