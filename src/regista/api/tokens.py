"""Credentials of workers over HTTP, for operators: one-time passwords, and revocation."""

from typing import Annotated

from aiohttp import web
from msgspec import Meta, Struct

from ..services.tokens import Revoked, TokenService
from ..workers.one_time_passwords import LIFETIME_S
from . import bodies, view
from .callers import caller_of
from .routes import RouteTable
from .stage import STAGE, Stage
from .worker_protocol.auth import WorkerLogins
from .worker_protocol.streams import WorkerStreams

routes = RouteTable("tokens")

#: As `wire.worker.check_identifier` has it.
_WorkerId = Annotated[
    str,
    Meta(
        pattern="^[A-Za-z0-9_-]{1,128}$",
        description="the id of a worker: 1 to 128 letters, digits, - and _",
    ),
]
_NO_USE = {409: "workers come in by certificates alone, so a password would open nothing"}


class PasswordRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The worker, and the lifetime. Without a worker the password is for the first worker that uses it."""

    worker_id: _WorkerId | None = None
    #: Seconds, at most five minutes.
    lifetime: Annotated[float, Meta(gt=0, le=LIFETIME_S)] = LIFETIME_S


class PasswordObject(Struct, frozen=True):
    """A one-time password. It is shown this once: REGISTA_TOKEN for a worker that is about to start."""

    password: str
    worker_id: str | None
    expires_in: float


class Revocation(Struct, frozen=True, forbid_unknown_fields=True):
    """Whose tokens shall end."""

    worker_id: _WorkerId


def token_service(stage: Stage, logins: WorkerLogins, streams: WorkerStreams) -> TokenService:
    """Build the service. A revoked worker loses its open stream."""

    async def disconnect(worker_id: str) -> None:
        logins.keys.forget(worker_id)
        await streams.check_credentials(worker_id)

    return TokenService(
        logins.credentials,
        logins.passwords,
        stage.services.audit,
        certificates_only=stage.config.worker_auth_mode == "mtls-only",
        on_revoked=disconnect,
    )


@routes.post(
    "/tokens/otp",
    operator=True,
    body=PasswordRequest,
    body_required=False,
    answers={201: PasswordObject},
    problems=_NO_USE,
)
async def make_password(request: web.Request) -> web.Response:
    """Make a one-time password for a worker.

    It is good once and for minutes; the worker trades it for tokens of its own. For operators only.
    """
    body = await bodies.take_optional(request, PasswordRequest)
    made = await request.app[STAGE].tokens.create_password(
        caller_of(request), body.worker_id or "", body.lifetime
    )
    shown = PasswordObject(made.text, made.worker_id or None, made.lifetime_s)
    return view.json(shown, 201, {"Cache-Control": "no-store"})


@routes.post("/tokens/revoke", operator=True, body=Revocation, answers={200: Revoked})
async def revoke(request: web.Request) -> web.Response:
    """End what a worker was given.

    Its short-lived tokens and its one-time passwords are no good any more, and its stream is closed. What stands in
    `workers.toml` or WORKER_TOKEN is not touched: a worker that knows such a token comes in again. For operators only.
    """
    body = await bodies.take(request, Revocation)
    return view.json(await request.app[STAGE].tokens.revoke(caller_of(request), body.worker_id))
