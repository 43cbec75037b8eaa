"""The engine contract: what the API, the worker protocol and the chores need from whoever runs jobs."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Protocol

from msgspec import Struct, field

from ..errors import IdempotencyConflict
from ..model import Job, Quota, ResultVerdict, TaskResult


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
        self, job_id: str, decision: str, comment: str = "", data: dict[str, Any] | None = None
    ) -> Job:
        """Pass on a person's decision. Twice the same is fine; another one is ApprovalConflict."""
        ...

    async def cancel(self, job_id: str, reason: str = "") -> Job:
        """Ask for a stop. JobAlreadyTerminal when it is too late."""
        ...

    async def get(self, job_id: str) -> Job:
        """The job, or JobNotFound."""
        ...

    async def submit_many(self, submissions: Sequence[Submission]) -> list[Job | IdempotencyConflict]:
        """Accept several jobs with one flush; each is answered in its own place."""
        ...
