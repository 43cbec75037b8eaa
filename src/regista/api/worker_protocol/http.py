"""The worker protocol over HTTP. spec: docs/reference/worker-protocol.md; both stock generations speak it."""

from collections.abc import Mapping
from math import isfinite
from typing import Any, TypeVar

import msgspec
from aiohttp import hdrs, web

from ...config.rates import Context
from ...errors import OrchestratorStopped, StorageOutcomeUnknown
from ...model import ResultVerdict, Task, TaskResult, split_attempt_id
from ...serialization import safe_text
from ...workers.polling.service import UnknownWorker
from ...workers.polling.session import DeliveredTask
from ...workers.protocol.dialects import skills_of, task_message, to_progress, to_result
from ...workers.protocol.messages import (
    ID_HEADER,
    VERSION_HEADER,
    BadMessage,
    Heartbeat,
    Message,
    Registration,
    Result,
    WorkerEvent,
    decode_message,
    registers_again,
)
from .. import bodies
from ..network import peer_address, warn_plain_http
from ..problems import Problem
from ..routes import RouteTable
from ..stage import STAGE, Stage
from . import tokens as tokens_api
from .auth import authenticate_worker, check_signature, check_still_valid, check_worker, version_of
from .duplicates import duplicate_worker, warn_duplicate_worker

#: A poll may ask for so many tasks at once.
MAX_TASKS = 1000

_JSON: dict[str, str] = {hdrs.CONTENT_TYPE: "application/json"}

M = TypeVar("M")
_encode = msgspec.json.Encoder().encode

routes = RouteTable("workers", kind="worker")

#: What a refused result is told.
_REFUSALS = {
    "job_not_found": "there is no such job",
    "stale_task": "this attempt is over: another one has taken its place, or has been accepted",
    "job_cancelled": "the job was cancelled",
    "job_already_terminated": "the job has ended",
    "worker_mismatch": "this attempt was given to another worker",
}


@routes.post("/_worker/workers/register")
async def register(request: web.Request) -> web.Response:
    """A worker says who it is and what it can do."""
    speaker = await authenticate_worker(request, None, password=True)
    stage = request.app[STAGE]
    body = await bodies.read(request)
    said = _read(body, Registration)
    check_worker(request, said.worker_id)
    check_signature(request, body, said, said.worker_id, fresh=True)
    await request.app[STAGE].limiter.take_for_worker(request, Context.HEARTBEAT, said.worker_id)
    warn_plain_http(request, f"worker {said.worker_id}")
    # Before it is taken in: of two that come with one password, one is let in.
    login = await tokens_api.exchange_password(request, said.worker_id) if speaker.by == "password" else None
    try:
        arrival = await request.app[STAGE].desk.register(said, peer_address(request))
    except BadMessage as error:
        raise _refused(error) from error
    worker = arrival.worker
    answer: dict[str, Any] = {
        "status": "registered",
        "version": version_of(request),
        "stream": {"url": f"/_worker/ws/{worker.id}", "protocol": 1},
        "session": worker.session,
        "cluster_id": await stage.workers.cluster_id(),
        "lease_seconds": stage.workers.lease_of(worker),
    }
    if stage.filing.place is not None:
        answer["payloads"] = stage.filing.place
    if arrival.stop:
        answer["cancel_task_ids"] = arrival.stop
    if login is not None:
        answer |= tokens_api.token_members(login)
    return _answer(answer)


