"""Enrolment: how a worker registers with an orchestrator."""

from collections.abc import Sequence
from typing import Any

import aiohttp
import msgspec

from ..serialization import safe_text
from .voice import LEAST_LEASE_S, Refused, Session
from .wallet import Wallet, problem_in, strings_in

#: How long a registration may take.
_REGISTER_S = 15.0
#: The lease, where an orchestrator does not say.
_USUAL_LEASE_S = 30.0


async def enrol(
    http: aiohttp.ClientSession,
    url: str,
    wallet: Wallet,
    configured: str,
    worker_id: str,
    body: dict[str, Any],
) -> tuple[Session, Sequence[str]]:
    """Register; returns the session, and the attempts that the orchestrator wants stopped.

    Refused when it does not let us in, ClientError (or OSError, TimeoutError) for everything else.
    """
    await wallet.open(http, url, configured)
    status, text = await _post(http, url, wallet, body)
    if status == 401 and await _try_again(http, url, wallet, text):
        status, text = await _post(http, url, wallet, body)
    if status in (401, 403):
        raise Refused(_refusal(status, wallet, text), str(problem_in(text).get("code", "")))
    if status != 200:
        told = safe_text(text.decode(errors="replace"))[:300]
        raise aiohttp.ClientError(f"HTTP {status} for the registration: {told}")
    try:
        return _read(url, wallet, worker_id, msgspec.json.decode(text, type=dict[str, Any]))
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as error:
        raise aiohttp.ClientError(f"the answer to the registration makes no sense: {error}") from None


async def _post(
    http: aiohttp.ClientSession, url: str, wallet: Wallet, body: dict[str, Any]
) -> tuple[int, bytes]:
    headers = wallet.headers | {"Content-Type": "application/json"}
    timeout = aiohttp.ClientTimeout(total=_REGISTER_S)
    data = msgspec.json.encode(wallet.signed(body))
    async with http.post(
        f"{url}/_worker/workers/register", data=data, headers=headers, timeout=timeout
    ) as answer:
        return answer.status, await answer.read()


async def _try_again(http: aiohttp.ClientSession, url: str, wallet: Wallet, refusal: bytes) -> bool:
    """There is something else that we can do: sign, where that is wanted, or come with a newer token."""
    if problem_in(refusal).get("code") == "signature_missing" and not wallet.signs:
        wallet.signs = True
        if not wallet.has_key:
            await wallet.log_in(http, url)
        return True
    return await wallet.renew(http, url, wallet.token)


def _refusal(status: int, wallet: Wallet, text: bytes) -> str:
    problem = problem_in(text)
    if status == 401 and problem.get("code") in ("token_unknown", "token_missing", None):
        had = "it does not know the token that we sent" if wallet.token else "we had no token to send"
        return f"HTTP 401: {had}"
    return f"HTTP {status}: {safe_text(str(problem.get('detail', 'no reason was given')))[:300]}"


def _read(url: str, wallet: Wallet, worker_id: str, told: dict[str, Any]) -> tuple[Session, Sequence[str]]:
    session = Session(
        url=url,
        wallet=wallet,
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
