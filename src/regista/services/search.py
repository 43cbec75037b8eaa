"""Search over jobs: lists, counts and exports."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct

from ..engines.base import Engine
from ..history.query import Place, Query
from ..history.query.counts import JobCounts
from ..history.reader import group_of, query_of
from ..model import Event, Job, JobSummary
from ..model.attributes import Attributes
from ..storage.base import JobStorage
from .caller import Caller
from .job_history import iter_events

#: Jobs that an export has in memory at a time.
_EXPORT_PAGE = 100


class JobSearch(Struct, frozen=True):
    """What is wanted: a query, and values that all jobs have; None matches all."""

    query: str = ""
    status: str | None = None
    blueprint: str | None = None


class FoundJob(NamedTuple):
    """A job that matches."""

    #: As the history knows it.
    summary: JobSummary
    #: As it is now; None if the store has let go of it.
    job: Job | None


class JobPage(NamedTuple):
    """Some of the jobs that match."""

    jobs: list[FoundJob]
    #: Where the next page begins; None at the end.
    end: Place | None


class SearchAttributes(Protocol):
    """Knows the declared search attributes; the registry of blueprints is one."""

    def attributes(self) -> Attributes:
        """Name and type of every search attribute."""
        ...


class SearchService:
    """Finds jobs: a client's own, or all for an operator. Every search needs a history (HistoryDisabled)."""

    def __init__(
        self,
        engine: Engine,
        storage: JobStorage,
        declared: SearchAttributes,
        tz: str,
        at_a_glance: Callable[[Job], Job] = lambda job: job,
    ) -> None:
        """`at_a_glance` replaces large values of a job by their size and checksum."""
        self._at_a_glance = at_a_glance
        self._engine = engine
        self._storage = storage
        self._declared = declared
        self._tz = tz

    async def query(self, caller: Caller, wanted: JobSearch) -> Query:
        """What is searched, restricted to what the caller may see; BadQuery. Page positions belong to it."""
        query = await query_of(wanted.query, self._declared.attributes(), self._tz)
        return query.restricted(
            client=caller.visible_client, status=wanted.status, blueprint=wanted.blueprint
        )

    async def find(self, query: Query, after: Place | None = None, limit: int = 100) -> JobPage:
        """The jobs that match, in the order of the query, behind the position `after`."""
        rows, end = await self._engine.find(query, after, limit)
        jobs = await self._storage.get([row.job_id for row in rows])
        shown = [None if job is None else self._at_a_glance(job) for job in jobs]
        return JobPage([FoundJob(*pair) for pair in zip(rows, shown, strict=True)], end)

    async def count(self, query: Query, group_by: str = "", limit: int = 100) -> JobCounts:
        """How many jobs match and how long they took, in all and in the largest `limit` groups; BadQuery."""
        by = group_of(group_by, self._declared.attributes()) if group_by else None
        return await self._engine.count(query, by, limit)

    async def export(self, query: Query) -> AsyncIterator[FoundJob | Sequence[Event]]:
        """Every job that matches, each followed by its events in chunks."""
        after: Place | None = None
        while True:
            page = await self.find(query, after, _EXPORT_PAGE)
            for found in page.jobs:
                yield found
                async for events in iter_events(self._engine, found.summary.job_id):
                    yield events
            after = page.end
            if after is None:
                return
