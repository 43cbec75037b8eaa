"""A page of jobs is right however much of it is recorded, and whatever happens between two pages."""

from typing import Any

import pytest

from regista import Config, OrchestratorEngine
from regista.api.job_views import listed_view
from regista.errors import BadQuery
from regista.history.query import Place, Query, parse_query
from regista.schemas.job_view import as_stored
from regista.services.search import FoundJob, JobSearch, SearchService
from tests.services_kit import ADA, BOB, OPS, orchestrator
from tests.support import one_task


async def ids(search: SearchService, limit: int = 100, **asked: Any) -> list[list[str]]:
    """The ids, page by page."""
    query = parse_query(asked.pop("query", ""), {}).restricted(**asked)
    pages: list[list[str]] = []
    after: Place | None = None
    while True:
        page = await search.find(query, after, limit)
        assert all(found.job is None or found.job.id == found.summary.job_id for found in page.jobs)
        pages.append([found.summary.job_id for found in page.jobs])
        after = page.end
        if after is None:
            return pages


@pytest.mark.parametrize("recorded", range(6))
@pytest.mark.parametrize("limit", [1, 2, 5, 6])
async def test_every_job_is_listed_once_however_much_of_it_is_recorded(recorded: int, limit: int) -> None:
    director = OrchestratorEngine("memory", Config(instance_id="x", client_token="t", worker_token="w"))
    director.register_blueprint(one_task())
    async with director:
        await director.recorder.stop()  # history is as far as we say
        made = []
        for n in range(5):
            key = None if n % 2 else f"key-{n}"
            made.append((await director.submit("script", client="ada", idempotency_key=key)).id)
            if n + 1 == recorded:
                await director.recorder.drain()
        await director.cancel(made[1])
        search = director.services.search
        pages = await ids(search, limit)
        assert [one for page in pages for one in page] == made[::-1]
        waiting = await ids(search, limit, status="waiting_for_worker")
        assert [one for page in waiting for one in page] == [made[4], made[3], made[2], made[0]]
        assert await ids(search, limit, status="cancelled") == [[made[1]]]
        assert await ids(search, limit, client="bob") == [[]]
        oldest = await ids(search, limit, query="ORDER BY StartTime")
        assert [one for page in oldest for one in page] == made
        ended_first = await ids(search, limit, query="ORDER BY CloseTime DESC, StartTime")
        assert [one for page in ended_first for one in page] == [made[1], made[0], *made[2:]]
        running = await ids(search, limit, query="ExecutionStatus = 'Running' ORDER BY StartTime ASC")
        assert [one for page in running for one in page] == [made[0], *made[2:]]


async def test_what_the_store_has_let_go_of_is_told_from_history() -> None:
    director = OrchestratorEngine("memory", Config(instance_id="x", client_token="t", worker_token="w"))
    director.register_blueprint(one_task())
    async with director:
        job = await director.submit("script", {"n": 1}, search_attributes={"Kind": "a"})
        await director.cancel(job.id, "enough")
        await director.recorder.drain()
        search = director.services.search
        director.storage._state._ended.clear()  # type: ignore[attr-defined]
        (found,) = (await search.find(Query(), None, limit=9)).jobs
        assert found.job is None
        assert (found.summary.job_id, found.summary.status) == (job.id, "cancelled")
        assert found.summary.search_attributes == {"Kind": "a"}
        item = listed_view(found, as_stored)
        assert (item.id, item.status, item.input) == (job.id, "cancelled", {})
        assert item.error is not None
        assert item.error.code == "cancelled"


async def test_a_client_searches_its_own_jobs_and_an_operator_all() -> None:
    async with orchestrator(one_task()) as director:
        search = director.services.search
        mine = (await director.submit("script", client="ada")).id
        yours = (await director.submit("script", client="bob")).id

        async def seen(caller: object, query: str = "") -> set[str]:
            restricted = await search.query(caller, JobSearch(query))  # type: ignore[arg-type]
            exported = {
                part.summary.job_id async for part in search.export(restricted) if isinstance(part, FoundJob)
            }
            page = await search.find(restricted)
            assert (await search.count(restricted)).count == len(page.jobs)
            assert {found.summary.job_id for found in page.jobs} == exported
            return exported

        assert await seen(ADA) == {mine}
        assert await seen(BOB) == {yours}
        assert await seen(OPS) == {mine, yours}
        assert await seen(ADA, f"WorkflowId = '{yours}' OR WorkflowId = '{mine}'") == {mine}


async def test_an_export_gives_each_job_with_its_events() -> None:
    async with orchestrator(one_task()) as director:
        search = director.services.search
        job = await director.submit("script", client="ada")
        parts = [part async for part in search.export(await search.query(ADA, JobSearch()))]
        assert isinstance(parts[0], FoundJob)
        assert parts[0].job is not None
        events = [event for part in parts[1:] if not isinstance(part, FoundJob) for event in part]
        assert events == await director.events(job.id)


async def test_a_query_that_cannot_be_understood_is_refused() -> None:
    async with orchestrator() as director:
        with pytest.raises(BadQuery):
            await director.services.search.query(ADA, JobSearch("AND AND"))
