"""Registration: how a worker registers with an orchestrator, and what its operator can do about a rejection."""

from collections.abc import Sequence
from typing import Any

import aiohttp
import msgspec
from msgspec import Struct

from ..serialization import safe_text
from .http import OrchestratorHttp, Reply, strings_in
from .transports.base import MIN_LEASE_S, RegistrationRejected

#: The lease, where an orchestrator does not name one.
_DEFAULT_LEASE_S = 30.0


class WorkerSession(Struct, frozen=True):
    """One registration."""

    http: OrchestratorHttp
    worker_id: str
    cluster_id: str
    #: Names the registration; an older one loses by it.
    number: int
    lease_s: float
    #: The payload store of the orchestrator and its owner; None where the orchestrator does not name them.
    payloads: tuple[str, str] | None = None

    @property
    def url(self) -> str:
        return self.http.url

    @property
    def destination(self) -> str:
        """Where results of this registration's tasks may go: the same store, under the same id."""
        return f"{self.cluster_id}/{self.worker_id}"


async def register(
    http: OrchestratorHttp, worker_id: str, body: dict[str, Any]
) -> tuple[WorkerSession, Sequence[str]]:
    """Register the worker. Returns the session, and the attempts that the orchestrator wants stopped.

    Raises RegistrationRejected, and ClientError, OSError or TimeoutError for everything else.
    """
    reply = await http.request("POST", "/_worker/workers/register", body)
    if reply.status in (401, 403):
        raise RegistrationRejected(_rejection(reply, http.credentials.token), str(reply.json.get("code", "")))
    if reply.status != 200:
        text = safe_text(reply.body.decode(errors="replace"))[:300]
        raise aiohttp.ClientError(f"HTTP {reply.status} for the registration: {text}")
    try:
        return _read(http, worker_id, msgspec.json.decode(reply.body, type=dict[str, Any]))
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as error:
        raise aiohttp.ClientError(f"invalid answer to the registration: {error}") from None


def _rejection(reply: Reply, token: str) -> str:
    problem = reply.json
    if reply.status == 401 and problem.get("code") in ("token_unknown", "token_missing", None):
        return f"HTTP 401: {'it does not know the token that was sent' if token else 'no token was sent'}"
    detail = safe_text(str(problem.get("detail", "no reason was given")))[:300]
    return f"HTTP {reply.status}: {detail}"


def _read(
    http: OrchestratorHttp, worker_id: str, answer: dict[str, Any]
) -> tuple[WorkerSession, Sequence[str]]:
    session = WorkerSession(
        http=http,
        worker_id=worker_id,
        cluster_id=str(answer.get("cluster_id") or http.url),
        number=int(answer.get("session") or 0),
        lease_s=max(MIN_LEASE_S, float(answer.get("lease_seconds") or _DEFAULT_LEASE_S)),
        payloads=_payloads(answer.get("payloads")),
    )
    return session, strings_in(answer.get("cancel_task_ids"))


def _payloads(value: Any) -> tuple[str, str] | None:
    """The payload store that the orchestrator uses and its owner, if it names both."""
    if not isinstance(value, dict) or not value.get("uri") or not value.get("owner"):
        return None
    return str(value["uri"]), str(value["owner"])


_TOKEN = (
    "set WORKER_TOKEN to the worker token of this orchestrator, or --dir (REGISTA_DIR) to the directory "
    "where it keeps its tokens"
)
_PASSWORD = "create another one (`regista tokens otp`) and set REGISTA_TOKEN to it"
_SIGNED = "make sure that both sides have the same token, and that no proxy changes messages"
_CLOCK = "set the clock of this machine"

#: Code of the problem → hint. Every other code is about the token.
_HINTS = {
    "password_unknown": _PASSWORD,
    "password_used": _PASSWORD,
    "certificate_missing": "name this worker's certificate with TLS_CERT_PATH and TLS_KEY_PATH",
    "certificate_without_name": "use a certificate whose one common name is the id of this worker",
    "worker_mismatch": "set WORKER_ID to the name that the certificate, the password or the token is for, "
    "or use what was made for this worker",
    "signature_wrong": _SIGNED,
    "timestamp_missing": _CLOCK,
    "timestamp_out_of_range": _CLOCK,
}


def hint_for(code: str) -> str:
    """What the operator can do about a rejection with this code."""
    return _HINTS.get(code, _TOKEN)
