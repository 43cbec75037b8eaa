"""OrchestratorCredentials: how a worker authenticates: a fixed token, or a login that is renewed before it expires.

The first request exchanges a one-time password (REGISTA_TOKEN) for a login. With WORKER_USE_STS it does the same with
the configured token. The login lives in this process only.
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
from .http import Reply, send
from .transports.base import RegistrationRejected

log = logging.getLogger("regista.worker")

#: The share of a token's life after which the next one is fetched.
_RENEW_AFTER = 0.8
#: The pause after a renewal that failed, and the shortest between two.
_RETRY_RENEWAL_S = 5.0
_MIN_RENEWAL_S = 0.1


class _Tokens(Struct, frozen=True):
    """The answer to a request for tokens."""

    access_token: str
    expires_in: float
    refresh_token: str = ""


class OrchestratorCredentials:
    """The credentials of one worker id at one store. Concurrent callers wait for the same login or renewal."""

    def __init__(self, worker_id: str, config: WorkerConfig, password: str = "") -> None:
        self._worker_id = worker_id
        self._wants_login = config.use_sts or bool(password)
        self._password = password
        self._has_certificate = bool(config.tls_cert_path)
        #: The configured token, as it was at the last try.
        self._configured = ""
        self._tokens: _Tokens | None = None
        self._renew_at = 0.0
        #: Secret, and the same when a request is sent again: the orchestrator then repeats its answer.
        self._request_id = secrets.token_urlsafe(16)
        self._lock = asyncio.Lock()
        #: The orchestrator wants messages to be signed.
        self.signature_required = False

    @property
    def token(self) -> str:
        """The token to send now."""
        return self._configured if self._tokens is None else self._tokens.access_token

    @property
    def is_short_lived(self) -> bool:
        """The token is that of a login, which must be renewed."""
        return self._tokens is not None

    @property
    def has_key(self) -> bool:
        """The worker can sign. With a certificate it may have a token that the orchestrator does not know, or none."""
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

    async def prepare(self, client: aiohttp.ClientSession, url: str, configured: str) -> None:
        """Make sure that there is a valid login, where one is wanted.

        Raises RegistrationRejected when the login is refused, and as `send` when no answer comes.
        """
        self._configured = configured
        async with self._lock:
            if self._tokens is not None and asyncio.get_running_loop().time() >= self._renew_at:
                await self._renew(client, url)
            if self._tokens is None and self._wants_login:
                await self._log_in(client, url)

    async def renew(self, client: aiohttp.ClientSession, url: str, stale: str) -> bool:
        """After a 401 for the token `stale`: True when there is another one to try."""
        async with self._lock:
            if self._tokens is not None and self.token == stale:
                await self._renew(client, url)
            return self.token not in ("", stale)

    async def refresh_forever(self, client: aiohttp.ClientSession, url: str) -> None:
        """Renew the login whenever it is time. Returns when the login has ended; the caller may cancel it."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(max(_MIN_RENEWAL_S, self._renew_at - loop.time()))
            try:
                async with self._lock:
                    if self._tokens is not None and loop.time() >= self._renew_at:
                        await self._renew(client, url)
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                log.debug("the login is not renewed yet: %s", safe_text(error))
                await asyncio.sleep(_RETRY_RENEWAL_S)
            except Exception:
                log.exception("renewing the login failed; it is tried again")
                await asyncio.sleep(_RETRY_RENEWAL_S)
            if self._tokens is None:
                return  # the next registration finds out what is left

    async def log_in(self, client: aiohttp.ClientSession, url: str) -> None:
        """Get a login now: a worker that has a certificate alone needs one to sign with."""
        async with self._lock:
            if self._tokens is None:
                await self._log_in(client, url)

    async def _log_in(self, client: aiohttp.ClientSession, url: str) -> None:
        secret = self._password or self._configured
        body = {"worker_id": self._worker_id, "request_id": self._request_id}
        reply = await self._post(client, f"{url}/_worker/auth/token", secret, body)
        status = reply.status
        if status == 200:
            self._store(reply)
            self._password = ""  # it is valid once
        elif status in (401, 403):
            answer = reply.json
            detail = answer.get("detail", "no reason was given")
            raise RegistrationRejected(f"HTTP {status}: {detail}", str(answer.get("code", "")))
        elif self._password or status == 429 or (status >= 500 and status != 501):  # not now
            used = "a one-time password" if self._password else "a login"
            raise aiohttp.ClientError(f"HTTP {status} for {used}")
        else:
            self._wants_login = False  # the orchestrator gives out none: the configured token does

    async def _renew(self, client: aiohttp.ClientSession, url: str) -> None:
        """Fetch the next pair of tokens. There is none when the orchestrator has ended the login."""
        assert self._tokens is not None
        body = {"refresh_token": self._tokens.refresh_token, "request_id": self._request_id}
        where = f"{url}/_worker/auth/token/refresh"
        reply = await self._post(client, where, self._tokens.access_token, body)
        if reply.status == 200:
            self._store(reply)
        elif reply.status in (400, 401, 403, 404, 501):
            reason = reply.json.get("detail", f"HTTP {reply.status}")
            log.warning("the login has ended: %s", reason, extra={"action": "login_over"})
            self._tokens = None
        else:
            raise aiohttp.ClientError(f"HTTP {reply.status} for a new token")

    def _store(self, reply: Reply) -> None:
        try:
            self._tokens = msgspec.convert(reply.json, _Tokens)
        except msgspec.ValidationError as error:
            raise aiohttp.ClientError(f"invalid answer to a request for tokens: {error}") from None
        self._request_id = secrets.token_urlsafe(16)
        now = asyncio.get_running_loop().time()
        self._renew_at = now + max(_MIN_RENEWAL_S, self._tokens.expires_in * _RENEW_AFTER)

    async def _post(self, client: aiohttp.ClientSession, url: str, token: str, body: dict[str, str]) -> Reply:
        headers = self.headers | {"X-Worker-Token": token}
        return await send(client, "POST", url, headers, msgspec.json.encode(body))
