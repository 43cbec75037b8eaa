"""What only a person can do: decide, release, give up, and start over."""

import hmac

from aiohttp import web
from msgspec.structs import replace

from ..engines.base import Submission
from ..errors import ApprovalConflict, JobNotFound
from ..model import Job
from ..schemas.jobs import Decision, FailRequest, Fork, JobObject, Release
from . import bodies, parameters, view
from .allowance import allowance
from .callers import caller_of
from .operations import Operations
from .parameters import KEY, Parameter
from .problems import Problem
from .stage import CLIENT, STAGE, Stage

routes = Operations("jobs")

_NOT_YOURS = "no such job of yours"
_NOT_QUARANTINED = "the job is not quarantined"
TOKEN = Parameter(
    name="token",
    words="The word that `waiting_for` shows to the job's owner. It serves this one question of this one job.",
    schema={"type": "string"},
)


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
    stage = request.app[STAGE]
    said = await bodies.take(request, Decision)
    job = await view.own_job(request)
    by = stage.services.audit.action(caller_of(request), "job.approve", job.id, decision=said.decision)
    job = await stage.engine.approve(job.id, said.decision, said.comment, said.data, by=by)
    stage.services.audit.log(caller_of(request), "job.approve", job.id)
    return await view.answer(stage, job)


@routes.post(
    "/_public/webhooks/approval/{job_id}",
    access="public",
    parameters=[TOKEN],
    body=Decision,
    answers={200: dict[str, str]},
    problems={401: "no token", 403: "a wrong token", 409: "not asked for, or decided otherwise"},
)
async def approve_by_token(request: web.Request) -> web.Response:
    """Pass on a person's decision, from outside.

    For the button in a mail or a chat: no client token, but the one made for this question.
    """
    stage = request.app[STAGE]
    job_id = request.match_info["job_id"]
    said = await bodies.take(request, Decision)
    job = await _admit(stage, job_id, request.query.get("token", ""), said)
    if job is not None:
        by = stage.services.audit.action(caller_of(request), "job.approve", job_id, decision=said.decision)
        await stage.engine.approve(job_id, said.decision, said.comment, said.data, job.visit, by)
        stage.services.audit.log(caller_of(request), "job.approve", job_id)
    return view.json({"status": "approval_received", "job_id": job_id})


async def _admit(stage: Stage, job_id: str, token: str, said: Decision) -> Job | None:
    """The job whose question the token belongs to; None when that was decided before, and just like this.

    Whoever has no token learns not even whether there is such a job.
    """
    if not token:
        raise Problem(401, "token_missing", "expected the approval token as ?token=, got none")
    try:
        job = await stage.engine.get(job_id)
    except JobNotFound:
        raise _wrong_token() from None
    if _equal(stage.engine.approval_token(job), token):
        return job
    for given in job.approvals:
        asked = replace(job, state=given.state, visit=given.visit)
        if not _equal(stage.engine.approval_token(asked), token):
            continue
        if said.decision != given.decision:
            raise ApprovalConflict(job_id, job.status, f"{given.decision!r} was decided before")
        return None
    raise _wrong_token()


def _equal(wanted: str, got: str) -> bool:
    """Compared in a time that says nothing about where they differ."""
    return hmac.compare_digest(wanted.encode(), got.encode("utf-8", "replace"))


def _wrong_token() -> Problem:
    return Problem(403, "token_wrong", "this token does not belong to a question of this job")


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
    stage = request.app[STAGE]
    wish = await bodies.take_optional(request, Release)
    job = await view.own_job(request)
    job = await stage.engine.release(
        job.id, wish.data, stage.services.audit.action(caller_of(request), "job.release", job.id)
    )
    stage.services.audit.log(caller_of(request), "job.release", job.id)
    return await view.answer(stage, job)


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
async def give_up(request: web.Request) -> web.Response:
    """End a quarantined job as failed."""
    stage = request.app[STAGE]
    wish = await bodies.take_optional(request, FailRequest)
    job = await view.own_job(request)
    job = await stage.engine.fail(
        job.id, wish.reason, stage.services.audit.action(caller_of(request), "job.fail", job.id)
    )
    stage.services.audit.log(caller_of(request), "job.fail", job.id)
    return await view.answer(stage, job)


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
    stage = request.app[STAGE]
    wish = await bodies.take_optional(request, Fork)
    old = await stage.filing.whole(await view.own_job(request))
    job = await stage.engine.submit(
        Submission(
            blueprint=old.blueprint,
            input={**old.input, **wish.input},
            client=request[CLIENT].name,
            idempotency_key=parameters.idempotency_key(request, wish.idempotency_key),
            priority=old.priority if wish.priority is None else wish.priority,
            dispatch_timeout_s=old.dispatch_timeout_s,
            result_timeout_s=old.result_timeout_s,
            # Another client's jobs are not told where that one listens.
            webhook_url=old.webhook_url if old.client == request[CLIENT].name else None,
            search_attributes={**old.search_attributes, **wish.search_attributes},
        ),
        allowance(request),
    )
    stage.services.audit.log_submission(caller_of(request), job.id)
    place = request.path.removesuffix(f"{old.id}/fork")
    return await view.answer(stage, job, 202, {"Location": f"{place}{job.id}"})
