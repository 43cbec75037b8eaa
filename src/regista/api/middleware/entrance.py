"""Entrance: what every request passes on its way in and out.

One middleware with all the steps in order: a middleware for each would be a coroutine for each, and together
these cost more than the steps.
"""

from aiohttp import web
from aiohttp.typedefs import Handler

from ..operations import CLIENTS_ONLY
from ..problems import Problem
from ..stage import CLIENT, Stage
from ..turned_away import TurnedAway
from .client_auth import let_in
from .compression import is_large, pack
from .errors import refusal
from .known_query import check_query
from .ratelimit import Gate, is_for_workers, tell


class Entrance:
    """Knows who may come in, and how often."""

    def __init__(self, stage: Stage, gate: Gate) -> None:
        self._doors = stage.doors
        self._gate = gate
        self._turned_away = TurnedAway(stage.clock.elapsed)

    @web.middleware
    async def lead(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Let in whoever may, and answer: with a problem where something went wrong."""
        gate = self._gate
        mark: int | None = None
        try:
            target = request.match_info.handler
            if target in CLIENTS_ONLY:
                mark = gate.greet(request)
                client = request[CLIENT] = let_in(request, self._doors)
                unsure = gate.client(request, client)
                if unsure is not None:
                    await gate.ask_store(request, unsure)
                check_query(request, target)
            elif is_for_workers(request):
                mark = gate.greet(request, worker=True)  # the handler knows how workers prove who they are
            else:
                await gate.public(request)
            response = await handler(request)
            if mark is not None:
                gate.part(request, mark)
        except Exception as error:  # noqa: BLE001  # the outermost turn of a request; `refusal` logs our own faults
            if isinstance(error, Problem):
                gate.refused(request, error, mark)
                if mark is not None and is_for_workers(request):
                    self._turned_away.tell(request, error)
            response = refusal(request, error)
        if is_large(response):
            await pack(request, response)
        if not response.prepared:
            tell(request, response)
        return response
