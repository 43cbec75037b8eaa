import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import pytest

from regista import ClientConfig, Job, OrchestratorEngine, Submission
from regista.errors import (
    BatchTooLarge,
    BlueprintNotFound,
    IdempotencyConflict,
    JobAlreadyTerminal,
    JobNotFound,
    NotQuarantined,
    QuotaExceeded,
)
from regista.services.caller import client_caller, program_caller
from regista.services.jobs import JobService
from tests.acceptance.test_jobs import breaks
from tests.services_kit import ADA, BOB, OPS, actions_of, audit_records, orchestrator
from tests.support import one_task

#: What a client may do with a job, by another client.
CALLS: dict[str, Callable[[JobService, Job], Coroutine[Any, Any, object]]] = {
    "get": lambda jobs, job: jobs.get(BOB, job.id),
    "wait": lambda jobs, job: jobs.wait(BOB, job, 5.0),
    "explain": lambda jobs, job: jobs.explain(BOB, job.id),
    "cancel": lambda jobs, job: jobs.cancel(BOB, job.id),
    "release": lambda jobs, job: jobs.release(BOB, job.id, {"x": 1}),
    "fail": lambda jobs, job: jobs.fail(BOB, job.id),
    "fork": lambda jobs, job: jobs.fork(BOB, job.id, input={}, search_attributes={}),
}


async def submitted(director: OrchestratorEngine, blueprint: str = "script") -> Job:
    return await director.services.jobs.submit_one(ADA, Submission(blueprint=blueprint))


async def quarantined(director: OrchestratorEngine) -> Job:
    job = await submitted(director, "breaks")
    return await director.services.jobs.wait(ADA, job, 5.0)


@pytest.mark.parametrize("call", CALLS)
async def test_a_job_does_not_exist_for_another_client(call: str) -> None:
    async with orchestrator(one_task()) as director:
        job = await submitted(director)

        with pytest.raises(JobNotFound):
            await CALLS[call](director.services.jobs, job)

        assert (await director.get(job.id)).revision == job.revision
        assert await actions_of(director.storage, BOB) == []


async def test_jobs_belong_to_the_client_that_submits_them_whatever_the_submission_says() -> None:
    async with orchestrator(one_task()) as director:
        jobs = director.services.jobs
        theirs = Submission(blueprint="script", client="bob")
        assert (await jobs.submit_one(ADA, theirs)).client == "ada"
        (job,) = await jobs.submit(OPS, [theirs])
        assert isinstance(job, Job)
        assert job.client == "ops"
        assert (await jobs.submit_one(program_caller(), theirs)).client == "bob"


async def test_what_is_wrong_with_one_submission_does_not_affect_the_others() -> None:
    async with orchestrator(one_task()) as director:
        jobs = director.services.jobs
        wanted = [
            Submission(blueprint="script", idempotency_key="k"),
            Submission(blueprint="absent"),
            Submission(blueprint="script", idempotency_key="k", input={"n": 1}),
        ]
        first, second, third = await jobs.submit(ADA, wanted)
        assert isinstance(first, Job)
        assert isinstance(second, BlueprintNotFound)
        assert isinstance(third, IdempotencyConflict)

        with pytest.raises(BlueprintNotFound):
            await jobs.submit(ADA, [Submission(blueprint="script"), wanted[1]], check_all=True)
        with pytest.raises(BlueprintNotFound):
            await jobs.submit_one(ADA, wanted[1])


async def test_a_batch_has_a_limit_for_clients_and_none_for_the_embedding_program() -> None:
    async with orchestrator(one_task(), max_batch=2) as director:
        jobs, three = director.services.jobs, [Submission(blueprint="script")] * 3
        with pytest.raises(BatchTooLarge):
            await jobs.submit(ADA, three)
        with pytest.raises(BatchTooLarge):
            await jobs.wait_any(ADA, ["a", "b", "c"], 0.0)
        assert len(await jobs.submit(program_caller("ada"), three)) == 3
        assert await jobs.submit(ADA, []) == []


async def test_a_quota_counts_jobs_however_they_are_created() -> None:
    limited = client_caller(ClientConfig(name="ada", monthly_attempts=3))
    async with orchestrator(one_task()) as director:
        jobs, wanted = director.services.jobs, Submission(blueprint="script")
        job = await jobs.submit_one(limited, wanted)
        await jobs.submit(limited, [wanted])
        await jobs.fork(limited, job.id, input={}, search_attributes={})

        usage = await jobs.quota_usage(limited)
        assert usage is not None
        assert (usage.limit, usage.used) == (3, 3)
        assert usage.resets_at > datetime.now(UTC)
        with pytest.raises(QuotaExceeded):
            await jobs.submit_one(limited, wanted)
        (refused,) = await jobs.submit(limited, [wanted])
        assert isinstance(refused, QuotaExceeded)
        assert await jobs.quota_usage(BOB) is None


