"""Who may speak as a worker, and that every place which names the worker names the same one.

The order is that of the documents: the common name of a certificate, a short-lived token, the worker's own token (a
mismatch is final), everybody's token. One-time passwords are accepted only where they are exchanged for tokens.
"""

import hmac
from collections import OrderedDict
from typing import Literal

import msgspec
from aiohttp import web
from msgspec import Struct, field

from ...workers.credentials import TokenFamily, TokenLifetimes, TokenRefused, WorkerTokenStore, is_access
from ...workers.one_time_passwords import UNKNOWN, OneTimePasswords, is_password
from ...workers.protocol.messages import (
    ID_HEADER,
    PROTOCOL_VERSION,
    TOKEN_HEADER,
    VERSION_HEADER,
    BadMessage,
    Message,
    check_identifier,
)
from ...workers.protocol.signing import verify
from ..authenticator import Authenticator
from ..network import certificate_name
from ..parameters import token_in
from ..problems import Problem
from ..stage import STAGE, Stage

#: A registration, or a request for a token, that was signed longer ago than this (or will be) is refused. Nothing
#: else is: finished work must survive an outage, and everything else may be said twice.
SIGNATURE_WINDOW_S = 60.0

_CHALLENGE = {"WWW-Authenticate": "Bearer"}


class WorkerIdentity(Struct, frozen=True):
    """Who speaks, and by what right."""

    by: Literal["certificate", "login", "password", "token"]
    #: What was brought along, if it is good; empty where a certificate does. It keys signatures.
    token: str
    #: The only worker that it may speak for; None: any that has to bring this very token.
    worker_id: str | None = None


#: Who speaks, once `admit` has let the request in.
WORKER_IDENTITY = web.RequestKey("speaker", WorkerIdentity)


async def authenticate_worker(
    request: web.Request, worker_id: str | None, *, password: bool = False
) -> WorkerIdentity:
    """Let a worker in, or raise the Problem that says why not.

    401 `token_missing`, `token_unknown`, `token_expired`, `certificate_missing`; 403 `worker_mismatch` when `worker_id`
    (of the path or the body) is not the one that the certificate, the token or X-Worker-ID name; 400 for an id that is
    none. Where `worker_id` is None it stands in the body: `check_worker` comes once that is read. `password`: a
    one-time password opens this door, too.
    """
    stage = request.app[STAGE]
    mode = stage.config.worker_auth_mode
    name = certificate_name(request, stage.config.trusted_proxies) if mode != "token-only" else None
    token = token_of(request)
    if name is None and token and mode != "mtls-only" and not is_access(token) and not is_password(token):
        speaker = WorkerIdentity("token", token)  # as most do
    else:
        speaker = await _recognise(request, mode, name, token, password)
    request[WORKER_IDENTITY] = speaker
    if worker_id is not None:
        _check(request, stage, speaker, worker_id)
    elif speaker.by == "token" and not stage.authenticator.knows(token):
        raise _unknown_token()
    return speaker


async def _recognise(
    request: web.Request, mode: str, name: str | None, token: str, password: bool
) -> WorkerIdentity:
    login = await _login(request, token, must=name is None) if is_access(token) else None
    if name is not None:
        if login is not None and login.worker_id != name:
            raise _mismatch(f"the certificate is {name!r}'s, the token {login.worker_id!r}'s")
        return WorkerIdentity("certificate", "" if login is None else token, name)
    if mode == "mtls-only":
        raise Problem(
            401, "certificate_missing", "expected a client certificate, got none", headers=_CHALLENGE
        )
    if not token:
        raise Problem(
            401, "token_missing", f"expected a worker token in {TOKEN_HEADER}, got none", headers=_CHALLENGE
        )
    if login is not None:
        return WorkerIdentity("login", token, login.worker_id)
    if is_password(token) and password:
        owner = await request.app[STAGE].logins.passwords.owner(token)
        if owner is None:
            raise Problem(401, "password_unknown", UNKNOWN, headers=_CHALLENGE)
        # One that was used may come with a repeat of the request; trading it says what it is.
        return WorkerIdentity("password", token, owner or None)
    return WorkerIdentity("token", token)


