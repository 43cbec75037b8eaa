"""Who may speak as a worker: the token, and that every place which names the worker names the same one."""

import msgspec
from aiohttp import web

from ..wire.bad_message import BadMessage
from ..wire.signing import is_signed
from ..wire.worker import ID_HEADER, TOKEN_HEADER, Message, check_identifier
from .problems import Problem
from .stage import STAGE, Stage

#: A registration that was signed longer ago than this (or will be) is refused. Nothing else is: finished
#: work must survive an outage, and everything else may be said twice.
SIGNATURE_WINDOW_S = 60.0

_CHALLENGE = {"WWW-Authenticate": "Bearer"}


def admit(request: web.Request, worker_id: str | None) -> None:
    """Let a worker in, or raise the Problem that says why not.

    401 `token_missing` or `token_unknown`; 403 `worker_mismatch` when `worker_id` (of the path or the body)
    is not the one that X-Worker-ID names; 400 for an id that is none.
    """
    token = _token_of(request)
    if not token:
        raise Problem(
            401, "token_missing", f"expected a worker token in {TOKEN_HEADER}, got none", headers=_CHALLENGE
        )
    if worker_id is not None:
        check_worker(request, worker_id)
    elif not request.config_dict[STAGE].doors.knows(token):
        # Who it is stands in the body; `check_worker` comes once that is read.
        raise _unknown_token()


def check_worker(request: web.Request, worker_id: str) -> None:
    """The id is one, the token is this worker's, and nobody speaks for another."""
    try:
        check_identifier("worker id", worker_id)
    except BadMessage as error:
        raise Problem(400, "bad_identifier", str(error)) from error
    hint = request.headers.get(ID_HEADER)
    if hint and hint != worker_id:
        raise Problem(403, "worker_mismatch", f"{ID_HEADER} names {hint!r}, the request {worker_id!r}")
    if not request.config_dict[STAGE].doors.is_of(_token_of(request), worker_id):
        raise _unknown_token()


def _unknown_token() -> Problem:
    return Problem(401, "token_unknown", "this worker token is not known here", headers=_CHALLENGE)


def check_signature(
    stage: Stage, body: bytes, said: Message, worker_id: str, *, fresh: bool = False, event: bool = False
) -> None:
    """A signature that is there must be right; settings may ask for one. `fresh` ones must be of this minute."""
    security = said.security
    if security is None or not security.signature:
        if stage.config.worker_require_signatures:
            raise Problem(401, "signature_missing", "expected a signed message, got one without a signature")
        return
    if security.signer_id is not None and security.signer_id != worker_id:
        signer = security.signer_id
        raise Problem(403, "worker_mismatch", f"signed by {signer!r}, but it speaks of {worker_id!r}")
    # `bubbling_chain` grows on the way, so it is not part of what an event's author has signed.
    leave_out = ("bubbling_chain",) if event else ()
    members = msgspec.json.decode(body)
    try:
        right = is_signed(members, security.signature, stage.doors.token_of(worker_id), leave_out)
    except BadMessage as error:
        raise Problem(400, "bad_message", str(error)) from error
    if not right:
        raise Problem(401, "signature_wrong", "the signature does not fit the message and the worker's token")
    if fresh:
        _check_time(stage, said.timestamp)


def _check_time(stage: Stage, stamp: float | None) -> None:
    if stamp is None:
        raise Problem(401, "timestamp_missing", "expected a signed registration with a timestamp, got none")
    off_s = stage.clock.now().timestamp() - stamp
    if abs(off_s) > SIGNATURE_WINDOW_S:
        raise Problem(
            401,
            "timestamp_off",
            f"the timestamp is {off_s:+.0f} s off; expected at most {SIGNATURE_WINDOW_S:.0f}: set the clock",
        )


def _token_of(request: web.Request) -> str:
    token = request.headers.get(TOKEN_HEADER, "")
    if token:
        return token
    kind, _, bearer = request.headers.get("Authorization", "").partition(" ")
    return bearer.strip() if kind.lower() == "bearer" else ""