@routes.patch("/_worker/workers/{worker_id}")
async def heartbeat(request: web.Request) -> web.Response:
    """A worker says that it is there, what it runs, and what it could start."""
    stage = request.app[STAGE]
    desk = stage.desk
    began = stage.clock.elapsed()  # before anything is read: what is offered from now on it cannot know
    worker_id = request.match_info["worker_id"]
    await authenticate_worker(request, worker_id)
    await request.app[STAGE].limiter.take_for_worker(request, Context.HEARTBEAT, worker_id)
    body = await bodies.read(request)
    if not body.strip():
        return _answer({"status": "ttl_refreshed"} if await desk.refresh_lease(worker_id) else None)
    said = _read(body, Heartbeat)
    if said.worker_id not in (None, worker_id):
        raise Problem(403, "worker_mismatch", f"the path names {worker_id!r}, the body {said.worker_id!r}")
    check_signature(request, body, said, worker_id)
    try:
        answer = await desk.beat(worker_id, said, began, request.headers.get(VERSION_HEADER))
    except BadMessage as error:
        raise _refused(error) from error
    except UnknownWorker as error:
        raise await _unknown(request, worker_id, said.session, said.incarnation) from error
    told: dict[str, Any] = {"status": "ok"}
    if answer.stop:
        told["cancel_task_ids"] = answer.stop
    if answer.full_sync:
        told["require_full_sync"] = True
    return _answer(told)


@routes.get("/_worker/workers/{worker_id}/tasks/next")
async def next_task(request: web.Request) -> web.StreamResponse:
    """Wait for a task: 200 with it, or 204 when the time is up. `limit` asks for several."""
    app = request.app
    stage = app[STAGE]
    desk, limiter = stage.desk, stage.limiter
    worker_id = request.match_info["worker_id"]
    speaker, guests = await authenticate_worker(request, worker_id), stage.authenticator.tokens
    limiter.check_poll(request, worker_id)
    query, longest_s = request.query, stage.config.poll_timeout_s
    timeout_s = min(_number(query, "timeout", longest_s), longest_s)
    limit = _count(query, "limit")
    try:
        available, hot = _names(query, "available_skills"), _names(query, "hot_skills")
        poll = desk.poll(worker_id, timeout_s, limit or 1, available, hot, _count(query, "session"))
        async with poll as tasks:
            if not tasks:
                limiter.count_empty_poll(request)
            elif speaker.by == "login" or stage.authenticator.tokens is not guests:
                # The wait was long enough for a token to be taken back.
                await check_still_valid(request, worker_id)
            # Written in here: what cannot be written has not been delivered, and waits for the next poll.
            response = _task_answer(stage, tasks, plural=limit is not None)
            await response.prepare(request)
            await response.write_eof()
    except BadMessage as error:
        raise _refused(error) from error
    except UnknownWorker as error:
        session, incarnation = _count(query, "session"), query.get("incarnation")
        raise await _unknown(request, worker_id, session, incarnation) from error
    return response


@routes.post("/_worker/tasks/result")
async def result(request: web.Request) -> web.Response:
    """How an attempt went. Answered after the commit that it caused; sent again, it is answered alike."""
    await authenticate_worker(request, None)
    app = request.app
    body = await bodies.read(request)
    said = _read(body, Result)
    worker_id = sender_of(request, said)
    check_signature(request, body, said, worker_id)
    await app[STAGE].limiter.take_for_worker(request, Context.RESULT, worker_id)
    told = to_result(said, worker_id, app[STAGE].clock.now())
    try:
        verdict, task = await app[STAGE].desk.result(told)
    except (StorageOutcomeUnknown, OrchestratorStopped):
        abort_for_old_sdk(request)
        raise
    if verdict.accepted:
        return _answer({"status": "accepted", "transition": _transition(task, told)})
    reason = _reason(verdict, task, told)
    return _answer({"status": "ignored", "reason": reason, "message": _REFUSALS[reason]})


@routes.post("/_worker/events")
async def event(request: web.Request) -> web.Response:
    """Progress of an attempt. Any other event is accepted, and means nothing to us."""
    await authenticate_worker(request, None)
    desk = request.app[STAGE].desk
    body = await bodies.read(request)
    said = _read(body, WorkerEvent)
    worker_id = sender_of(request, said)
    check_signature(request, body, said, worker_id, event=True)
    await request.app[STAGE].limiter.take_for_worker(request, Context.EVENT, worker_id)
    try:
        progress = to_progress(said)
    except BadMessage as error:
        raise _refused(error) from error
    if progress is not None:
        desk.progress(progress, worker_id)
    return _answer({"status": "event_accepted"})