async def _login(request: web.Request, token: str, must: bool) -> TokenFamily | None:
    """The login of an access token. One that is no good is refused, unless a certificate does instead."""
    stage, logins = request.app[STAGE], request.app[STAGE].logins
    try:
        login = await logins.credentials.find(token)
        if not await logins.is_still_granted(login, stage.authenticator):
            raise TokenRefused(
                "token_unknown", "the token that this login was given for has changed: begin anew"
            )
    except TokenRefused as refusal:
        if must and not stage.authenticator.knows(token):  # a configured token may look like one of ours
            raise Problem(401, refusal.code, str(refusal), headers=_CHALLENGE) from refusal
        return None
    logins.keys.remember(login.worker_id, token)
    return login


def check_worker(request: web.Request, worker_id: str) -> None:
    """The id is one, the speaker is this worker, and nobody speaks for another."""
    _check(request, request.app[STAGE], request[WORKER_IDENTITY], worker_id)


def _check(request: web.Request, stage: Stage, speaker: WorkerIdentity, worker_id: str) -> None:
    try:
        check_identifier("worker id", worker_id)
    except BadMessage as error:
        raise Problem(400, "bad_identifier", str(error)) from error
    hint = request.headers.get(ID_HEADER)
    if hint and hint != worker_id:
        raise _mismatch(f"{ID_HEADER} names {hint!r}, the request {worker_id!r}")
    check_claim(stage, speaker, worker_id)


def check_claim(stage: Stage, speaker: WorkerIdentity, worker_id: str) -> None:
    """The speaker may speak as this worker."""
    if speaker.worker_id is not None:
        if speaker.worker_id != worker_id:
            raise _mismatch(f"the {speaker.by} is {speaker.worker_id!r}'s, the request names {worker_id!r}")
    elif speaker.by == "token" and not stage.authenticator.is_of(speaker.token, worker_id):
        raise _unknown_token()
    elif speaker.by == "password" and stage.authenticator.has_own(worker_id):
        # One that anybody may use does not open what a token of one's own keeps shut.
        raise _unknown_token()


async def is_still_valid(request: web.Request, worker_id: str | None) -> bool:
    """What this worker came in with is still good: a connection that stays for days is asked again and again.

    Where nobody knows who it is (None), its token must be some worker's.
    """
    stage, logins, speaker = request.app[STAGE], request.app[STAGE].logins, request[WORKER_IDENTITY]
    match speaker.by:
        case "login":
            login = await logins.credentials.living(speaker.token)
            return login is not None and await logins.is_still_granted(login, stage.authenticator)
        case "token":
            known, token = stage.authenticator, speaker.token
            return known.knows(token) if worker_id is None else known.is_of(token, worker_id)
        case _:
            return True  # a certificate holds for as long as its connection


async def check_still_valid(request: web.Request, worker_id: str) -> None:
    """The same, as a refusal."""
    if not await is_still_valid(request, worker_id):
        raise _unknown_token()


def _mismatch(words: str) -> Problem:
    return Problem(403, "worker_mismatch", words)


def _unknown_token() -> Problem:
    return Problem(401, "token_unknown", "this worker token is not known here", headers=_CHALLENGE)