async def test_a_fork_is_like_its_job_but_for_what_is_named() -> None:
    async with orchestrator(one_task()) as director:
        jobs = director.services.jobs
        old = await jobs.submit_one(ADA, Submission(blueprint="script", input={"a": 1, "b": 2}, priority=3.0))
        fork = await jobs.fork(OPS, old.id, input={"b": 3}, search_attributes={}, idempotency_key="again")
        assert (fork.input, fork.priority, fork.client) == ({"a": 1, "b": 3}, 3.0, "ops")
        same = await jobs.fork(OPS, old.id, input={"b": 3}, search_attributes={}, idempotency_key="again")
        assert same.id == fork.id


async def test_another_clients_webhook_is_not_told_of_a_fork() -> None:
    async with orchestrator(one_task(), webhook_allow_private=("127.0.0.1",)) as director:
        jobs = director.services.jobs
        wanted = Submission(blueprint="script", webhook_url="http://127.0.0.1:9/hook")
        old = await jobs.submit_one(ADA, wanted)
        mine = await jobs.fork(ADA, old.id, input={}, search_attributes={})
        other = await jobs.fork(OPS, old.id, input={}, search_attributes={})
        assert (mine.webhook_url, other.webhook_url) == (wanted.webhook_url, None)


async def test_waiting_for_many_knows_nothing_of_another_clients_jobs() -> None:
    async with orchestrator(one_task()) as director:
        job = await submitted(director)
        await director.cancel(job.id)
        jobs = director.services.jobs
        assert (await jobs.wait_any(BOB, [job.id], 0.0)).unknown == [job.id]
        assert list((await jobs.wait_any(ADA, [job.id, job.id], 0.0)).ended) == [job.id]
        assert list((await jobs.wait_any(OPS, [job.id], 0.0)).ended) == [job.id]


async def test_whoever_waits_when_the_orchestrator_stops_gets_the_job_as_it_is() -> None:
    async with orchestrator(one_task()) as director:
        job = await submitted(director)
        waiting = asyncio.create_task(director.services.jobs.wait(ADA, job, 30.0))
        many = asyncio.create_task(director.services.jobs.wait_any(ADA, [job.id], 30.0))
        await asyncio.sleep(0.05)
        await director.engine.stop()
        assert (await waiting).id == job.id
        assert (await many).ended == {}


async def test_what_a_client_or_operator_does_to_a_job_is_recorded_with_its_address() -> None:
    async with orchestrator(one_task(), breaks()) as director:
        jobs, job, sick = director.services.jobs, await submitted(director), await quarantined(director)
        await jobs.cancel(ADA, job.id, "not needed")
        await jobs.release(ADA, sick.id)
        await jobs.wait(ADA, await jobs.get(ADA, sick.id), 5.0)
        await jobs.fail(OPS, sick.id, "broken")
        assert await actions_of(director.storage, ADA) == [("job.release", sick.id), ("job.cancel", job.id)]
        assert await actions_of(director.storage, OPS) == [("job.fail", sick.id)]
        assert {one.address for one in await audit_records(director.storage)} == {ADA.address, OPS.address}


async def test_what_is_refused_is_not_recorded() -> None:
    async with orchestrator(one_task()) as director:
        jobs, job = director.services.jobs, await submitted(director)
        with pytest.raises(NotQuarantined):
            await jobs.release(ADA, job.id)
        with pytest.raises(NotQuarantined):
            await jobs.fail(ADA, job.id)
        await director.cancel(job.id)
        with pytest.raises(JobAlreadyTerminal):
            await jobs.cancel(ADA, job.id)
        assert await audit_records(director.storage) == []


async def test_nothing_that_the_embedding_program_does_is_recorded() -> None:
    async with orchestrator(breaks()) as director:
        sick = await quarantined(director)
        await director.release(sick.id, {"mended": True})
        assert (await director.wait(sick.id, 5.0)).status == "finished"
        events = await director.events(sick.id)
        assert [event.actor for event in events if event.type == "job_released"] == [None]
        assert await audit_records(director.storage) == []


async def test_an_explanation_names_what_a_job_waits_for() -> None:
    async with orchestrator(one_task()) as director:
        job = await submitted(director)
        found = await director.services.jobs.explain(ADA, job.id)
        assert found.explanation.id.startswith(job.id)
        assert found.candidates == []
