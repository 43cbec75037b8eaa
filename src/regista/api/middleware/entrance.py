"""Entrance: what every request passes on its way in and out.

One middleware with all the steps in order: a middleware for each would be a coroutine for each, and together
these cost more than the steps.
"""

from aiohttp import web
from aiohttp.typedefs import Handler

from ...errors import RegistaError
from ...model import ClientConfig
from ..destinations import Destination, Destinations
from ..problems import Problem, problem_of
from ..stage import CLIENT, Stage
from ..turned_away import TurnedAway
from .client_auth import let_in
from .compression import is_large, pack
from .errors import refusal
from .known_query import check_query
from .ratelimit import Gate, tell


class Entrance:
    """Knows who may come in, and how often."""

    def __init__(self, stage: Stage, gate: Gate) -> None:
        self._doors = stage.doors
        self._gate = gate
        self.destinations = Destinations()
        self._turned_away = TurnedAway(stage.clock.elapsed)

    @web.middleware
    async def lead(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """The entrance as a middleware, for applications that ours is part of."""
        return await self.serve(request, handler, self.destinations.of(request.match_info.route))

    async def serve(self, request: web.Request, handler: Handler, to: Destination) -> web.StreamResponse:
        """Let in whoever may, and answer: with a problem where something went wrong."""
        gate = self._gate
        mark: int | None = None
        try:
            if to.is_for_clients:
                mark = gate.greet(request)
                client = request[CLIENT] = self._client(request, mark)
                unsure = gate.client(request, client, to)
                if unsure is not None:
                    await gate.ask_store(request, unsure)
                if request.query_string:
                    check_query(request, to.query)
            elif to.is_for_workers:
                mark = gate.greet(request, worker=True)  # the handler knows how workers prove who they are
            else:
                await gate.public(request)
            response = await handler(request)
            if mark is not None and mark not in gate.known:
                gate.part(request, mark)
        except Exception as error:  # noqa: BLE001  # the outermost turn of a request; `refusal` logs our own faults
            problem = problem_of(error) if isinstance(error, RegistaError) else error
            if isinstance(problem, Problem):
                gate.refused(request, problem, mark)
                if mark is not None and to.is_for_workers:
                    self._turned_away.tell(request, problem)
            response = refusal(request, error)
        if not response.prepared:
            if is_large(response):
                await pack(request, response)
            tell(request, response)
        return response

    def _client(self, request: web.Request, mark: int) -> ClientConfig:
        """Who asks. Over a connection of ours that is found out once.

        With the same mark it is the same one, as long as nobody is let in or shut out.
        """
        line, guests = request.protocol, self._doors.guests
        proof = getattr(line, "proof", None)
        if proof is not None and proof[0] == mark and proof[1] is guests:
            client: ClientConfig = proof[2]
            return client
        client = let_in(request, self._doors)
        if hasattr(line, "proof"):
            line.proof = (mark, guests, client)
        return client
