from collections.abc import Sequence

import pytest

from regista import Event, Submission
from regista.errors import HistoryUnavailable, JobNotFound
from regista.history.memory import MemoryHistory
from regista.services.job_details import JobDetailsReader
from tests.acceptance.test_jobs import asks
from tests.services_kit import ADA, BOB, OPS, orchestrator
from tests.support import one_task


class Unavailable(MemoryHistory):
    async def events_of_jobs(self, job_ids: Sequence[str], limit: int = 1000) -> dict[str, list[Event]]:
        raise HistoryUnavailable("away")


async def test_details_are_for_the_owner_and_operators() -> None:
    async with orchestrator(one_task()) as director:
        details, job = director.services.job_details, await director.submit("script", client="ada")
        with pytest.raises(JobNotFound):
            await details.read(BOB, [job])
        for caller in (ADA, OPS):
            (found,) = await details.read(caller, [job])
            assert [task.type for task in found.tasks] == ["work"]
            assert found.events


async def test_an_open_question_brings_its_token_and_an_ended_job_has_none() -> None:
    async with orchestrator(asks()) as director:
        details = director.services.job_details
        job = await director.services.jobs.submit_one(ADA, Submission(blueprint="asks"))
        token = director.engine.approval_token(job)
        assert details.accepted(job).approval_token == token
        (found,) = await details.read(ADA, [job])
        assert found.approval_token == token
        (ended,) = await details.read(ADA, [await director.cancel(job.id)])
        assert (ended.approval_token, ended.tasks) == (None, ())


async def test_without_attempts_nothing_is_read() -> None:
    async with orchestrator(one_task()) as director:
        job = await director.submit("script", client="ada")
        (found,) = await director.services.job_details.read(ADA, [job], attempts=False)
        assert (found.job, found.tasks, found.events) == (job, (), ())


async def test_events_are_unknown_while_the_history_is_unavailable() -> None:
    async with orchestrator(one_task()) as director:
        job = await director.cancel((await director.submit("script", client="ada")).id)
        await director.recorder.drain()
        await director.storage.prune(1 << 40)
        reader = JobDetailsReader(director.engine, director.storage, Unavailable(), director.filing)
        (found,) = await reader.read(ADA, [job])
        assert (found.job.id, found.events) == (job.id, None)
