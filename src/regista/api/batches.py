"""Many jobs in one request: create them, or wait for any of them."""

from enum import StrEnum
from typing import Annotated, Any

import msgspec
from aiohttp import web
from msgspec import Meta, Struct

from ..engines.base import Submission
from ..engines.native.waiting import Gathered
from ..errors import OrchestratorStopped, RegistaError
from ..model import ClientConfig, Job
from ..schemas.job_view import job_view
from ..schemas.jobs import JobObject, JobRequest, Waited, WaitForAny
from . import bodies, parameters, view
from .allowance import allowance
from .callers import caller_of
from .jobs import submission_of
from .middleware.ratelimit import gate_of
from .operations import Operations, Schema, ref
from .parameters import Parameter
from .problems import Problem, ProblemBody, body_of, problem_of
from .stage import CLIENT, STAGE, Stage

routes = Operations("jobs")


#: Documented as it is taken: whatever is no job is answered in its place, and the others are not hindered.
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

    `items` has a job, or a problem, for each wish in its place: what is wrong with one hinders no other. At most
    `REGISTA_MAX_BATCH` of them. All are durable when this is answered.
    """
    stage = request.app[STAGE]
    ids_only = parameters.choice(request, "return", Form) is Form.IDS
    wishes = _wishes(await bodies.read(request), stage.config.max_batch)
    await gate_of(request).more(request, len(wishes) - 1)
    client = request[CLIENT]
    sound = [_submission(wish, client) for wish in wishes if isinstance(wish, JobRequest)]
    created = iter(await stage.engine.submit_each(sound, allowance(request)) if sound else ())
    stage.services.audit.log_submission(caller_of(request), f"{len(sound)} jobs")
    show = view.clock_of(stage.config)
    items: list[Any] = []
    for wish in wishes:
        answer = next(created) if isinstance(wish, JobRequest) else wish
        if isinstance(answer, Job):
            items.append(answer.id if ids_only else job_view(answer, show=show))
        else:
            items.append(body_of(_problem(answer)))
    return view.json({"items": items})


def _wishes(body: bytes, most: int) -> list[JobRequest | Problem]:
    """Each wish, or what is wrong with it. Mostly nothing is, and all are read in one go."""
    try:
        wishes: list[JobRequest | Problem] = [*bodies.parse(body, _Batch).jobs]
    except Problem:
        wishes = [_wish(raw) for raw in bodies.parse(body, _RawBatch).jobs]
    if len(wishes) > most:
        raise Problem(400, "batch_too_large", f"expected at most {most} jobs, got {len(wishes)}")
    return wishes


def _wish(raw: msgspec.Raw) -> JobRequest | Problem:
    try:
        return bodies.parse(raw, JobRequest)
    except Problem as problem:
        return problem


def _submission(wish: JobRequest, client: ClientConfig) -> Submission:
    return submission_of(wish, client, wish.idempotency_key)


def _problem(refusal: RegistaError | Problem) -> Problem:
    if isinstance(refusal, Problem):
        return refusal
    return problem_of(refusal) or Problem(500, refusal.code, "an error of the orchestrator")


@routes.post("/jobs:wait", body=WaitForAny, answers={200: Waited})
async def wait_for_any(request: web.Request) -> web.Response:
    """Wait for any of several jobs.

    Answers as soon as one of them has settled (and `linger` seconds later, to gather more), with all that
    have; at once when one already has; with none when the time is up. Ask again with what is `pending`.
    Few hundred ids at a time, oldest first, are cheaper than all of them; so is `"attempts": false`, which leaves
    `attempts` and `bill` empty.
    """
    stage = request.app[STAGE]
    asked = await bodies.take(request, WaitForAny)
    if len(asked.ids) > stage.config.max_batch:
        detail = f"expected at most {stage.config.max_batch} ids, got {len(asked.ids)}"
        raise Problem(400, "batch_too_large", detail)
    ids = list(dict.fromkeys(asked.ids))
    gathered = await _gather(stage, ids, asked, request[CLIENT])
    over = {*gathered.ended, *gathered.unknown}
    return view.json(
        Waited(
            items=await view.all_ended(stage, list(gathered.ended.values()), asked.attempts),
            pending=[job_id for job_id in ids if job_id not in over],
            unknown=gathered.unknown,
        )
    )


async def _gather(stage: Stage, ids: list[str], asked: WaitForAny, client: ClientConfig) -> Gathered:
    owner = None if client.operator else client.name
    timeout_s = min(asked.timeout, stage.config.max_wait_s)
    try:
        return await stage.engine.wait_any(ids, timeout_s, asked.linger, owner)
    except OrchestratorStopped:
        return await stage.engine.wait_any(ids, 0.0, owner=owner)
