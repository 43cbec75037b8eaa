from zoneinfo import ZoneInfo

import pytest

from regista import Submission
from regista.errors import JobNotFound
from regista.services import job_history
from tests.services_kit import ADA, BOB, OPS, orchestrator
from tests.support import one_task


async def test_what_happened_to_a_job_is_for_its_owner_and_operators() -> None:
    async with orchestrator(one_task()) as director:
        history = director.services.job_history
        job = await director.services.jobs.submit_one(ADA, Submission(blueprint="script"))
        for call in (history.events, history.all_events, history.timeline):
            with pytest.raises(JobNotFound):
                await call(BOB, job.id)
        events = await history.events(ADA, job.id)
        assert [event.type for event in events][:1] == ["job_created"]
        assert await history.events(OPS, job.id) == events
        assert await history.events(ADA, job.id, after_seq=1, limit=1) == events[1:2]


async def test_all_events_come_in_chunks_without_gap_or_duplicate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_history, "_CHUNK", 2)
    async with orchestrator(one_task()) as director:
        job = await director.submit("script", client="ada")
        await director.cancel(job.id)
        chunks = [chunk async for chunk in await director.services.job_history.all_events(ADA, job.id)]
        assert len(chunks) > 1
        assert all(chunks)
        assert [event for chunk in chunks for event in chunk] == await director.events(job.id)


async def test_a_timeline_is_told_in_the_zone_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async with orchestrator(one_task()) as director:
        history, zone = director.services.job_history, ZoneInfo("Asia/Tokyo")
        job = await director.submit("script", client="ada")
        timeline = await history.timeline(ADA, job.id, zone)
        assert timeline.states[0].began_at.tzinfo == zone
        assert not timeline.truncated
        monkeypatch.setattr(job_history, "_MAX_TIMELINE_EVENTS", 1)
        monkeypatch.setattr(job_history, "_TIMELINE_CHUNK", 1)
        assert (await history.timeline(ADA, job.id)).truncated
