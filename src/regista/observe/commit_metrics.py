"""Book: reads what a commit did, and counts it. Everything that happens to a job passes here once, on the instance
that wrote it, after the flush.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from ..model import (
    AttemptState,
    Change,
    CommitOutcome,
    CommitStatus,
    Event,
    EventType,
    Job,
    JobStatus,
    Task,
    Worker,
)
from ..model.event import ATTEMPT_OUTCOMES
from .metrics import Metrics

#: Blueprints of the last jobs that were looked at: a change of tasks alone does not say it.
_JOBS_KEPT = 10_000
#: What a worker reports, and how an attempt ended that no worker reported.
_TOLD = (EventType.TASK_FINISHED, EventType.TASK_FAILED)
_UNTOLD = {kind: outcome for kind, outcome in ATTEMPT_OUTCOMES.items() if kind not in _TOLD}

#: Members that every commit meets: to find one through its class costs more than to compare it.
_APPLIED, _OFFERED = CommitStatus.APPLIED, AttemptState.OFFERED

FindWorker = Callable[[str | None], Worker | None]


class CommitTotals:
    """What the changes of one commit add up to: all that is alike is then counted at once.

    One serves commit after commit: to make its tables anew costs as much as to read a small commit.
    """

    __slots__ = ("ended", "jobs", "told", "waited")

    def __init__(self) -> None:
        #: Blueprint → new jobs.
        self.jobs: defaultdict[str, int] = defaultdict(int)
        #: Blueprint and status → how long each job took, in seconds.
        self.ended: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        #: Type of the task and status → how long each attempt took.
        self.told: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        #: Queue → how long each task waited.
        self.waited: defaultdict[str, list[float]] = defaultdict(list)

    def pour(self, into: Metrics) -> None:
        """Count it, and be empty again, whatever comes of it."""
        try:
            self._count(into)
        finally:
            self.jobs.clear()
            self.ended.clear()
            self.told.clear()
            self.waited.clear()

    def _count(self, into: Metrics) -> None:
        for blueprint, born in self.jobs.items():
            into.jobs.add((blueprint,), born)
        for (blueprint, status), seconds in self.ended.items():
            labels = blueprint, str(status)
            into.jobs_ended.add(labels, len(seconds))
            into.job_duration.observe_all(seconds, labels)
            if status == "failed":
                into.jobs_failed.add((blueprint,), len(seconds))
        for labels, seconds in self.told.items():
            into.attempts.add(labels, len(seconds))
            into.attempt_duration.observe_all(seconds, labels[:1])
        for queue, seconds in self.waited.items():
            into.schedule_to_start.observe_all(seconds, (queue,))


class CommitMetrics:
    """Counts commits and hand-overs. Never raises: a wrong number must not cost a job."""

    def __init__(self, catalogue: Metrics, find_worker: FindWorker) -> None:
        self._of = catalogue
        self._find_worker = find_worker
        self._tally = CommitTotals()
        self._blueprints: OrderedDict[str, str] = OrderedDict()
        self._kinds: dict[EventType, Callable[[Event, Change, str, CommitTotals], None]] = {
            EventType.JOB_FINISHED: self._ended,
            EventType.JOB_QUARANTINED: self._quarantined,
            EventType.STATE_FAILED: self._handler_failed,
            EventType.TASK_RETRIED: self._retried,
            **dict.fromkeys(_TOLD, self._told),
            **dict.fromkeys(_UNTOLD, self._untold),
        }

    def loaded(self, jobs: Iterable[Job | None]) -> None:
        """Somebody is about to decide on these."""
        known = self._blueprints
        for job in jobs:
            if job is not None:
                known[job.id] = job.blueprint
        while len(known) > _JOBS_KEPT:
            known.popitem(last=False)

    def committed(self, changes: Sequence[Change], outcomes: Sequence[CommitOutcome], now: datetime) -> None:
        """These changes are in the store, or were refused."""
        tally = self._tally
        for change, outcome in zip(changes, outcomes, strict=True):
            # What was there already has been counted when it came.
            if outcome.kind is _APPLIED:
                self._book(change, now, tally)
        tally.pour(self._of)

    def claimed(self, worker: Worker, tasks: Iterable[Task], now: datetime) -> None:
        """The store gave these waiting tasks to a worker."""
        tally = self._tally
        for task in tasks:
            self._hand_over(task, worker, now, tally)
        tally.pour(self._of)

    def _book(self, change: Change, now: datetime, tally: CommitTotals) -> None:
        job = change.job
        blueprint = self._blueprints.get(change.job_id, "") if job is None else job.blueprint
        if job is not None and change.expected is None:
            tally.jobs[blueprint] += 1
        for birth in change.children:
            tally.jobs[birth.job.blueprint] += 1
        for write in change.tasks:
            if write.attempt == 0 and write.task.state is _OFFERED:
                task = write.task
                self._hand_over(task, self._find_worker(task.worker_id), now, tally, blueprint)
        kinds = self._kinds
        for event in change.events:
            kind = event.type
            if kind in kinds:
                kinds[kind](event, change, blueprint, tally)

    def _hand_over(
        self, task: Task, worker: Worker | None, now: datetime, tally: CommitTotals, blueprint: str = ""
    ) -> None:
        if task.queued_at is not None:
            # Another instance's clock may be ahead of ours.
            waited_s = max(0.0, (now - task.queued_at).total_seconds())
            tally.waited[task.queue or task.type].append(waited_s)
        if worker is not None and worker.profile.hot:
            kind = warm_for(task, worker)
            if kind:
                self._of.hot.add((blueprint or self._blueprints.get(task.job_id, ""), kind))

    def _ended(self, event: Event, change: Change, blueprint: str, tally: CommitTotals) -> None:
        tally.ended[blueprint, event.status or ""].append((event.duration_ms or 0.0) / 1000)

    def _quarantined(self, event: Event, change: Change, blueprint: str, tally: CommitTotals) -> None:
        self._of.jobs_ended.add((blueprint, JobStatus.QUARANTINED.value))
        if event.code == "too_deep":
            self._of.too_deep.add((blueprint,))

    def _handler_failed(self, event: Event, change: Change, blueprint: str, tally: CommitTotals) -> None:
        self._of.handler_failures.add((blueprint, event.state or ""))

    def _retried(self, event: Event, change: Change, blueprint: str, tally: CommitTotals) -> None:
        self._of.retries.add((type_of(event, change),))

    def _told(self, event: Event, change: Change, blueprint: str, tally: CommitTotals) -> None:
        ran_ms = event.duration_ms or 0.0
        outcome = type_of(event, change), event.status or ""
        tally.told[outcome].append(ran_ms / 1000 if ran_ms > 0 else 0.0)

    def _untold(self, event: Event, change: Change, blueprint: str, tally: CommitTotals) -> None:
        self._of.attempts.add((type_of(event, change), _UNTOLD[event.type]))
        if event.type is EventType.TASK_TIMED_OUT:
            self._of.timeouts.add((blueprint, event.code or ""))


def type_of(event: Event, change: Change) -> str:
    """The type of the task that an event is about; the change that carries it writes that task."""
    for write in change.tasks:
        if write.task.id == event.task_id:
            return write.task.type
    return ""


def warm_for(task: Task, worker: Worker) -> str:
    """For what the worker was warm: the skill, a model that the task asks for, or nothing."""
    hot = worker.profile.hot
    if task.type in hot:
        return "skill"
    models = task.requirements.get("models") or ()
    return "model" if any(name in hot for name in models) else ""
