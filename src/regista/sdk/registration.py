"""Registration: how a worker registers with an orchestrator, and what its operator can do about a rejection."""

from collections.abc import Sequence
from typing import Any

import aiohttp
import msgspec

from ..serialization import safe_text
from .credentials import OrchestratorCredentials, problem_in, strings_in
from .transports.base import LEAST_LEASE_S, RegistrationRejected, WorkerSession

#: How long a registration may take.
_REGISTER_S = 15.0
#: The lease, where an orchestrator does not say.
_USUAL_LEASE_S = 30.0


async def register(
    http: aiohttp.ClientSession,
    url: str,
    credentials: OrchestratorCredentials,
    configured: str,
    worker_id: str,
    body: dict[str, Any],
) -> tuple[WorkerSession, Sequence[str]]:
    """Register; returns the session, and the attempts that the orchestrator wants stopped.

    RegistrationRejected when it does not let us in, ClientError (or OSError, TimeoutError) for everything else.
    """
    await credentials.prepare(http, url, configured)
    status, text = await _post(http, url, credentials, body)
    if status == 401 and await _try_again(http, url, credentials, text):
        status, text = await _post(http, url, credentials, body)
    if status in (401, 403):
        raise RegistrationRejected(_refusal(status, credentials, text), str(problem_in(text).get("code", "")))
    if status != 200:
        told = safe_text(text.decode(errors="replace"))[:300]
        raise aiohttp.ClientError(f"HTTP {status} for the registration: {told}")
    try:
        return _read(url, credentials, worker_id, msgspec.json.decode(text, type=dict[str, Any]))
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as error:
        raise aiohttp.ClientError(f"the answer to the registration makes no sense: {error}") from None


async def _post(
    http: aiohttp.ClientSession, url: str, credentials: OrchestratorCredentials, body: dict[str, Any]
) -> tuple[int, bytes]:
    headers = credentials.headers | {"Content-Type": "application/json"}
    timeout = aiohttp.ClientTimeout(total=_REGISTER_S)
    data = msgspec.json.encode(credentials.sign_body(body))
    async with http.post(
        f"{url}/_worker/workers/register", data=data, headers=headers, timeout=timeout
    ) as answer:
        return answer.status, await answer.read()


async def _try_again(
    http: aiohttp.ClientSession, url: str, credentials: OrchestratorCredentials, refusal: bytes
) -> bool:
    """There is something else that we can do: sign, where that is wanted, or come with a newer token."""
    if problem_in(refusal).get("code") == "signature_missing" and not credentials.signature_required:
        credentials.signature_required = True
        if not credentials.has_key:
            await credentials.log_in(http, url)
        return True
    return await credentials.renew(http, url, credentials.token)


def _refusal(status: int, credentials: OrchestratorCredentials, text: bytes) -> str:
    problem = problem_in(text)
    if status == 401 and problem.get("code") in ("token_unknown", "token_missing", None):
        had = "it does not know the token that we sent" if credentials.token else "we had no token to send"
        return f"HTTP 401: {had}"
    return f"HTTP {status}: {safe_text(str(problem.get('detail', 'no reason was given')))[:300]}"


def _read(
    url: str, credentials: OrchestratorCredentials, worker_id: str, told: dict[str, Any]
) -> tuple[WorkerSession, Sequence[str]]:
    session = WorkerSession(
        url=url,
        credentials=credentials,
        worker_id=worker_id,
        cluster_id=str(told.get("cluster_id") or url),
        number=int(told.get("session") or 0),
        lease_s=max(LEAST_LEASE_S, float(told.get("lease_seconds") or _USUAL_LEASE_S)),
        payloads=_payloads(told.get("payloads")),
    )
    return session, strings_in(told.get("cancel_task_ids"))


def _payloads(told: Any) -> tuple[str, str] | None:
    """The payload store that the orchestrator uses and its owner, if it says both."""
    if not isinstance(told, dict) or not told.get("uri") or not told.get("owner"):
        return None
    return str(told["uri"]), str(told["owner"])


_TOKEN = (
    "set WORKER_TOKEN to the worker token of this orchestrator, or --dir (REGISTA_DIR) to the directory "
    "where it keeps its tokens"
)
_PASSWORD = "have another one made (`regista tokens otp`) and set REGISTA_TOKEN to it"
_SIGNED = "see that both sides have the same token, and that nothing in between changes messages"
_CLOCK = "set the clock of this machine"

#: Code of the problem → advice; for every other one it is the token.
_ADVICE = {
    "password_unknown": _PASSWORD,
    "password_used": _PASSWORD,
    "certificate_missing": "name this worker's certificate with TLS_CERT_PATH and TLS_KEY_PATH",
    "certificate_nameless": "use a certificate whose one common name is the id of this worker",
    "worker_mismatch": "set WORKER_ID to the name that the certificate, the password or the token is for, "
    "or use what was made for this worker",
    "signature_wrong": _SIGNED,
    "timestamp_missing": _CLOCK,
    "timestamp_off": _CLOCK,
}


def hint_for(code: str) -> str:
    """What to do about a refusal with this code."""
    return _ADVICE.get(code, _TOKEN)
