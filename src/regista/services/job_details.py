"""Jobs with what belongs to them: events, open tasks and the token of an open approval."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from ..engines.base import Engine
from ..errors import HistoryUnavailable, JobNotFound
from ..history.base import HistoryStorage
from ..history.reader import read_events_of_jobs
from ..model import Event, Job, JobStatus, Task
from ..storage.base import JobStorage
from .caller import Caller
from .files import JobPayloads

#: Events of a job from which its attempts are read.
_MAX_EVENTS = 1000


class JobDetails(Struct, frozen=True, kw_only=True):
    """A job as its owner may see it. Everything in it is durable."""

    job: Job
    #: None if the history is unavailable, so that attempts and costs are unknown.
    events: Sequence[Event] | None = ()
    #: The open tasks; none if the job has ended.
    tasks: Sequence[Task] = ()
    #: Lets its holder answer for the person that the job waits for.
    approval_token: str | None = None


class JobDetailsReader:
    """Reads the details of jobs."""

    def __init__(
        self, engine: Engine, storage: JobStorage, history: HistoryStorage, payloads: JobPayloads
    ) -> None:
        self._engine = engine
        self._storage = storage
        self._history = history
        self._payloads = payloads

    def accepted(self, job: Job) -> JobDetails:
        """The details of a job that was just created; nothing is read for them."""
        return JobDetails(job=job, approval_token=self._approval_token(job))

    async def read_one(self, caller: Caller, job: Job) -> JobDetails:
        """The details of a job as the engine returned it: large values are replaced by sizes and checksums."""
        (details,) = await self.read(caller, [await self._payloads.seen(job)])
        return details

    async def read(self, caller: Caller, jobs: Sequence[Job], *, attempts: bool = True) -> list[JobDetails]:
        """The details of these jobs, in their order; JobNotFound if the caller may not see one.

        A job that has not ended is read again. The history is asked once for all ended jobs, and not at all
        without `attempts`.
        """
        for job in jobs:
            if not caller.may_see(job.client):
                raise JobNotFound(job.id)
        if not attempts:
            return [JobDetails(job=job) for job in jobs]
        events = await self._events(job.id for job in jobs if job.status.terminal)
        return [
            JobDetails(job=job, events=events.get(job.id))
            if job.status.terminal
            else await self._open(job.id)
            for job in jobs
        ]

    async def _open(self, job_id: str) -> JobDetails:
        # Tasks first: `get` waits until what they show is flushed, too.
        tasks = await self._storage.tasks_of(job_id)
        job = await self._engine.get(job_id)
        events = await self._events([job_id])
        return JobDetails(
            job=job,
            events=events.get(job_id),
            tasks=[] if job.status.terminal else tasks,
            approval_token=self._approval_token(job),
        )

    async def _events(self, job_ids: Iterable[str]) -> dict[str, list[Event]]:
        """The events of these jobs; empty while the history is unavailable."""
        wanted = list(job_ids)
        if not wanted:
            return {}
        try:
            return await read_events_of_jobs(self._storage, self._history, wanted, _MAX_EVENTS)
        except HistoryUnavailable:
            return {}

    def _approval_token(self, job: Job) -> str | None:
        waits = job.status is JobStatus.WAITING_FOR_HUMAN
        return self._engine.approval_token(job) if waits else None
