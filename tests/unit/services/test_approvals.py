import asyncio

import pytest

from regista import Job, OrchestratorEngine, Submission
from regista.errors import ApprovalConflict, ApprovalTokenWrong, JobNotFound
from regista.services.approvals import PersonDecision
from regista.services.caller import approval_link_caller
from tests.acceptance.test_jobs import asks
from tests.services_kit import ADA, BOB, OPS, actions_of, audit_records, orchestrator

LINK = approval_link_caller("192.0.2.9")
YES, NO = PersonDecision("yes", "fine"), PersonDecision("no")


async def asking(director: OrchestratorEngine) -> tuple[Job, str]:
    """A job that waits for a person, and the token of its question."""
    job = await director.services.jobs.submit_one(ADA, Submission(blueprint="asks"))
    return job, director.engine.approval_token(job)


async def asked_again(director: OrchestratorEngine, job: Job) -> Job:
    """The job once it waits with its second question."""
    for _ in range(800):
        now = await director.get(job.id)
        if now.status == "waiting_for_human" and now.state == "again":
            return now
        await asyncio.sleep(0.01)
    raise TimeoutError("it did not ask again")


async def test_the_owner_and_operators_decide_and_other_clients_do_not_know_the_job() -> None:
    async with orchestrator(asks()) as director:
        approvals, (job, _) = director.services.approvals, await asking(director)
        with pytest.raises(JobNotFound):
            await approvals.approve(BOB, job.id, YES)
        await approvals.approve(OPS, job.id, NO)
        await asked_again(director, job)
        await approvals.approve(ADA, job.id, YES)
        assert (await director.wait(job.id, 5.0)).status == "finished"
        (record,) = [one for one in await audit_records(director.storage) if one.actor == OPS.actor]
        assert record.facts == {"decision": "no"}
        assert await actions_of(director.storage, BOB) == []


async def test_a_token_decides_its_own_question_and_repeats_change_nothing() -> None:
    async with orchestrator(asks()) as director:
        approvals, (job, token) = director.services.approvals, await asking(director)
        await approvals.approve_by_token(LINK, job.id, token, NO)
        second = await asked_again(director, job)

        await approvals.approve_by_token(LINK, job.id, token, NO)
        with pytest.raises(ApprovalConflict):
            await approvals.approve_by_token(LINK, job.id, token, YES)

        # Neither has answered the second question, which has a token of its own.
        assert (await director.get(job.id)).revision == second.revision
        await approvals.approve_by_token(LINK, job.id, director.engine.approval_token(second), YES)
        assert (await director.wait(job.id, 5.0)).status == "finished"
        assert await actions_of(director.storage, LINK) == [("job.approve", job.id)] * 2


@pytest.mark.parametrize("wrong", ["", "x", "Ω", "\ud800"])
async def test_a_wrong_token_says_nothing_about_the_job(wrong: str) -> None:
    async with orchestrator(asks()) as director:
        approvals, (job, token) = director.services.approvals, await asking(director)
        for job_id, given in ((job.id, wrong), ("absent", wrong), ("absent", token)):
            with pytest.raises(ApprovalTokenWrong):
                await approvals.check_token(job_id, given)
            with pytest.raises(ApprovalTokenWrong):
                await approvals.approve_by_token(LINK, job_id, given, YES)
        await approvals.check_token(job.id, token)
        assert (await director.get(job.id)).revision == job.revision
        assert await audit_records(director.storage) == []
