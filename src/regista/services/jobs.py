"""Jobs: create, read, wait, cancel, release, fail, fork and explain them."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ..clock import Clock
from ..config import Config
from ..engines.base import Capability, Engine, MonthlyQuota, Submission, WaitResult, accepted
from ..engines.quotas import monthly_quota
from ..errors import BatchTooLarge, JobNotFound, OrchestratorStopped, RegistaError
from ..model import Job
from ..model.explanation import Explanation, Score
from ..storage.base import StorageBackend
from .audit import AuditService
from .caller import Caller, Role
from .files import JobPayloads


class JobExplanation(Struct, frozen=True):
    """Why a job does not progress; `candidates` are the workers that its next task could go to, best first."""

    explanation: Explanation
    candidates: list[Score]


class QuotaUsage(Struct, frozen=True):
    """Accepted jobs of a client in this calendar month; `resets_at` is the beginning of the next one."""

    limit: int
    used: int
    resets_at: datetime


class JobService:
    """What a client may do with its own jobs, and an operator with all."""

    def __init__(
        self,
        engine: Engine,
        storage: StorageBackend,
        payloads: JobPayloads,
        audit: AuditService,
        clock: Clock,
        config: Config,
    ) -> None:
        self._engine = engine
        self._storage = storage
        self._payloads = payloads
        self._audit = audit
        self._clock = clock
        self._config = config

    # -- create ----------------------------------------------------------------------------------

    async def submit(
        self, caller: Caller, submissions: Sequence[Submission], *, check_all: bool = False
    ) -> list[Job | RegistaError]:
        """Create jobs with one write; durable when this returns. The results stand in the order asked.

        A submission that is refused has its error in its place and does not affect the others; with `check_all`
        an invalid one raises before anything is written. The jobs are the caller's and count for its monthly
        quota. Raises BatchTooLarge; the embedding program has no limit.
        """
        if caller.role is not Role.PROGRAM:
            self.check_batch_size(len(submissions), "jobs")
        if not submissions:
            return []
        wanted = [self._owned(caller, submission) for submission in submissions]
        results = await self._engine.submit(wanted, self._quota(caller), check_all=check_all)
        self._audit.log_submission(caller, f"{len(results)} jobs")
        return results

    async def submit_one(self, caller: Caller, submission: Submission) -> Job:
        """Create one job; raises what `submit` returns in its place."""
        answers = await self._engine.submit(
            [self._owned(caller, submission)], self._quota(caller), check_all=True
        )
        job = accepted(answers[0])
        self._audit.log_submission(caller, job.id)
        return job

    async def fork(
        self,
        caller: Caller,
        job_id: str,
        *,
        input: Mapping[str, Any],
        search_attributes: Mapping[str, Any],
        priority: float | None = None,
        idempotency_key: str | None = None,
    ) -> Job:
        """Create a job like this one; members of `input` and `search_attributes` replace those of the old job.

        It runs the newest version of the blueprint. A job of another client is forked without its webhook.
        """
        old = await self._payloads.whole(await self.get(caller, job_id))
        submission = Submission(
            blueprint=old.blueprint,
            input={**old.input, **input},
            idempotency_key=idempotency_key,
            priority=old.priority if priority is None else priority,
            dispatch_timeout_s=old.dispatch_timeout_s,
            result_timeout_s=old.result_timeout_s,
            webhook_url=old.webhook_url if old.client == caller.name else None,
            search_attributes={**old.search_attributes, **search_attributes},
        )
        return await self.submit_one(caller, submission)

    def check_batch_size(self, count: int, unit: str) -> None:
        """Raise BatchTooLarge if one request may not name so many."""
        if count > self._config.max_batch:
            raise BatchTooLarge(unit, self._config.max_batch, count)

    async def quota_usage(self, caller: Caller) -> QuotaUsage | None:
        """How much of its monthly quota the caller has used; None if it has none."""
        quota = self._quota(caller)
        if quota is None:
            return None
        used = await self._storage.quota_used(quota.quota.counter)
        return QuotaUsage(quota.quota.limit or 0, used, quota.resets_at)

    # -- read and wait ---------------------------------------------------------------------------

    async def get(self, caller: Caller, job_id: str) -> Job:
        """The job; JobNotFound says the same of other clients' jobs and of absent ones."""
        job = await self._engine.get(job_id)
        if not caller.may_see(job.client):
            raise JobNotFound(job_id)
        return job

    async def wait(self, caller: Caller, job: Job, timeout_s: float) -> Job:
        """The job once it has settled; as it is when the time is up or this instance stops."""
        if not caller.may_see(job.client):
            raise JobNotFound(job.id)
        if job.status.settled:
            return job
        try:
            return await self._engine.wait_one(job.id, min(timeout_s, self._config.max_wait_s))
        except OrchestratorStopped:
            return await self._engine.get(job.id)

    async def wait_any(
        self, caller: Caller, job_ids: Sequence[str], timeout_s: float, linger_s: float = 0.0
    ) -> WaitResult:
        """Those of the jobs that have settled, as soon as there is one (and `linger_s` later), or none in time.

        Other clients' jobs are unknown. Raises BatchTooLarge.
        """
        self.check_batch_size(len(job_ids), "ids")
        ids, owner = list(dict.fromkeys(job_ids)), caller.visible_client
        try:
            return await self._engine.wait(ids, min(timeout_s, self._config.max_wait_s), linger_s, owner)
        except OrchestratorStopped:
            return await self._engine.wait(ids, 0.0, owner=owner)

    async def explain(self, caller: Caller, job_id: str) -> JobExplanation:
        """Why the job does not progress, and which workers could take its next task."""
        job = await self.get(caller, job_id)
        explanation = await self._engine.explain(job)
        waiting = [task for task in await self._storage.tasks_of(job_id) if task.waiting]
        ranked = bool(waiting) and Capability.DRY_RUN in self._engine.capabilities
        candidates = await self._engine.dry_run(waiting[0]) if ranked else []
        return JobExplanation(explanation, candidates)

    # -- change ----------------------------------------------------------------------------------

    async def cancel(self, caller: Caller, job_id: str, reason: str = "") -> Job:
        """Ask the job to stop; JobAlreadyTerminal if it has ended. Asking again is fine."""
        await self.get(caller, job_id)
        job = await self._engine.cancel(job_id, reason, by=self._audit.action(caller, "job.cancel", job_id))
        self._audit.log(caller, "job.cancel", job_id)
        return job

    async def release(self, caller: Caller, job_id: str, data: dict[str, Any] | None = None) -> Job:
        """Let a quarantined job try again, with `data` merged into its history first; NotQuarantined."""
        await self.get(caller, job_id)
        job = await self._engine.release(job_id, data, self._audit.action(caller, "job.release", job_id))
        self._audit.log(caller, "job.release", job_id)
        return job

    async def fail(self, caller: Caller, job_id: str, reason: str = "") -> Job:
        """End a quarantined job as failed; NotQuarantined."""
        await self.get(caller, job_id)
        job = await self._engine.fail(job_id, reason, self._audit.action(caller, "job.fail", job_id))
        self._audit.log(caller, "job.fail", job_id)
        return job

    # -- internals -------------------------------------------------------------------------------

    def _owned(self, caller: Caller, submission: Submission) -> Submission:
        """Jobs belong to their caller; only the embedding program names the client by itself."""
        return submission if caller.role is Role.PROGRAM else replace(submission, client=caller.name)

    def _quota(self, caller: Caller) -> MonthlyQuota | None:
        if caller.client.monthly_attempts is None:
            return None
        from zoneinfo import ZoneInfo  # a few milliseconds that starts without quotas can save

        return monthly_quota(caller.client, self._clock.now(), ZoneInfo(self._config.tz))
