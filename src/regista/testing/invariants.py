"""The promises, as checks over what a run left behind. Every chaos and simulation test ends here.

Promise 10 (clients) is checked where its room lives, and 7 (logs) is not made yet; the others are below, each with its number.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Protocol

from ..blueprint import Graph
from ..engines.native.submissions import job_id_for_key
from ..model import (
    OPEN_STATES,
    AwaitBranches,
    AwaitChild,
    AwaitHuman,
    AwaitRetry,
    AwaitTask,
    AwaitTimer,
    Event,
    EventType,
    Job,
    Task,
)
from ..schedules.calendar import moment
from ..schedules.registry import StoredSchedule
from ..schedules.state import PendingStart, ScheduleRecord, tick_key

Graphs = Mapping[tuple[str, str], Graph]

_TASK_ENDS = (
    EventType.TASK_FINISHED,
    EventType.TASK_FAILED,
    EventType.TASK_LOST,
    EventType.TASK_UNDELIVERED,
    EventType.TASK_TIMED_OUT,
)


class InvariantBroken(AssertionError):
    """A promise was broken. `promise` is its number in docs/guarantees.md."""

    def __init__(self, promise: int, job_id: str, message: str) -> None:
        super().__init__(f"promise {promise} is broken, job {job_id}: {message}")
        self.promise = promise
        self.job_id = job_id


class Live(Protocol):
    """What an audit needs to see of a store."""

    def live_jobs(self) -> Iterable[tuple[Job, int, bool]]:
        """Every live job, its open branches, and whether it is queued or leased."""
        ...

    def tasks_of(self, job_id: str) -> list[Task]: ...
    def in_lane(self, task_id: str) -> bool: ...
    def has_deadline(self, id: str) -> bool: ...
    def knows_job(self, job_id: str) -> bool: ...
    def has_message(self, message_id: str) -> bool: ...


def check_history(graphs: Graphs, events: Mapping[str, list[Event]], jobs: Mapping[str, Job]) -> None:
    """Promises 1, 2, 3, 4 and 9 over the recorded events of every job and the job as it is now."""
    for job_id, job in jobs.items():
        told = events.get(job_id, [])
        _check_sequence(job_id, told)
        _check_end(job, told)
        _check_path(graphs, job, told)
        _check_tasks(job_id, told)
        _check_fan_outs(graphs, job, told)
    for job_id in events:
        if job_id not in jobs:
            raise InvariantBroken(4, job_id, "history tells of a job that the store has lost")


def _check_sequence(job_id: str, events: list[Event]) -> None:
    numbers = [event.seq for event in events]
    if numbers != list(range(1, len(numbers) + 1)):
        raise InvariantBroken(2, job_id, f"events are numbered {numbers}, expected 1, 2, 3 … without a gap")
    if not events or events[0].type is not EventType.JOB_CREATED:
        raise InvariantBroken(4, job_id, "the first event is not job_created")
    if sum(event.type is EventType.JOB_CREATED for event in events) != 1:
        raise InvariantBroken(2, job_id, "created more than once")


def _check_end(job: Job, events: list[Event]) -> None:
    """1: exactly one terminal state, and it is final."""
    ends = [event for event in events if event.type is EventType.JOB_FINISHED]
    if len(ends) != int(job.status.terminal):
        raise InvariantBroken(1, job.id, f"{len(ends)} job_finished events for a job that is {job.status}")
    if ends and (events[-1] is not ends[0] or ends[0].status != job.status.value):
        raise InvariantBroken(1, job.id, f"ended as {ends[0].status}, then went on to be {job.status}")
    asked = any(event.type is EventType.CANCEL_REQUESTED for event in events)
    if asked and job.status.terminal and job.status.value != "cancelled":
        raise InvariantBroken(1, job.id, f"was cancelled, but ended as {job.status}")


def _check_path(graphs: Graphs, job: Job, events: list[Event]) -> None:
    """2: every transition is recorded once and is an edge."""
    versions = [(job.blueprint, event.detail["version"]) for event in events if "version" in event.detail]
    moved = [(job.blueprint, event.detail["to"]) for event in events if event.type is EventType.JOB_MIGRATED]
    known = [graphs[version] for version in (*versions, *moved) if version in graphs]
    state: str | None = None
    leaving: str | None = None
    for event in events:
        if event.type is EventType.STATE_STARTED:
            if state is not None and leaving != event.state:
                raise InvariantBroken(2, job.id, f"entered {event.state!r} while in {state!r}")
            state, leaving = event.state, None
        elif event.type is EventType.STATE_FINISHED:
            if event.state != state or leaving is not None:
                raise InvariantBroken(2, job.id, f"left {event.state!r} while in {state!r}")
            leaving = event.next_state
            if leaving is not None and not any(graph.allows(event.state or "", leaving) for graph in known):
                raise InvariantBroken(2, job.id, f"{event.state!r} → {leaving!r} is not an edge")
    if state is not None and job.state != state:
        raise InvariantBroken(2, job.id, f"is in {job.state!r}, but history last saw {state!r}")


def _check_tasks(job_id: str, events: list[Event]) -> None:
    """3: of all attempts of a task only one is accepted as its end; each attempt starts and ends at most once."""
    started: Counter[tuple[str, int]] = Counter()
    ended: Counter[tuple[str, int]] = Counter()
    accepted: dict[str, int] = {}
    for event in events:
        if event.task_id is None or event.attempt is None:
            continue
        if event.type is EventType.TASK_STARTED:
            started[(event.task_id, event.attempt)] += 1
        if event.type in _TASK_ENDS:
            ended[(event.task_id, event.attempt)] += 1
            if event.task_id in accepted:
                first = accepted[event.task_id]
                message = f"task {event.task_id}: attempt {event.attempt} ended after {first} was accepted"
                raise InvariantBroken(3, job_id, message)
        if event.type is EventType.TASK_FINISHED:
            accepted[event.task_id] = event.attempt
    for word, counts in (("started", started), ("ended", ended)):
        doubled = [key for key, count in counts.items() if count > 1]
        if doubled:
            raise InvariantBroken(3, job_id, f"attempts that {word} twice: {doubled}")


def _check_fan_outs(graphs: Graphs, job: Job, events: list[Event]) -> None:
    """9: an aggregator runs once, after all its branches."""
    graph = graphs.get((job.blueprint, job.version))
    open_tasks: dict[str, None] = {}
    for event in events:
        if event.type is EventType.TASK_DISPATCHED:
            open_tasks[event.task_id or ""] = None
        elif event.type in _TASK_ENDS:
            open_tasks.pop(event.task_id or "", None)
        elif event.type is EventType.TASK_RETRIED:
            open_tasks[event.task_id or ""] = None
        elif event.type is EventType.STATE_FINISHED:
            info = graph.states.get(event.next_state or "") if graph is not None else None
            if info is not None and info.is_aggregator and open_tasks:
                message = f"aggregator {info.name!r} ran before {sorted(open_tasks)}"
                raise InvariantBroken(9, job.id, message)
            open_tasks.clear()


def audit(store: Live) -> None:
    """Promise 5 over the live jobs: each has a lease, a timer, a queue entry, or a named thing it waits for."""
    for job, open_branches, queued in store.live_jobs():
        problem = _orphaned(store, job, open_branches, queued)
        if problem:
            raise InvariantBroken(5, job.id, f"{job.status} in {job.state!r}: {problem}")


def _orphaned(store: Live, job: Job, open_branches: int, queued: bool) -> str | None:
    if job.status.settled:
        return None
    if job.runnable(open_branches):
        return None if queued else "can run, but is neither queued nor leased"
    tasks = store.tasks_of(job.id)
    match job.wait:
        case AwaitTask(task_id):
            mine = [task for task in tasks if task.id == task_id]
            return _idle(store, mine[0]) if mine else "its task is gone"
        case AwaitBranches():
            live = [task for task in tasks if task.state in OPEN_STATES]
            if len(live) != open_branches:
                return f"{open_branches} open branches are counted, {len(live)} exist"
            return next(filter(None, (_idle(store, task) for task in live)), None)
        case AwaitChild(child_id):
            alive = store.knows_job(child_id) or store.has_message(f"ended:{child_id}")
            return None if alive else "its child is gone"
        case AwaitTimer() | AwaitRetry():
            return None if store.has_deadline(job.id) else "its timer is gone"
        case AwaitHuman():
            return None
        case _:
            return "waits for nothing"


def _idle(store: Live, task: Task) -> str | None:
    """Why nothing would ever happen to this task; None if something will."""
    if task.state not in OPEN_STATES:
        return f"task {task.id} is closed"
    if task.waiting:
        return None if store.in_lane(task.id) else f"task {task.id} waits in no lane"
    if task.worker_id is None and not store.has_deadline(task.id):
        return f"task {task.id} is paused without a timer"
    return None


def check_schedule(entry: StoredSchedule, knows_job: Callable[[str], bool]) -> None:
    """Promise 8 over what is stored about a schedule: each tick fired once, or was skipped and the reason is recorded.

    Ticks whose record has made room for newer ones cannot be checked any more; neither can those of a calendar that
    was changed since.
    """
    fates: Counter[datetime] = Counter()
    for record in _ticks_told(entry):
        fates.update(_covered(entry, record))
        _check_record(entry, record, knows_job)
    for tick in (*(start.tick for start in entry.state.starting), entry.state.buffered):
        if tick is not None:
            fates[tick] += 1
    doubled = sorted(tick for tick, count in fates.items() if count > 1)
    if doubled:
        raise InvariantBroken(8, entry.name, f"ticks with more than one fate: {doubled[:3]}")
    since = _told_since(entry)
    ticks = [] if since is None else entry.calendar.between(since, entry.state.cursor)
    missing = [moment(tick) for tick in ticks if moment(tick) not in fates]
    if missing:
        raise InvariantBroken(8, entry.name, f"neither fired nor skipped: {missing[:3]}")


def _ticks_told(entry: StoredSchedule) -> list[ScheduleRecord]:
    changed = [number for number, one in enumerate(entry.state.records) if one.kind == "changed"]
    own = entry.state.records[changed[-1] + 1 :] if changed else entry.state.records
    return [record for record in own if record.tick is not None]


def _covered(entry: StoredSchedule, record: ScheduleRecord) -> list[datetime]:
    assert record.tick is not None
    if record.count == 1:
        return [record.tick]
    between = entry.calendar.between(record.tick, record.last or record.tick, limit=record.count)
    return [record.tick, *(moment(tick) for tick in between)]


def _check_record(entry: StoredSchedule, record: ScheduleRecord, knows_job: Callable[[str], bool]) -> None:
    covered = _covered(entry, record)
    if len(covered) != record.count:
        message = f"{record.count} ticks are told of as {record.reason}, {len(covered)} there are"
        raise InvariantBroken(8, entry.name, message)
    for tick in covered:
        job_id = job_id_for_key(entry.schedule.client, tick_key(entry.name, PendingStart(tick)))
        if record.kind == "started" and (record.job_id != job_id or not knows_job(job_id)):
            raise InvariantBroken(8, entry.name, f"the tick {tick} has fired, and there is no job {job_id}")
        if record.kind == "skipped" and not record.reason:
            raise InvariantBroken(8, entry.name, f"the tick {tick} was skipped for no reason")
        if record.kind == "skipped" and knows_job(job_id):
            raise InvariantBroken(8, entry.name, f"the tick {tick} was skipped, but has a job: {job_id}")


def _told_since(entry: StoredSchedule) -> datetime | None:
    """From where on every tick should be told of."""
    changed = [record.at for record in entry.state.records if record.kind == "changed"]
    if changed:
        return changed[-1]
    told = sum(
        record.count for record in entry.state.records if record.kind in ("started", "skipped", "triggered")
    )
    if told == entry.state.fired + entry.state.skipped:
        return entry.state.created_at
    # The oldest that are left may stand in another order than their ticks, where one has waited for a job's end.
    first = [record.last or record.tick for record in _ticks_told(entry)[:2]]
    return max((tick for tick in first if tick is not None), default=None)
