"""Decisions of people that jobs wait for."""

from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from ..engines.base import Engine
from ..errors import ApprovalConflict, ApprovalTokenWrong, JobNotFound
from ..model import Approval, Job
from ..tokens import equal
from .audit import AuditService
from .caller import Caller
from .jobs import JobService


class PersonDecision(Struct, frozen=True):
    """What a person decided; `data` is merged into the history of the job."""

    decision: str
    comment: str = ""
    data: dict[str, Any] = field(default_factory=dict)


class ApprovalService:
    """Passes decisions on, of the job's owner or of the holder of an approval token."""

    def __init__(self, engine: Engine, jobs: JobService, audit: AuditService) -> None:
        self._engine = engine
        self._jobs = jobs
        self._audit = audit

    async def approve(self, caller: Caller, job_id: str, decision: PersonDecision) -> Job:
        """Pass on a decision; the same one again is fine, another one is ApprovalConflict."""
        await self._jobs.get(caller, job_id)
        return await self._decide(caller, job_id, decision, None)

    async def approve_by_token(
        self, caller: Caller, job_id: str, token: str, decision: PersonDecision
    ) -> None:
        """Pass on the decision of the holder of this question's token; ApprovalTokenWrong, ApprovalConflict.

        A wrong token does not reveal whether the job exists. Repeating a decision is fine, also after the job
        has asked another question.
        """
        job, given = await self._find_question(job_id, token)
        if given is None:
            await self._decide(caller, job_id, decision, job.visit)
        elif given.decision != decision.decision:
            raise ApprovalConflict(job_id, job.status, f"{given.decision!r} was decided before")

    async def check_token(self, job_id: str, token: str) -> None:
        """Raise ApprovalTokenWrong unless the token belongs to a question of this job, open or answered."""
        await self._find_question(job_id, token)

    async def _find_question(self, job_id: str, token: str) -> tuple[Job, Approval | None]:
        """The job of the question that the token belongs to, and the decision if there was one."""
        try:
            job = await self._engine.get(job_id)
        except JobNotFound:
            raise ApprovalTokenWrong from None
        if equal(token, self._engine.approval_token(job)):
            return job, None
        for given in job.approvals:
            asked = replace(job, state=given.state, visit=given.visit)
            if equal(token, self._engine.approval_token(asked)):
                return job, given
        raise ApprovalTokenWrong

    async def _decide(self, caller: Caller, job_id: str, decision: PersonDecision, visit: int | None) -> Job:
        by = self._audit.action(caller, "job.approve", job_id, decision=decision.decision)
        job = await self._engine.approve(
            job_id, decision.decision, decision.comment, decision.data, visit, by
        )
        self._audit.log(caller, "job.approve", job_id)
        return job
