"""The engine contract: what the API, the worker protocol and the chores need from whoever runs jobs."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from msgspec import Struct, field

from ..errors import IdempotencyConflict, RegistaError
from ..model import Job, Quota, ResultVerdict, TaskResult
from ..model.audit import AuditedAction


class Submission(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A wish for a job."""

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
    """How many jobs a client may have accepted, and when that begins anew."""

    quota: Quota
    resets_at: datetime


class WaitResult(NamedTuple):
    """The outcome of a wait for several jobs."""

    #: Jobs that have settled, by id.
    ended: dict[str, Job]
    #: Ids that name no job of the owner.
    unknown: list[str]


class Engine(Protocol):
    """Runs jobs."""

    async def submit(self, submission: Submission, allowance: MonthlyQuota | None = None) -> Job:
        """Accept a job. Returns after it is durable; the same idempotency key returns the same job.

        It is counted in the write that creates it; QuotaExceeded, and nothing is written, when no more may be.
        """
        ...

    async def deliver(self, result: TaskResult) -> ResultVerdict:
        """Take a worker's result. Returns after the commit that it caused."""
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
        """Pass on a person's decision. Twice the same is fine; another one is ApprovalConflict.

        With `visit` it is meant for the question of that visit alone.
        """
        ...

    def approval_token(self, job: Job) -> str:
        """The token that lets its holder answer the question that the job waits with."""
        ...

    async def cancel(self, job_id: str, reason: str = "", by: AuditedAction | None = None) -> Job:
        """Ask for a stop. JobAlreadyTerminal when it is too late."""
        ...

    async def release(
        self, job_id: str, data: dict[str, Any] | None = None, by: AuditedAction | None = None
    ) -> Job:
        """Let a quarantined job try again, with `data` merged into its history first; NotQuarantined."""
        ...

    async def fail(self, job_id: str, reason: str = "", by: AuditedAction | None = None) -> Job:
        """End a quarantined job as failed; NotQuarantined."""
        ...

    async def wait(self, job_id: str, timeout_s: float | None = None) -> Job:
        """The job once it has settled, or as it is when the time is up; JobNotFound, OrchestratorStopped."""
        ...

    async def wait_any(
        self, job_ids: Sequence[str], timeout_s: float, linger_s: float = 0.0, owner: str | None = None
    ) -> WaitResult:
        """Those of the jobs that have settled, as soon as there is one (and `linger_s` later), or none in time.

        Ids that name no job (of the owner, where one is named) are unknown and not waited for.
        """
        ...

    async def get(self, job_id: str) -> Job:
        """The job, or JobNotFound."""
        ...

    async def submit_many(self, submissions: Sequence[Submission]) -> list[Job | IdempotencyConflict]:
        """Accept several jobs with one flush; each is answered in its own place."""
        ...

    async def submit_each(
        self, submissions: Sequence[Submission], allowance: MonthlyQuota | None = None
    ) -> list[Job | RegistaError]:
        """Accept several jobs with one flush. A submission that is refused has its error in its place."""
        ...
