"""Enrolment: how a worker registers with an orchestrator."""

from collections.abc import Sequence
from typing import Any

import aiohttp
import msgspec

from ..plain import words
from .voice import Refused, Session

#: How long a registration may take.
_REGISTER_S = 15.0
#: The lease, where an orchestrator does not say.
_USUAL_LEASE_S = 30.0


async def enrol(
    http: aiohttp.ClientSession, url: str, token: str, worker_id: str, body: dict[str, Any]
) -> tuple[Session, Sequence[str]]:
    """Register; returns the session, and the attempts that the orchestrator wants stopped.

    Refused when it does not let us in, ClientError (or OSError, TimeoutError) for everything else.
    """
    headers = {"X-Worker-Token": token, "X-Worker-ID": worker_id, "Content-Type": "application/json"}
    timeout = aiohttp.ClientTimeout(total=_REGISTER_S)
    where, data = f"{url}/_worker/workers/register", msgspec.json.encode(body)
    async with http.post(where, data=data, headers=headers, timeout=timeout) as answer:
        text = await answer.read()
    if answer.status in (401, 403):
        had = "it does not know the token that we sent" if token else "we had no token to send"
        raise Refused(f"HTTP {answer.status}: {had}" if answer.status == 401 else f"HTTP {answer.status}")
    if answer.status != 200:
        told = words(text.decode(errors="replace"))[:300]
        raise aiohttp.ClientError(f"HTTP {answer.status} for the registration: {told}")
    try:
        return _read(url, token, worker_id, msgspec.json.decode(text, type=dict[str, Any]))
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise aiohttp.ClientError(f"the answer to the registration makes no sense: {error}") from None


def _read(url: str, token: str, worker_id: str, told: dict[str, Any]) -> tuple[Session, Sequence[str]]:
    session = Session(
        url=url,
        token=token,
        worker_id=worker_id,
        cluster_id=str(told.get("cluster_id") or url),
        number=int(told.get("session") or 0),
        lease_s=float(told.get("lease_seconds") or _USUAL_LEASE_S),
    )
    return session, told.get("cancel_task_ids") or ()
