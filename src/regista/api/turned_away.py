"""Workers that are turned away: their owner may not look at their log, so ours says it, too."""

import logging
from collections.abc import Callable

from aiohttp import web

from ..workers.protocol.messages import ID_HEADER
from .address import client_address
from .problems import Problem

log = logging.getLogger("regista.workers")

#: No address is told of twice within so many seconds.
_EVERY_S = 60.0
#: Addresses that are remembered; of further ones nothing is said until some are forgotten.
_MOST = 1000
#: Refusals that say who somebody is not. A login that has run out is none: its worker gets the next by itself.
_STATUSES = frozenset({401, 403})
_USUAL = frozenset({"token_expired"})
#: Where the token was not the right one.
_TOKENS = frozenset({"token_missing", "token_unknown"})
_ADVICE = "; give it the WORKER_TOKEN of this orchestrator, or its own of workers.toml"


class TurnedAway:
    """Says in the log who was turned away, and why: at most a line a minute for each address."""

    def __init__(self, elapsed: Callable[[], float]) -> None:
        self._elapsed = elapsed
        self._told: dict[str, float] = {}

    def tell(self, request: web.Request, problem: Problem) -> None:
        """A worker's request was refused. What it brought along to prove who it is, is never written down."""
        if problem.status not in _STATUSES or problem.code in _USUAL:
            return
        address = client_address(request)
        if self._is_news(address):
            worker_id = request.headers.get(ID_HEADER) or request.match_info.get("worker_id") or "unknown"
            log.warning(
                "turned away worker %s from %s: %s (%s)%s",
                worker_id[:128],
                address,
                problem.detail,
                problem.code,
                _ADVICE if problem.code in _TOKENS else "",
                extra={"action": "worker_turned_away", "worker_id": worker_id[:128], "address": address},
            )

    def _is_news(self, address: str) -> bool:
        now = self._elapsed()
        if len(self._told) >= _MOST:
            self._told = {one: at for one, at in self._told.items() if now - at < _EVERY_S}
        last = self._told.get(address)
        if (last is not None and now - last < _EVERY_S) or len(self._told) >= _MOST:
            return False
        self._told[address] = now
        return True
