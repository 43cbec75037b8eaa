"""The engine contract: what the API, the command line, schedules and webhooks need of the part that runs jobs."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from msgspec import Struct, field

from ..errors import RegistaError
from ..history.query import Field, Place, Query
from ..history.query.counts import JobCounts
from ..machine.step import DecisionContext, Step
from ..machine.task_results import TaskStep
from ..model import (
    Change,
    CommitOutcome,
    Event,
    Job,
    JobSummary,
    QueueStatus,
    Quota,
    ResultVerdict,
    Task,
    TaskResult,
    Worker,
)
from ..model.audit import AuditedAction
from ..model.explanation import Explanation, Score


class Submission(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A request for a job."""

    blueprint: str
    input: dict[str, Any] = field(default_factory=dict)
    client: str = ""
    idempotency_key: str | None = None
    priority: float = 0.0
    dispatch_timeout_s: float | None = None
    result_timeout_s: float | None = None
    webhook_url: str | None = None
    search_attributes: dict[str, Any] = field(default_factory=dict)
    tracing_context: dict[str, str] = field(default_factory=dict)


class MonthlyQuota(Struct, frozen=True):
    """How many jobs of a client may be accepted, and when counting starts again."""

    quota: Quota
    resets_at: datetime


class WaitResult(NamedTuple):
    """The result of waiting for several jobs."""

    #: The jobs that have settled, by id.
    ended: dict[str, Job]
    #: Ids of no job, or of no job of this owner.
    unknown: list[str]


class Capability(StrEnum):
    """What not every engine can do. The API answers 501 for the others."""

    #: Workers connect to this instance, by stream or by polling.
    WORKER_PROTOCOL = "worker_protocol"
    #: `explain` names the workers that would get a task.
    DRY_RUN = "dry_run"
    #: A quarantined job can be released with changed data.
    QUARANTINE_EDIT = "quarantine_edit"


class Engine(Protocol):
    """Runs jobs. Every method that changes a job returns after the change is durable."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What this engine can do beside the methods below."""
        ...

    async def submit(
        self,
        submissions: Sequence[Submission],
        quota: MonthlyQuota | None = None,
        *,
        check_all: bool = False,
    ) -> list[Job | RegistaError]:
        """Creates jobs; the answers are in the order of the submissions. An error concerns its own submission only.

        The same idempotency key returns the same job; with another body, IdempotencyConflict. Jobs are counted
        against the quota in the write that creates them; QuotaExceeded. With `check_all` an invalid submission raises
        before anything is written.
        """
        ...

    async def get(self, job_id: str) -> Job:
        """The job, or JobNotFound."""
        ...

    async def tasks_of(self, job_id: str) -> list[Task]:
        """The tasks of the job's current state."""
        ...

    async def wait(
        self, job_ids: Sequence[str], timeout_s: float, collect_s: float = 0.0, owner: str | None = None
    ) -> WaitResult:
        """The jobs that have settled: as soon as there is one and `collect_s` later, or none after `timeout_s`."""
        ...

    async def wait_one(self, job_id: str, timeout_s: float | None = None) -> Job:
        """The job once it has settled, or as it is after the timeout; JobNotFound."""
        ...

    def approval_token(self, job: Job) -> str:
        """The token that answers the job's open question without a client token."""
        ...

    async def approve(
        self,
        job_id: str,
        decision: str,
        comment: str = "",
        data: dict[str, Any] | None = None,
        visit: int | None = None,
        by: AuditedAction | None = None,
    ) -> Job:
        """Applies a person's decision. The same decision again changes nothing; another one is ApprovalConflict."""
        ...

    async def cancel(self, job_id: str, reason: str = "", by: AuditedAction | None = None) -> Job:
        """Requests a cancel. Again changes nothing; JobAlreadyTerminal."""
        ...

    async def release(
        self, job_id: str, data: dict[str, Any] | None = None, by: AuditedAction | None = None
    ) -> Job:
        """Runs the handler of a quarantined job again, with `data` merged in first; NotQuarantined."""
        ...

    async def fail(self, job_id: str, reason: str = "", by: AuditedAction | None = None) -> Job:
        """Ends a quarantined job as failed; NotQuarantined."""
        ...

    async def explain(self, job: Job) -> Explanation:
        """Why the job does not progress, and what would change that."""
        ...

    async def dry_run(self, task: Task) -> list[Score]:
        """The workers that would get the task now, best first. Needs `Capability.DRY_RUN`."""
        ...

    async def events(self, job_id: str, after_seq: int = 0, limit: int = 1000) -> list[Event]:
        """The events of the job above `after_seq`, in order, recorded in the history or not."""
        ...

    async def find(
        self, query: Query, after: Place | None = None, limit: int = 100
    ) -> tuple[list[JobSummary], Place | None]:
        """Jobs that match, behind a place in the order of the query, and the place of the next page."""
        ...

    async def count(self, query: Query, by: Field | None = None, limit: int = 100) -> JobCounts:
        """How many jobs match, in all and in the largest groups, and how long those that have ended took."""
        ...

    async def queue_status(self) -> list[QueueStatus]:
        """The tasks that wait, by queue and client."""
        ...

    async def start(self) -> None:
        """Runs stored jobs and accepts new ones. A second call changes nothing."""
        ...

    async def stop(self) -> None:
        """Stops; stored jobs continue at the next start. A second call changes nothing."""
        ...