def abort_for_old_sdk(request: web.Request) -> None:
    """The older SDK throws a result away that is answered 503; it sends it again when the connection breaks."""
    version = request.headers.get(VERSION_HEADER)
    if version and not registers_again(version) and request.transport is not None:
        request.transport.abort()


# -- reading -----------------------------------------------------------------------------------------


def _read(body: bytes, shape: type[M]) -> M:
    try:
        return decode_message(body, shape)
    except BadMessage as error:
        raise _refused(error) from error


def sender_of(request: web.Request, said: Message) -> str:
    """Who sent a message that may leave it to a header to say so."""
    worker_id = said.worker_id or request.headers.get(ID_HEADER)
    if not worker_id:
        raise Problem(400, "bad_message", f"expected the worker's id in `worker_id` or {ID_HEADER}, got none")
    check_worker(request, worker_id)
    return worker_id


def _refused(error: BadMessage) -> Problem:
    return Problem(400, "bad_message", safe_text(error))


async def _unknown(
    request: web.Request, worker_id: str, session: int | None, incarnation: str | None
) -> Problem:
    """It must register again, or hear that another process has its id."""
    stage = request.app[STAGE]
    more: dict[str, Any] = {}
    if session is not None:
        newer = await stage.workers.records.find(worker_id)
        if rival := duplicate_worker(newer, session, incarnation or "", stage.config.instance_id):
            warn_duplicate_worker(worker_id, rival, peer_address(request))
            more["displaced_by"] = rival
    # The stock SDK looks for the words "not found", and registers again.
    return Problem(404, "worker_unknown", f"worker {worker_id} not found here: register again", **more)


def _number(query: Mapping[str, str], name: str, default: float) -> float:
    text = query.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not (isfinite(value) and value >= 0):
        raise Problem(
            400, "bad_parameter", f"{name}: expected seconds, 0 or more, got {safe_text(text)[:100]!r}"
        )
    return value


def _count(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    most = MAX_TASKS if name == "limit" else 2**63
    if not (text.isascii() and text.isdigit() and len(text) < 20 and 1 <= int(text) <= most):
        raise Problem(400, "bad_parameter", f"{name}: expected 1 to {most}, got {safe_text(text)[:100]!r}")
    return int(text)


def _names(query: Mapping[str, str], name: str) -> tuple[str, ...] | None:
    text = query.get(name)
    return None if text is None else skills_of(part for part in map(str.strip, text.split(",")) if part)


# -- answering ---------------------------------------------------------------------------------------


def _answer(value: Any) -> web.Response:
    return web.Response(body=_encode(value), headers=_JSON)


def _task_answer(stage: Stage, tasks: list[Task], plural: bool) -> web.Response:
    if not tasks:
        return web.Response(status=204)
    now, secret = stage.clock.now(), stage.config.orchestrator_secret_key
    objects = [task_message(task, now, secret) for task in tasks]
    return _answer({"tasks": objects} if plural else objects[0])


def _transition(task: DeliveredTask | None, told: TaskResult) -> str:
    """The wire's word for what an accepted result did."""
    if task is not None and task.branch:
        return "parallel_branch_accepted"
    outcome = told.outcome
    if told.error is not None or outcome == "failure":
        return "failure_handled"
    if outcome == "cancelled":
        return "cancelled_handled"
    if task is not None and outcome not in task.transitions:
        return "unhandled_status_failure"
    return "success_transition"


def _reason(verdict: ResultVerdict, task: DeliveredTask | None, told: TaskResult) -> str:
    current = task is not None and task.attempt == split_attempt_id(told.task_id)[1]
    if verdict is ResultVerdict.STALE_TASK and current and task is not None and task.worker_id is not None:
        return "worker_mismatch" if task.worker_id != told.worker_id else str(verdict)
    return str(verdict)
