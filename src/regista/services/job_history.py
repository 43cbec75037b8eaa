"""What happened to a job: its events, page by page or all, and its timeline."""

from collections.abc import AsyncIterator
from datetime import UTC, tzinfo

from msgspec.structs import replace

from ..clock import Clock
from ..engines.base import Engine
from ..history.projection import JobProjection
from ..history.timeline import Timeline
from ..model import Event
from .caller import Caller
from .jobs import JobService

#: Events that are in memory at a time while all of them are read.
_CHUNK = 500
#: Events that a timeline is made from at most, and how many are read at once.
_MAX_TIMELINE_EVENTS, _TIMELINE_CHUNK = 50_000, 5000


class JobHistoryService:
    """Reads the events of jobs: of a client's own, or of all for an operator."""

    def __init__(self, jobs: JobService, engine: Engine, clock: Clock) -> None:
        self._jobs = jobs
        self._engine = engine
        self._clock = clock

    async def events(self, caller: Caller, job_id: str, after_seq: int = 0, limit: int = 1000) -> list[Event]:
        """The events of the job above `after_seq`, in order, recorded or not; JobNotFound."""
        await self._jobs.get(caller, job_id)
        return await self._engine.events(job_id, after_seq, limit)

    async def all_events(self, caller: Caller, job_id: str, after_seq: int = 0) -> AsyncIterator[list[Event]]:
        """The same without a limit, in chunks; JobNotFound is raised here and not by the iterator."""
        await self._jobs.get(caller, job_id)
        return iter_events(self._engine, job_id, after_seq)

    async def timeline(self, caller: Caller, job_id: str, zone: tzinfo = UTC) -> Timeline:
        """The states, tasks, attempts and waits of the job as spans of time, in this zone; JobNotFound."""
        job = await self._jobs.get(caller, job_id)
        projection = JobProjection(job_id)
        count = last = 0
        truncated = True
        while truncated and count < _MAX_TIMELINE_EVENTS:
            events = await self._engine.events(job_id, last, _TIMELINE_CHUNK)
            for event in events:
                projection.apply(replace(event, at=event.at.astimezone(zone)))
                last = event.seq
            count += len(events)
            truncated = len(events) == _TIMELINE_CHUNK
        return projection.timeline(self._clock.now().astimezone(zone), job.status.value, truncated)


async def iter_events(engine: Engine, job_id: str, after_seq: int = 0) -> AsyncIterator[list[Event]]:
    """All events of the job above `after_seq`, in chunks that are never empty."""
    while events := await engine.events(job_id, after_seq, _CHUNK):
        yield events
        if len(events) < _CHUNK:
            return
        after_seq = events[-1].seq