def accepted(answer: Job | RegistaError) -> Job:
    """The job of one answer of `Engine.submit`; raises the error that takes its place."""
    if isinstance(answer, RegistaError):
        raise answer
    return answer


class TaskEngine(Protocol):
    """What only the native engine has: the part that takes results and changes of tasks from workers and chores."""

    def deliver(self, result: TaskResult) -> "asyncio.Future[ResultVerdict]":
        """Takes a task result. The verdict is there after the commit that the result causes."""
        ...

    async def signal_tasks(
        self, task_ids: Sequence[str], decide: Callable[[Job, Task, DecisionContext], Step | TaskStep | None]
    ) -> int:
        """Changes single tasks with one load and one commit; returns how many were changed."""
        ...

    async def write(self, step: TaskStep) -> bool:
        """Commits a change of tasks only. False when a task was changed meanwhile."""
        ...

    async def recheck(self) -> int:
        """Repeats what lost hints announced; returns how many jobs were changed."""
        ...

    def run_soon(self, work: Coroutine[Any, Any, None], action: str) -> None:
        """Runs the coroutine in the background. Its failure is logged."""
        ...


class RunningSpan(Protocol):
    """The span of a handler's run."""

    def off(self) -> None:
        """Code that runs from now on belongs to another span."""
        ...

    def done(self, error: str | None) -> None:
        """The handler has decided, or failed with this error."""
        ...


class EngineObserver(Protocol):
    """Telemetry of an engine. No method raises."""

    def loaded(self, jobs: Sequence[Job | None]) -> None:
        """Jobs were loaded for a decision."""
        ...

    def committed(self, changes: Sequence[Change], outcomes: Sequence[CommitOutcome], took_s: float) -> None:
        """A commit was flushed."""
        ...

    def commit_failed(self) -> None:
        """A commit raised: its outcome is unknown."""
        ...

    def claimed(self, worker: Worker, tasks: Sequence[Task]) -> None:
        """A worker was given these tasks, which had waited."""
        ...

    def result_ignored(self, job: Job | None, verdict: ResultVerdict) -> None:
        """A worker's result was not followed."""
        ...

    def handler_span(self, job: Job) -> RunningSpan | None:
        """Starts the span of a handler's run; None when the job is not traced."""
        ...


class NoObserver:
    """Observes nothing."""

    def loaded(self, jobs: Sequence[Job | None]) -> None:
        """Does nothing."""

    def committed(self, changes: Sequence[Change], outcomes: Sequence[CommitOutcome], took_s: float) -> None:
        """Does nothing."""

    def commit_failed(self) -> None:
        """Does nothing."""

    def claimed(self, worker: Worker, tasks: Sequence[Task]) -> None:
        """Does nothing."""

    def result_ignored(self, job: Job | None, verdict: ResultVerdict) -> None:
        """Does nothing."""

    def handler_span(self, job: Job) -> RunningSpan | None:
        """Starts no span."""
        return None
