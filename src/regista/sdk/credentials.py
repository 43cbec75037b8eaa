"""OrchestratorCredentials: what a worker comes in with. A token for ever, or a login that is renewed before it is over.

A one-time password (REGISTA_TOKEN) is traded for a login with the first request of all; so is the configured token,
where WORKER_USE_STS asks for that. The login lives in this process only.
"""

import asyncio
import logging
import secrets
import time
from typing import Any

import aiohttp
import msgspec
from msgspec import Struct

from ..config import WorkerConfig
from ..serialization import safe_text
from ..workers.protocol.signing import sign
from .transports.base import RegistrationRejected

log = logging.getLogger("regista.worker")

#: How long an answer may take.
_ANSWER_S = 15.0
#: The share of a token's life after which the next one is fetched.
_RENEW_AFTER = 0.8
#: The pause after a renewal that failed, and the shortest between two.
_AGAIN_S = 5.0
_LEAST_S = 0.1


class _Tokens(Struct, frozen=True):
    """The answer to a wish for tokens."""

    access_token: str
    expires_in: float
    refresh_token: str = ""


class OrchestratorCredentials:
    """The credentials of one worker id, at one store. Whoever asks at the same time gets the same answer."""

    def __init__(self, worker_id: str, config: WorkerConfig, password: str = "") -> None:
        self._worker_id = worker_id
        self._wants_login = config.use_sts or bool(password)
        self._password = password
        self._has_certificate = bool(config.tls_cert_path)
        #: The configured token, as it was at the last try.
        self._configured = ""
        self._tokens: _Tokens | None = None
        self._renew_at = 0.0
        #: Known to us alone: a request that is sent again is answered like the first time.
        self._request_id = secrets.token_urlsafe(16)
        self._lock = asyncio.Lock()
        #: The orchestrator wants messages to be signed.
        self.signature_required = False

    @property
    def token(self) -> str:
        """What to send now."""
        return self._configured if self._tokens is None else self._tokens.access_token

    @property
    def is_short_lived(self) -> bool:
        """It must be renewed now and then."""
        return self._tokens is not None

    @property
    def has_key(self) -> bool:
        """There is something to sign with. Whom a certificate lets in may have a token that nobody knows, or none."""
        return self.is_short_lived or (bool(self.token) and not self._has_certificate)

    @property
    def headers(self) -> dict[str, str]:
        return {"X-Worker-Token": self.token, "X-Worker-ID": self._worker_id}

    def sign_body(self, body: dict[str, Any]) -> dict[str, Any]:
        """The body, with a signature where the orchestrator wants one."""
        if not self.signature_required:
            return body
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(body))
        plain["timestamp"] = int(time.time())
        return plain | {"security": {"signature": sign(plain, self.token), "signer_id": self._worker_id}}

    # -- having something to come in with --------------------------------------------------------

    async def prepare(self, http: aiohttp.ClientSession, url: str, configured: str) -> None:
        """Be ready to register: with a login, where one is wanted, that is good for a while.

        RegistrationRejected when nothing opens the door; ClientError (or OSError, TimeoutError) when nobody answers.
        """
        self._configured = configured
        async with self._lock:
            if self._tokens is not None and asyncio.get_running_loop().time() >= self._renew_at:
                await self._renew(http, url)
            if self._tokens is None and self._wants_login:
                await self._log_in(http, url)

    async def renew(self, http: aiohttp.ClientSession, url: str, stale: str) -> bool:
        """After a 401 for the token `stale`: True when there is another one to try."""
        async with self._lock:
            if self._tokens is not None and self.token == stale:
                await self._renew(http, url)
            return self.token not in ("", stale)

    async def refresh_forever(self, http: aiohttp.ClientSession, url: str) -> None:
        """Renew the login whenever it is time; whoever started it cancels it."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(max(_LEAST_S, self._renew_at - loop.time()))
            try:
                async with self._lock:
                    if self._tokens is not None and loop.time() >= self._renew_at:
                        await self._renew(http, url)
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                log.debug("the login is not renewed yet: %s", safe_text(error))
                await asyncio.sleep(_AGAIN_S)
            except Exception:
                log.exception("renewing the login failed; it is tried again")
                await asyncio.sleep(_AGAIN_S)
            if self._tokens is None:
                return  # it was ended; the next registration finds out what is left

    async def log_in(self, http: aiohttp.ClientSession, url: str) -> None:
        """Get a login now: whoever has a certificate alone needs one to sign with."""
        async with self._lock:
            if self._tokens is None:
                await self._log_in(http, url)

    async def _log_in(self, http: aiohttp.ClientSession, url: str) -> None:
        brought = self._password or self._configured
        body = {"worker_id": self._worker_id, "request_id": self._request_id}
        status, told = await self._ask(http, f"{url}/_worker/auth/token", brought, body)
        if status == 200:
            self._keep(told)
            # It has done what it could.
            self._password = ""
        elif status in (401, 403):
            detail = told.get("detail", "no reason was given")
            raise RegistrationRejected(f"HTTP {status}: {detail}", str(told.get("code", "")))
        elif self._password or status == 429 or (status >= 500 and status != 501):  # not now
            brought_what = "a one-time password" if self._password else "a login"
            raise aiohttp.ClientError(f"HTTP {status} for {brought_what}")
        else:
            # An orchestrator that gives out none: the configured one does.
            self._wants_login = False

    async def _renew(self, http: aiohttp.ClientSession, url: str) -> None:
        """The next pair; without one, when the orchestrator has ended the login."""
        assert self._tokens is not None
        body = {"refresh_token": self._tokens.refresh_token, "request_id": self._request_id}
        where = f"{url}/_worker/auth/token/refresh"
        status, told = await self._ask(http, where, self._tokens.access_token, body)
        if status == 200:
            self._keep(told)
        elif status in (400, 401, 403, 404, 501):
            reason = told.get("detail", f"HTTP {status}")
            log.warning("the login is over: %s", reason, extra={"action": "login_over"})
            self._tokens = None
        else:
            raise aiohttp.ClientError(f"HTTP {status} for a new token")

    def _keep(self, told: dict[str, Any]) -> None:
        try:
            self._tokens = msgspec.convert(told, _Tokens)
        except msgspec.ValidationError as error:
            raise aiohttp.ClientError(f"the answer to a wish for tokens makes no sense: {error}") from None
        self._request_id = secrets.token_urlsafe(16)
        now = asyncio.get_running_loop().time()
        self._renew_at = now + max(_LEAST_S, self._tokens.expires_in * _RENEW_AFTER)

    async def _ask(
        self, http: aiohttp.ClientSession, where: str, token: str, body: dict[str, Any]
    ) -> tuple[int, dict[str, Any]]:
        headers = {"X-Worker-Token": token, "X-Worker-ID": self._worker_id}
        timeout = aiohttp.ClientTimeout(total=_ANSWER_S)
        async with http.post(where, json=body, headers=headers, timeout=timeout) as answer:
            text = await answer.read()
        return answer.status, problem_in(text)


def strings_in(told: Any) -> list[str]:
    """The strings of a list; none of what is no list."""
    return [each for each in told if isinstance(each, str)] if isinstance(told, list) else []


def problem_in(text: bytes) -> dict[str, Any]:
    """The members of an answer; none of what is no JSON object."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError:
        return {}
