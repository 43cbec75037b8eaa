"""A page of jobs is right whatever of it is recorded, and whatever happens between two pages."""

import asyncio
from typing import Any

import pytest

from regista import Config, OrchestratorEngine
from regista.api.listing import list_jobs
from regista.api.stage import STAGE, Stage
from regista.wire.pages import place_of
from tests.support import one_task


async def ids(stage: Stage, limit: int = 100, **asked: Any) -> list[list[str]]:
    """The ids, page by page."""
    wanted = {"client": None, "status": None, "blueprint": None, **asked}
    pages: list[list[str]] = []
    before = None
    while True:
        page = await list_jobs(stage, **wanted, before=before, limit=limit)
        pages.append([item.id for item in page.items])
        if page.next is None:
            return pages
        before = place_of(page.next, tuple[int, str])


@pytest.mark.parametrize("recorded", range(6))
@pytest.mark.parametrize("limit", [1, 2, 5, 6])
def test_every_job_is_listed_once_however_much_of_it_is_recorded(recorded: int, limit: int) -> None:
    async def main() -> None:
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
            stage = director.app[STAGE]
            pages = await ids(stage, limit)
            assert [one for page in pages for one in page] == made[::-1]
            waiting = await ids(stage, limit, status="waiting_for_worker")
            assert [one for page in waiting for one in page] == [made[4], made[3], made[2], made[0]]
            assert await ids(stage, limit, status="cancelled") == [[made[1]]]
            assert await ids(stage, limit, client="bob") == [[]]

    asyncio.run(main())


def test_what_the_store_has_let_go_of_is_told_from_history() -> None:
    async def main() -> None:
        director = OrchestratorEngine("memory", Config(instance_id="x", client_token="t", worker_token="w"))
        director.register_blueprint(one_task())
        async with director:
            job = await director.submit("script", {"n": 1}, search_attributes={"Kind": "a"})
            await director.cancel(job.id, "enough")
            await director.recorder.drain()
            stage = director.app[STAGE]
            director.storage._image._ended.clear()  # type: ignore[attr-defined]
            (item,) = (
                await list_jobs(stage, client=None, status=None, blueprint=None, before=None, limit=9)
            ).items
            assert (item.id, item.status, item.input) == (job.id, "cancelled", {})
            assert item.search_attributes == {"Kind": "a"}
            assert item.error is not None
            assert item.error.code == "cancelled"

    asyncio.run(main())
