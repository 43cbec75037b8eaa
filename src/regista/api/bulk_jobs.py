"""Many jobs in one request: create them, or wait for any of them."""

from enum import StrEnum
from typing import Annotated, Any

import msgspec
from aiohttp import web
from msgspec import Meta, Struct

from ..errors import BatchTooLarge, RegistaError
from ..model import Job
from ..schemas.job_view import job_view
from ..schemas.jobs import JobObject, JobRequest, Waited, WaitForAny
from . import bodies, parameters, view
from .callers import caller_of
from .job_views import settled_views
from .jobs import submission_of
from .parameters import Parameter
from .problems import Problem, ProblemBody, body_of, problem_of
from .routes import RouteTable, Schema, ref
from .stage import STAGE

routes = RouteTable("jobs")


#: Documented as it is accepted: an item that is no job is answered in its place, and the others are created.
_BATCH = Schema(
    {
        "type": "object",
        "required": ["jobs"],
        "additionalProperties": False,
        "properties": {"jobs": {"type": "array", "minItems": 1, "items": {"anyOf": [ref(JobRequest), {}]}}},
    },
    uses=[JobRequest],
)


class _Batch(Struct, frozen=True, forbid_unknown_fields=True):
    """Several jobs at once."""

    jobs: Annotated[list[JobRequest], Meta(min_length=1)]


class _RawBatch(Struct, frozen=True, forbid_unknown_fields=True):
    """The same, item by item: one bad item must not hinder the others."""

    jobs: Annotated[list[msgspec.Raw], Meta(min_length=1)]


_CREATED = Schema(
    {
        "type": "object",
        "required": ["items"],
        "properties": {
            "items": {
                "type": "array",
                "items": {"anyOf": [ref(JobObject), ref(ProblemBody), {"type": "string"}]},
            }
        },
    },
    uses=[JobObject, ProblemBody],
)


class Form(StrEnum):
    """What an answer in bulk shows of each job."""

    JOBS = "jobs"
    IDS = "ids"


RETURN = Parameter(
    name="return",
    words="`ids` answers with the ids alone (and the problems), which is quicker for large batches.",
    schema={"type": "string", "enum": [form.value for form in Form], "default": "jobs"},
)


@routes.post("/jobs:batch", parameters=[RETURN], body=_BATCH, answers={200: _CREATED})
async def create_batch(request: web.Request) -> web.Response:
    """Start several jobs with one write.

    `items` has a job or a problem for each request, in the same order: an invalid one does not affect the others. At
    most `REGISTA_MAX_BATCH` of them. All jobs are durable when the response is sent.
    """
    stage = request.app[STAGE]
    ids_only = parameters.choice(request, "return", Form) is Form.IDS
    wanted = decode_batch(await bodies.read(request), stage.config.max_batch)
    await request.app[STAGE].limiter.take_more(request, len(wanted) - 1)
    valid = [submission_of(body, body.idempotency_key) for body in wanted if isinstance(body, JobRequest)]
    results = iter(await stage.services.jobs.submit(caller_of(request), valid))
    show = view.clock_of(stage.config)
    items: list[Any] = []
    for body in wanted:
        result = next(results) if isinstance(body, JobRequest) else body
        if isinstance(result, Job):
            items.append(result.id if ids_only else job_view(result, show=show))
        else:
            items.append(body_of(_problem(result)))
    return view.json({"items": items})


def decode_batch(body: bytes, most: int) -> list[JobRequest | Problem]:
    """Each job, or what is wrong with it; BatchTooLarge. All are decoded at once, and one by one if that fails."""
    try:
        wanted: list[JobRequest | Problem] = [*bodies.parse(body, _Batch).jobs]
    except Problem:
        wanted = [_decode_item(raw) for raw in bodies.parse(body, _RawBatch).jobs]
    if len(wanted) > most:
        raise BatchTooLarge("jobs", most, len(wanted))
    return wanted


def _decode_item(raw: msgspec.Raw) -> JobRequest | Problem:
    try:
        return bodies.parse(raw, JobRequest)
    except Problem as problem:
        return problem


def _problem(refusal: RegistaError | Problem) -> Problem:
    if isinstance(refusal, Problem):
        return refusal
    return problem_of(refusal) or Problem(500, refusal.code, "an error of the orchestrator")


@routes.post("/jobs:wait", read_only=True, body=WaitForAny, answers={200: Waited})
async def wait_for_any(request: web.Request) -> web.Response:
    """Wait for any of several jobs.

    Answers as soon as one of them has settled (and `linger` seconds later, to gather more), with all that
    have; at once when one already has; with none when the time is up. Ask again with what is `pending`.
    Few hundred ids at a time, oldest first, are cheaper than all of them; so is `"attempts": false`, which leaves
    `attempts` and `bill` empty.
    """
    body = await bodies.take(request, WaitForAny)
    jobs = request.app[STAGE].services.jobs
    waited = await jobs.wait_any(caller_of(request), body.ids, body.timeout, body.linger)
    over = {*waited.ended, *waited.unknown}
    return view.json(
        Waited(
            items=await settled_views(request, list(waited.ended.values()), attempts=body.attempts),
            pending=[job_id for job_id in dict.fromkeys(body.ids) if job_id not in over],
            unknown=waited.unknown,
        )
    )
