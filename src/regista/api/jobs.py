"""Jobs over HTTP: create, get, list and explain them."""

from datetime import datetime

from aiohttp import hdrs, web
from msgspec import Struct

from ..engines.base import Submission
from ..model.explanation import Reason, Score
from ..schemas.jobs import JobObject, JobRequest
from ..schemas.pages import Page
from . import bodies, parameters, view
from .callers import caller_of
from .job_views import details_view, own_job, respond_with_job
from .parameters import BLUEPRINT, KEY, LIMIT, NEXT, STATUS, WAIT
from .routes import RouteTable
from .search import NO_HISTORY, QUERY, query_of_request, search_page
from .stage import CLIENT, STAGE

routes = RouteTable("jobs")


@routes.post(
    "/jobs",
    parameters=[WAIT, KEY],
    body=JobRequest,
    answers={202: JobObject, 200: JobObject},
    problems={
        404: "no such blueprint",
        409: "the key was used before with another body",
        429: "the jobs of this month are used up, or too many were asked for at once",
    },
)
async def create(request: web.Request) -> web.Response:
    """Start a job.

    The job is durable when the response is sent: 202, or 200 if `wait` was given and it has settled. The same
    idempotency key and body return the same job. Without `wait` the response is the job as it was created, without
    attempts.
    """
    stage, caller = request.app[STAGE], caller_of(request)
    wait_s = parameters.seconds(request, "wait", stage.config.max_wait_s)
    body = await bodies.take(request, JobRequest)
    key = parameters.idempotency_key(request, body.idempotency_key)
    job = await stage.services.jobs.submit_one(caller, submission_of(body, key))
    location: dict[str, str] = {hdrs.LOCATION: f"{request.path}/{job.id}"}
    if wait_s is None:
        accepted = stage.services.job_details.accepted(job)
        return view.json(details_view(accepted, view.clock_of(stage.config)), 202, location)
    job = await stage.services.jobs.wait(caller, job, wait_s)
    return await respond_with_job(request, job, 200 if job.status.settled else 202, location)


def submission_of(body: JobRequest, key: str | None) -> Submission:
    """The body as a submission."""
    return Submission(
        blueprint=body.blueprint,
        input=body.input,
        idempotency_key=key,
        priority=body.priority,
        dispatch_timeout_s=body.dispatch_timeout,
        result_timeout_s=body.result_timeout,
        webhook_url=body.webhook_url,
        search_attributes=body.search_attributes,
    )


@routes.get(
    "/jobs",
    parameters=[STATUS, BLUEPRINT, LIMIT, NEXT, QUERY],
    answers={200: Page[JobObject]},
    problems=NO_HISTORY,
)
async def find(request: web.Request) -> web.Response:
    """List jobs, newest first, or as a query asks for.

    A client's own jobs; for an operator those of all clients. Jobs that were just created are included. A `next`
    belongs to its query, filters and order, and is refused with others. `attempts` and `bill` are empty here: a
    list does not read the events of each job.
    """
    return view.json(await search_page(request, await query_of_request(request)))


@routes.get(
    "/jobs/{job_id}", parameters=[WAIT], answers={200: JobObject}, problems={404: "no such job of yours"}
)
async def get(request: web.Request) -> web.Response:
    """Show a job, or wait for it.

    With `wait` the response comes when the job has settled (ended, or quarantined) or the time is up.
    """
    stage = request.app[STAGE]
    wait_s = parameters.seconds(request, "wait", stage.config.max_wait_s)
    job = await own_job(request)
    if wait_s:
        job = await stage.services.jobs.wait(caller_of(request), job, wait_s)
    return await respond_with_job(request, job, with_client=request[CLIENT].operator)


class ExplanationView(Struct, frozen=True, kw_only=True):
    """Why a job does not progress, and which workers would get its next task."""

    kind: str
    id: str
    summary: str
    since: datetime | None
    reasons: tuple[Reason, ...]
    #: The same as sentences, for people.
    sentences: list[str]
    #: How the strategy ranks the workers, best first, if a task waits for one.
    candidates: list[Score]


@routes.get("/jobs/{job_id}/explain", answers={200: ExplanationView}, problems={404: "no such job of yours"})
async def explain(request: web.Request) -> web.Response:
    """Explain why a job does not progress.

    Every condition that keeps it waiting, for how many workers, and what would change it. Nothing is assigned.
    """
    stage = request.app[STAGE]
    found = await stage.services.jobs.explain(caller_of(request), request.match_info["job_id"])
    explanation = found.explanation
    return view.json(
        ExplanationView(
            kind=explanation.kind,
            id=explanation.id,
            summary=explanation.summary,
            since=view.clock_of(stage.config)(explanation.since),
            reasons=explanation.reasons,
            sentences=explanation.sentences(),
            candidates=found.candidates,
        )
    )
