"""Short-lived tokens over the worker protocol: ask for a login, renew it, begin one with a one-time password."""

from typing import Any

import msgspec
from aiohttp import web

from ...config.rates import Context
from ...workers.credentials import TokenRefused, WorkerTokens
from ...workers.one_time_passwords import WrongWorker
from ...workers.protocol.messages import (
    ID_HEADER,
    VERSION_HEADER,
    BadMessage,
    Message,
    decode_message,
    registers_again,
)
from .. import bodies
from ..callers import worker_calling
from ..network import certificate_name, client_address
from ..problems import Problem
from ..rate_limits import address_group
from ..routes import RouteTable
from ..stage import STAGE
from .auth import WORKER_IDENTITY, WorkerIdentity, authenticate_worker, check_signature, check_worker

#: Stock workers may refresh from several of their loops at once, with one token: for so long all get the same answer.
_STOCK_LEEWAY_S = 5.0
_STOCK_REQUEST = "stock"

#: A shorter one could be guessed, and whoever guesses it is answered like the one who sent it.
_LEAST_REQUEST_ID = 16

_NO_STORE = {"Cache-Control": "no-store"}

routes = RouteTable("tokens", kind="worker")


class TokenRequest(Message, frozen=True, kw_only=True, gc=False):
    """A wish for tokens. Stock workers send no body at all with the first one."""

    #: A secret of the sender's choice: the same request again is answered alike.
    request_id: str = ""
    refresh_token: str = ""


@routes.post("/_worker/auth/token")
async def issue(request: web.Request) -> web.Response:
    """A login for a worker that comes with a certificate, a configured token or a one-time password."""
    speaker = await authenticate_worker(request, None, password=True)
    body, said = await _read(request)
    worker_id = _worker_of(request, speaker, said)
    check_worker(request, worker_id)
    # What has no body cannot be signed, and the stock SDK sends none.
    check_signature(request, body, said, worker_id, fresh=True, required=False)
    await request.app[STAGE].limiter.take_for_worker(request, Context.HEARTBEAT, worker_id)
    if speaker.by == "login":
        raise Problem(
            403, "refresh_instead", "a short-lived token is renewed with its refresh token, not with itself"
        )
    if speaker.by == "password":
        return _answer(await exchange_password(request, worker_id, said.request_id))
    logins = request.app[STAGE].logins
    grounds = await logins.credentials.fingerprint(speaker.token) if speaker.by == "token" else ""
    return _answer(await logins.credentials.issue(worker_id, grounds))


@routes.post("/_worker/auth/token/refresh")
async def refresh(request: web.Request) -> web.Response:
    """The next pair, for a refresh token. It is a credential of its own: the access token may be over by now."""
    body, said = await _read(request)
    if not said.refresh_token:
        raise Problem(400, "bad_message", "expected a `refresh_token`, got none")
    worker_id = _claimed(said.refresh_token)
    request[WORKER_IDENTITY] = WorkerIdentity("login", said.refresh_token, worker_id)
    for named in (said.worker_id, request.headers.get(ID_HEADER), _certificate(request)):
        if named and named != worker_id:
            raise Problem(
                403, "worker_mismatch", f"the token is {worker_id!r}'s, the request names {named!r}"
            )
    check_signature(request, body, said, worker_id, fresh=True, required=False)
    # The token is not verified yet: its own address alone must not use up the limit of a worker.
    key = f"{worker_id}@{address_group(client_address(request))}"
    await request.app[STAGE].limiter.take_for_worker(request, Context.HEARTBEAT, key)
    stock = registers_again(request.headers.get(VERSION_HEADER)) and not said.request_id
    credentials = request.app[STAGE].logins.credentials
    try:
        wish = (_STOCK_REQUEST, _STOCK_LEEWAY_S) if stock else (said.request_id, None)
        tokens = await credentials.refresh(said.refresh_token, *wish)
    except TokenRefused as refusal:
        if refusal.code == "token_reused":
            audit = request.app[STAGE].services.audit
            await audit.record(worker_calling(request, worker_id), "token.reused", worker_id)
        raise token_problem(refusal) from refusal
    return _answer(tokens)


async def exchange_password(request: web.Request, worker_id: str, request_id: str = "") -> WorkerTokens:
    """The login that the one-time password of this request is good for, once."""
    logins, token = request.app[STAGE].logins, request[WORKER_IDENTITY].token
    audit, caller = request.app[STAGE].services.audit, worker_calling(request, worker_id)
    work = logins.passwords.trade(token, worker_id, request_id)
    try:
        tokens = await audit.perform(caller, "token.traded", worker_id, work)
    except TokenRefused as refusal:
        if refusal.code == "password_used":
            await audit.record(caller, "token.reused", worker_id)
        raise token_problem(refusal) from refusal
    # The newer stock SDK goes on signing with what it came with.
    logins.keys.remember(worker_id, token)
    return tokens


def token_problem(refusal: TokenRefused) -> Problem:
    """The answer to a token that is no good."""
    if isinstance(refusal, WrongWorker):
        return Problem(403, refusal.code, str(refusal))
    return Problem(401, refusal.code, str(refusal), headers={"WWW-Authenticate": "Bearer"})


def token_members(tokens: WorkerTokens) -> dict[str, Any]:
    """The members of an answer that carry tokens."""
    # The stock SDK takes whole seconds only.
    return {
        "access_token": tokens.access_token,
        "refresh_token": tokens.refresh_token,
        "expires_in": max(1, int(tokens.expires_in)),
        "worker_id": tokens.worker_id,
    }


def _answer(tokens: WorkerTokens) -> web.Response:
    body = msgspec.json.encode(token_members(tokens))
    return web.Response(body=body, content_type="application/json", headers=_NO_STORE)


async def _read(request: web.Request) -> tuple[bytes, TokenRequest]:
    body = await bodies.read(request)
    if not body.strip() or body.strip() == b"null":
        return b"{}", TokenRequest()
    try:
        said = decode_message(body, TokenRequest)
    except BadMessage as error:
        raise Problem(400, "bad_message", str(error)) from error
    if said.request_id and len(said.request_id) < _LEAST_REQUEST_ID:
        words = f"request_id: expected a secret of at least {_LEAST_REQUEST_ID} characters, got a shorter one"
        raise Problem(400, "bad_message", words)
    return body, said


def _worker_of(request: web.Request, speaker: WorkerIdentity, said: TokenRequest) -> str:
    """For whom tokens are asked: what the body or the header says, else whose certificate or token it is."""
    named = said.worker_id or request.headers.get(ID_HEADER) or speaker.worker_id
    if not named:
        named = request.app[STAGE].authenticator.owner_of(speaker.token)
    if not named:
        raise Problem(400, "bad_message", f"expected the worker's id in `worker_id` or {ID_HEADER}, got none")
    return named


def _claimed(refresh_token: str) -> str:
    """Whose a refresh token says it is; whether it is, the store knows."""
    parts = refresh_token.split(".")
    return parts[1] if len(parts) == 4 else ""


def _certificate(request: web.Request) -> str | None:
    config = request.app[STAGE].config
    mode = config.worker_auth_mode
    name = None if mode == "token-only" else certificate_name(request, config.trusted_proxies)
    if name is None and mode == "mtls-only":
        raise Problem(401, "certificate_missing", "expected a client certificate, got none")
    return name
