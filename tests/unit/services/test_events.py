import asyncio
from collections.abc import AsyncIterator

import pytest

from regista import OrchestratorEngine
from regista.engines.live_events import LiveEvent
from regista.errors import JobNotFound
from regista.services.caller import Caller
from regista.services.events import News
from tests.services_kit import ADA, BOB, OPS, orchestrator
from tests.support import one_task


async def seqs(news: AsyncIterator[News]) -> list[int]:
    """The numbers of all events, to the end of the stream."""
    async with asyncio.timeout(8):
        return [one.event.seq async for page in news for one in page if isinstance(one, LiveEvent)]


async def test_a_job_is_followed_by_its_owner_and_operators_to_its_end() -> None:
    async with orchestrator(one_task()) as director:
        events, job = director.services.events, await director.submit("script", client="ada")
        with pytest.raises(JobNotFound):
            await events.follow_job(BOB, job.id)
        followers = [await events.follow_job(caller, job.id) for caller in (ADA, OPS)]
        reading = [asyncio.create_task(seqs(each)) for each in followers if each is not None]
        await asyncio.sleep(0.05)
        await director.cancel(job.id)
        stored = [event.seq for event in await director.events(job.id)]
        assert await asyncio.gather(*reading) == [stored, stored]


async def test_a_job_that_has_ended_is_told_once_and_then_there_is_nothing_to_follow() -> None:
    async with orchestrator(one_task()) as director:
        events, job = director.services.events, await director.submit("script", client="ada")
        await director.cancel(job.id)
        last = (await director.events(job.id))[-1].seq
        again = await events.follow_job(ADA, job.id, last - 1)
        assert again is not None
        assert await seqs(again) == [last]
        assert await events.follow_job(ADA, job.id, last) is None


async def jobs_seen(director: OrchestratorEngine, caller: Caller, count: int) -> set[str]:
    """The jobs of the first `count` events that the caller gets of everything since the beginning."""
    seen: list[str] = []
    news = director.services.events.follow_all(caller, (0, 0))
    async with asyncio.timeout(8):
        async for page in news:
            seen += [one.event.job_id for one in page if isinstance(one, LiveEvent)]
            if len(seen) >= count:
                break
    await news.aclose()  # type: ignore[attr-defined]  # an async generator
    return set(seen)


async def test_a_client_follows_its_own_jobs_and_an_operator_all() -> None:
    async with orchestrator(one_task()) as director:
        mine = await director.submit("script", client="ada")
        yours = await director.submit("script", client="bob")
        own, theirs = len(await director.events(mine.id)), len(await director.events(yours.id))
        assert await jobs_seen(director, ADA, own) == {mine.id}
        assert await jobs_seen(director, BOB, theirs) == {yours.id}
        assert await jobs_seen(director, OPS, own + theirs) == {mine.id, yours.id}
