"""What workers may come in with, for operators: make a one-time password, take everything back."""

from typing import Annotated

from aiohttp import web
from msgspec import Meta, Struct

from ..fleet.passwords import LIFETIME_S
from . import bodies, view
from .audit import audit
from .channel import CHANNELS
from .logins import LOGINS
from .operations import Operations
from .problems import Problem
from .stage import CLIENT, STAGE

routes = Operations("tokens")

#: As `wire.worker.check_identifier` has it.
_WorkerId = Annotated[
    str,
    Meta(
        pattern="^[A-Za-z0-9_-]{1,128}$",
        description="the id of a worker: 1 to 128 letters, digits, - and _",
    ),
]
_OPERATORS = {403: "for operators only"}
_NO_USE = {409: "workers come in by certificates alone, so a password would open nothing"}


class PasswordWish(Struct, frozen=True, forbid_unknown_fields=True):
    """For whom, and for how long. Without a worker it is good for whichever uses it first."""

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


class Revoked(Struct, frozen=True):
    """What has ended: logins, and one-time passwords that nobody had used."""

    worker_id: str
    logins: int
    passwords: int


@routes.post(
    "/tokens/otp",
    body=PasswordWish,
    body_required=False,
    answers={201: PasswordObject},
    problems=_OPERATORS | _NO_USE,
)
async def make_password(request: web.Request) -> web.Response:
    """Make a one-time password for a worker.

    It is good once and for minutes; the worker trades it for tokens of its own. For operators only.
    """
    wish = await bodies.take_optional(request, PasswordWish)
    _refuse_others(request)
    if request.app[STAGE].config.worker_auth_mode == "mtls-only":
        words = "workers come in by certificates alone here (WORKER_AUTH_MODE is mtls-only): make a certificate instead"
        raise Problem(409, "passwords_disabled", words)
    passwords = request.app[LOGINS].passwords
    made = await passwords.make(wish.worker_id or "", wish.lifetime)
    await audit(request, "token.otp", wish.worker_id or "")
    shown = PasswordObject(made.text, made.worker_id or None, made.lifetime_s)
    return view.json(shown, 201, {"Cache-Control": "no-store"})


@routes.post("/tokens/revoke", body=Revocation, answers={200: Revoked}, problems=_OPERATORS)
async def revoke(request: web.Request) -> web.Response:
    """End what a worker was given.

    Its short-lived tokens and its one-time passwords are no good any more, and its stream is closed. What stands in
    `workers.toml` or WORKER_TOKEN is not touched: a worker that knows such a token comes in again. For operators only.
    """
    wish = await bodies.take(request, Revocation)
    _refuse_others(request)
    logins, passwords = await request.app[LOGINS].revoke(wish.worker_id)
    await request.app[CHANNELS].check(wish.worker_id)
    await audit(request, "token.revoke", wish.worker_id)
    return view.json(Revoked(wish.worker_id, logins, passwords))


def _refuse_others(request: web.Request) -> None:
    if not request[CLIENT].operator:
        raise Problem(
            403, "operators_only", "only an operator may hand out or take back the tokens of workers"
        )