def check_signature(
    request: web.Request,
    body: bytes,
    said: Message,
    worker_id: str,
    *,
    fresh: bool = False,
    event: bool = False,
    required: bool | None = None,
) -> None:
    """A signature that is there must be right; settings may ask for one. `fresh` ones must be of this minute.

    It is keyed with the token that the message comes with. A worker that has got another one meanwhile may have signed
    with the one before, or with the configured one: those are tried too.
    """
    stage = request.app[STAGE]
    security = said.security
    if security is None or not security.signature:
        if stage.config.worker_require_signatures if required is None else required:
            raise Problem(401, "signature_missing", "expected a signed message, got one without a signature")
        return
    if security.signer_id is not None and security.signer_id != worker_id:
        signer = security.signer_id
        raise _mismatch(f"signed by {signer!r}, but it speaks of {worker_id!r}")
    # `bubbling_chain` grows on the way, so it is not part of what an event's author has signed.
    leave_out = ("bubbling_chain",) if event else ()
    members = msgspec.json.decode(body)
    try:
        right = [verify(members, security.signature, key, leave_out) for key in _keys(request, worker_id)]
    except BadMessage as error:
        raise Problem(400, "bad_message", str(error)) from error
    if not any(right):
        raise Problem(401, "signature_wrong", "the signature does not fit the message and the worker's token")
    if fresh:
        _check_time(stage, said.timestamp)


def _keys(request: web.Request, worker_id: str) -> list[str]:
    """What this worker may have signed with. Never nothing: anybody can sign with that."""
    stage, logins = request.app[STAGE], request.app[STAGE].logins
    known = [
        request[WORKER_IDENTITY].token,
        stage.authenticator.token_of(worker_id),
        *logins.keys.of(worker_id),
    ]
    return [key for key in dict.fromkeys(known) if key]


def _check_time(stage: Stage, stamp: float | None) -> None:
    if stamp is None:
        raise Problem(401, "timestamp_missing", "expected a signed registration with a timestamp, got none")
    off_s = stage.clock.now().timestamp() - stamp
    if abs(off_s) > SIGNATURE_WINDOW_S:
        raise Problem(
            401,
            "timestamp_out_of_range",
            f"the timestamp is {off_s:+.0f} s off; expected at most {SIGNATURE_WINDOW_S:.0f}: set the clock",
        )


def version_of(request: web.Request) -> str:
    """The version that a worker says it speaks; ours where it says none, or nothing that is text."""
    said = request.headers.get(VERSION_HEADER, PROTOCOL_VERSION)[:32]
    return said if said.isascii() else PROTOCOL_VERSION


def token_of(request: web.Request) -> str:
    """The token that a worker's request contains, or an empty string."""
    return token_in(request, TOKEN_HEADER)


#: Workers whose keys are remembered, and keys of each.
_MOST_WORKERS = 10_000
_MOST_KEYS = 4


class RecentTokens:
    """Tokens that workers came with lately. In memory only: they key signatures, and the store has but their hashes."""

    def __init__(self) -> None:
        self._of: OrderedDict[str, tuple[str, ...]] = OrderedDict()

    def remember(self, worker_id: str, token: str) -> None:
        """A worker came in with this token."""
        known = self._of.get(worker_id, ())
        if not known or known[0] != token:
            self._of[worker_id] = (token, *(key for key in known if key != token))[:_MOST_KEYS]
            if len(self._of) > _MOST_WORKERS:
                self._of.popitem(last=False)

    def of(self, worker_id: str) -> tuple[str, ...]:
        """The newest first."""
        return self._of.get(worker_id, ())

    def forget(self, worker_id: str) -> None:
        """It may not come in with them any more."""
        self._of.pop(worker_id, None)


class WorkerLogins(Struct, frozen=True):
    """One application's share of them."""

    credentials: WorkerTokenStore
    passwords: OneTimePasswords
    keys: RecentTokens = field(default_factory=RecentTokens)

    async def is_still_granted(self, login: TokenFamily, authenticator: Authenticator) -> bool:
        """The configured token that a login was given for is still the worker's; others stand by themselves."""
        if not login.grounds:
            return True
        now = await self.credentials.fingerprint(authenticator.token_of(login.worker_id))
        return hmac.compare_digest(login.grounds, now)


def worker_logins(stage: Stage) -> WorkerLogins:
    """The logins that this store holds."""
    lifetimes = TokenLifetimes(stage.config.sts_token_s, stage.config.sts_refresh_s)
    credentials = WorkerTokenStore(stage.storage, stage.clock, lifetimes)
    return WorkerLogins(credentials, OneTimePasswords(stage.storage, credentials))
