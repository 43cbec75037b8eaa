"""Actions on a job over HTTP: cancel, approve, release, retry, fail and fork it."""

from aiohttp import web

from ..schemas.jobs import Cancel, Decision, FailRequest, Fork, JobObject, Release
from ..services.approvals import PersonDecision
from . import bodies, parameters, view
from .callers import caller_of
from .job_views import respond_with_job
from .parameters import KEY, Parameter
from .problems import Problem
from .routes import RouteTable
from .stage import STAGE

routes = RouteTable("jobs")

#: Bytes of a decision that comes without a client's token.
MAX_DECISION_BYTES = 64 * 1024

_NOT_YOURS = "no such job of yours"
_NOT_QUARANTINED = "the job is not quarantined"
TOKEN = Parameter(
    name="token",
    words="The token that `waiting_for` shows to the job's owner. It is for this one question of this one job.",
    schema={"type": "string"},
)


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
    jobs = request.app[STAGE].services.jobs
    body = await bodies.take_optional(request, Cancel)
    job = await jobs.cancel(caller_of(request), request.match_info["job_id"], body.reason)
    return await respond_with_job(request, job)


@routes.post(
    "/jobs/{job_id}/approval",
    body=Decision,
    answers={200: JobObject},
    problems={404: _NOT_YOURS, 409: "not asked for, or decided otherwise"},
)
async def approve(request: web.Request) -> web.Response:
    """Pass on a person's decision.

    One of those that `waiting_for` names. `data` is merged into what the job keeps. The same decision twice
    is fine; another one, or one that came too late, is refused.
    """
    approvals = request.app[STAGE].services.approvals
    body = await bodies.take(request, Decision)
    job = await approvals.approve(caller_of(request), request.match_info["job_id"], _decision(body))
    return await respond_with_job(request, job)


@routes.post(
    "/_public/webhooks/approval/{job_id}",
    kind="public",
    secret_in_url=True,
    parameters=[TOKEN],
    body=Decision,
    answers={200: dict[str, str]},
    problems={401: "no token", 403: "a wrong token", 409: "not asked for, or decided otherwise"},
)
async def approve_by_token(request: web.Request) -> web.Response:
    """Pass on a person's decision, from outside.

    For the button in a mail or a chat: no client token, but the one made for this question.
    """
    approvals = request.app[STAGE].services.approvals
    job_id, token = request.match_info["job_id"], request.query.get("token", "")
    if not token:
        raise Problem(401, "token_missing", "expected the approval token as ?token=, got none")
    await approvals.check_token(job_id, token)  # before the body: it costs much more to read and decode
    body = await bodies.take(request, Decision, MAX_DECISION_BYTES)
    await approvals.approve_by_token(caller_of(request), job_id, token, _decision(body))
    return view.json({"status": "approval_received", "job_id": job_id})


def _decision(body: Decision) -> PersonDecision:
    return PersonDecision(body.decision, body.comment, body.data)


@routes.post(
    "/jobs/{job_id}/release",
    body=Release,
    body_required=False,
    answers={200: JobObject},
    problems={404: _NOT_YOURS, 409: _NOT_QUARANTINED},
)
async def release(request: web.Request) -> web.Response:
    """Let a quarantined job try again.

    Its state's handler runs anew; `data` is merged into what the job keeps before that.
    """
    jobs = request.app[STAGE].services.jobs
    body = await bodies.take_optional(request, Release)
    job = await jobs.release(caller_of(request), request.match_info["job_id"], body.data)
    return await respond_with_job(request, job)


@routes.post(
    "/jobs/{job_id}/retry",
    body=Release,
    body_required=False,
    answers={200: JobObject},
    problems={404: _NOT_YOURS, 409: _NOT_QUARANTINED},
)
async def retry(request: web.Request) -> web.StreamResponse:
    """Let a quarantined job try again.

    Another name of `release`. A job that has ended is final: `fork` starts a new one like it.
    """
    return await release(request)


@routes.post(
    "/jobs/{job_id}/fail",
    body=FailRequest,
    body_required=False,
    answers={200: JobObject},
    problems={404: _NOT_YOURS, 409: _NOT_QUARANTINED},
)
async def fail(request: web.Request) -> web.Response:
    """End a quarantined job as failed."""
    jobs = request.app[STAGE].services.jobs
    body = await bodies.take_optional(request, FailRequest)
    job = await jobs.fail(caller_of(request), request.match_info["job_id"], body.reason)
    return await respond_with_job(request, job)


@routes.post(
    "/jobs/{job_id}/fork",
    parameters=[KEY],
    body=Fork,
    body_required=False,
    answers={202: JobObject},
    problems={404: _NOT_YOURS, 409: "the key was used before with another body"},
)
async def fork(request: web.Request) -> web.Response:
    """Start a new job like this one.

    The same blueprint (its newest version) and input. Members of `input` and `search_attributes` that are
    named here take the place of old ones.
    """
    jobs, job_id = request.app[STAGE].services.jobs, request.match_info["job_id"]
    body = await bodies.take_optional(request, Fork)
    job = await jobs.fork(
        caller_of(request),
        job_id,
        input=body.input,
        search_attributes=body.search_attributes,
        priority=body.priority,
        idempotency_key=parameters.idempotency_key(request, body.idempotency_key),
    )
    base = request.path.removesuffix(f"{job_id}/fork")
    return await respond_with_job(request, job, 202, {"Location": f"{base}{job.id}"})
