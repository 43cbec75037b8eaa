"""Jobs over HTTP: create, look, wait, list, cancel, and what happened."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from aiohttp import hdrs, web
from msgspec import Struct

from ..dispatch.explain import Reason, Score
from ..engines.base import Submission
from ..errors import OrchestratorStopped
from ..history.reader import read_events
from ..model import ClientConfig, Event, Job
from ..schemas.jobs import Cancel, JobObject, JobRequest
from ..schemas.pages import Page, encode_position
from . import bodies, parameters, view
from .allowance import allowance
from .callers import caller_of
from .listing import NO_HISTORY, QUERY, asked, list_jobs, place_in
from .operations import Operations
from .parameters import BLUEPRINT, KEY, LIMIT, NEXT, STATUS, WAIT, Parameter, page_limit
from .searches import story_lines, stream
from .stage import CLIENT, STAGE, Stage

routes = Operations("jobs")


class Format(StrEnum):
    """How the events of a job are answered."""

    JSON = "json"
    JSONL = "jsonl"


_LIMIT = page_limit(1000)
FORMAT = Parameter(
    name="format",
    words="`jsonl` streams all events, a line each, and pays no heed to `limit`.",
    schema={"type": "string", "enum": [form.value for form in Format], "default": "json"},
)


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

    It is durable when this is answered: 202, or 200 when it was waited for and has settled. The same
    idempotency key and body return the same job. Without `wait` the answer is the job as it was written, and
    tells of no attempts.
    """
    stage = request.app[STAGE]
    wait_s = parameters.seconds(request, "wait", stage.config.max_wait_s)
    wish = await bodies.take(request, JobRequest)
    key = parameters.idempotency_key(request, wish.idempotency_key)
    job = await stage.engine.submit(submission_of(wish, request[CLIENT], key), allowance(request))
    stage.services.audit.log_submission(caller_of(request), job.id)
    if wait_s:
        job = await patient(stage, job, wait_s)
    location: dict[str, str] = {hdrs.LOCATION: f"{request.path}/{job.id}"}
    if wait_s is None:
        return view.json(view.fresh(stage, job), 202, location)
    return await view.answer(stage, job, 200 if job.status.settled else 202, location)


def submission_of(wish: JobRequest, client: ClientConfig, key: str | None) -> Submission:
    """The wish as the engine takes it."""
    return Submission(
        blueprint=wish.blueprint,
        input=wish.input,
        client=client.name,
        idempotency_key=key,
        priority=wish.priority,
        dispatch_timeout_s=wish.dispatch_timeout,
        result_timeout_s=wish.result_timeout,
        webhook_url=wish.webhook_url,
        search_attributes=wish.search_attributes,
    )


async def patient(stage: Stage, job: Job, wait_s: float) -> Job:
    """The job once it has settled; as it is when the time is up, or when we are about to stop."""
    if job.status.settled:
        return job
    try:
        return await stage.engine.wait(job.id, wait_s)
    except OrchestratorStopped:
        return await stage.engine.get(job.id)


@routes.get(
    "/jobs",
    parameters=[STATUS, BLUEPRINT, LIMIT, NEXT, QUERY],
    answers={200: Page[JobObject]},
    problems=NO_HISTORY,
)
async def find(request: web.Request) -> web.Response:
    """List jobs, newest first, or as a query asks for.

    Your own; an operator's list has everybody's. What was just created is in it. A `next` belongs to its query,
    filters and order; with others it is refused. `attempts` and `bill` are
    left empty here: a list does not read the story of each job.
    """
    stage = request.app[STAGE]
    query = await asked(request)
    limit = parameters.limit(request, stage.config.max_page)
    return view.json(await list_jobs(stage, query, place_in(request, query), limit, request[CLIENT].operator))


@routes.get(
    "/jobs/{job_id}", parameters=[WAIT], answers={200: JobObject}, problems={404: "no such job of yours"}
)
async def get(request: web.Request) -> web.Response:
    """Look at a job, or wait for it.

    With `wait` the answer comes when the job has settled (ended, or quarantined) or the time is up.
    """
    stage = request.app[STAGE]
    wait_s = parameters.seconds(request, "wait", stage.config.max_wait_s)
    job = await view.own_job(request)
    if wait_s:
        job = await patient(stage, job, wait_s)
    return await view.answer(stage, job, whose=request[CLIENT].operator)


@routes.post(
    "/jobs/{job_id}/cancel",
    body=Cancel,
    body_required=False,
    answers={200: JobObject},
    problems={404: "no such job of yours", 409: "the job has ended already"},
)
async def cancel(request: web.Request) -> web.Response:
    """Ask a job to stop.

    The job is `cancelled` at once when no worker has a task of it, else `cancelling` until the worker has
    confirmed or the grace is over. Asking again meanwhile is fine; a job that has ended, cancelled or not, is
    409 `job_already_terminal`.
    """
    stage = request.app[STAGE]
    wish = await bodies.take_optional(request, Cancel)
    job = await view.own_job(request)
    job = await stage.engine.cancel(
        job.id, wish.reason, by=stage.services.audit.action(caller_of(request), "job.cancel", job.id)
    )
    stage.services.audit.log(caller_of(request), "job.cancel", job.id)
    return await view.answer(stage, job)


@routes.get(
    "/jobs/{job_id}/history",
    parameters=[_LIMIT, NEXT, FORMAT],
    answers={200: Page[Event]},
    media=["application/jsonl"],
    problems={404: "no such job of yours"},
)
async def history(request: web.Request) -> web.StreamResponse:
    """What happened to a job, in order.

    History, and what is still on its way there. `next` is there as long as the page is full; of a job that
    still lives, more may come after the last page. With `format=jsonl` all of it comes at once, an event on each
    line, however many there are.
    """
    stage = request.app[STAGE]
    after = parameters.place(request, int) or 0
    limit = parameters.limit(request, stage.config.max_page, _LIMIT)
    lines = parameters.choice(request, "format", Format) is Format.JSONL
    job = await view.own_job(request)
    if lines:
        return await stream(request, story_lines(stage, job.id, after))
    events = await read_events(stage.storage, stage.history, job.id, after, limit)
    show = view.clock_of(stage.config)
    items = [view.shown(event, show) for event in events]
    return view.json(Page[Any](items, encode_position(items[-1].seq) if len(items) == limit else None))


class Explained(Struct, frozen=True, kw_only=True):
    """Why a job does not go on, and who would take its next task."""

    kind: str
    id: str
    summary: str
    since: datetime | None
    reasons: tuple[Reason, ...]
    #: The same for people, sentence by sentence.
    sentences: list[str]
    #: What the strategy thinks of the workers, best first, where a task waits for one.
    candidates: list[Score]


@routes.get("/jobs/{job_id}/explain", answers={200: Explained}, problems={404: "no such job of yours"})
async def explain(request: web.Request) -> web.Response:
    """Explain why a job does not go on.

    Every condition that holds it back, for how many workers, and what would change it. Nothing is assigned.
    """
    stage = request.app[STAGE]
    job = await view.own_job(request)
    told = await stage.dispatcher.explain_job(job)
    waiting = [task for task in await stage.storage.tasks_of(job.id) if task.waiting]
    return view.json(
        Explained(
            kind=told.kind,
            id=told.id,
            summary=told.summary,
            since=view.clock_of(stage.config)(told.since),
            reasons=told.reasons,
            sentences=told.sentences(),
            candidates=await stage.dispatcher.dry_run(waiting[0]) if waiting else [],
        )
    )
