"""Jobs as responses."""

from collections.abc import Sequence

from aiohttp import web
from msgspec.structs import replace

from ..model import Job, JobSummary
from ..schemas.job_view import TimeFormat, job_view
from ..schemas.jobs import Bill, ErrorView, JobObject
from ..services.job_details import JobDetails
from ..services.search import FoundJob
from . import view
from .callers import caller_of
from .stage import STAGE


async def own_job(request: web.Request) -> Job:
    """The job that the path names, if the caller may see it; JobNotFound."""
    return await request.app[STAGE].services.jobs.get(caller_of(request), request.match_info["job_id"])


def details_view(details: JobDetails, show: TimeFormat) -> JobObject:
    """The job with its attempts; `incomplete` names what the history could not tell."""
    shown = job_view(details.job, details.events or (), details.tasks, details.approval_token, show)
    return replace(shown, incomplete=["attempts", "bill"]) if details.events is None else shown


def listed_view(found: FoundJob, show: TimeFormat) -> JobObject:
    """A job of a list, without its attempts; what the history knows of it, if the store has let go of it."""
    return _summary_view(found.summary, show) if found.job is None else job_view(found.job, show=show)


async def settled_views(
    request: web.Request, jobs: Sequence[Job], *, attempts: bool = True
) -> list[JobObject]:
    """Jobs with their details, in their order."""
    stage = request.app[STAGE]
    show = view.clock_of(stage.config)
    details = await stage.services.job_details.read(caller_of(request), jobs, attempts=attempts)
    return [details_view(each, show) for each in details]


async def respond_with_job(
    request: web.Request,
    job: Job,
    status: int = 200,
    headers: dict[str, str] | None = None,
    *,
    with_client: bool = False,
) -> web.Response:
    """The job with its details; `with_client` says whose it is, which is for operators."""
    stage = request.app[STAGE]
    details = await stage.services.job_details.read_one(caller_of(request), job)
    shown = details_view(details, view.clock_of(stage.config))
    return view.json(replace(shown, client=job.client) if with_client else shown, status, headers)


def _summary_view(row: JobSummary, show: TimeFormat) -> JobObject:
    return JobObject(
        id=row.job_id,
        blueprint=row.blueprint,
        version=row.version,
        status=row.status,
        state=row.state,
        input={},
        data={},
        result=None,
        error=None if row.error_code is None else ErrorView(row.error_code),
        progress=None,
        waiting_for=None,
        attempts=[],
        created_at=show(row.created_at),
        updated_at=show(row.updated_at),
        finished_at=show(row.finished_at),
        search_attributes=row.search_attributes,
        parent_id=row.parent_id,
        bill=Bill(0.0, 0.0),
    )
