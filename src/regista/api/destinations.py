"""Destinations: what is known of each route once and for all, so that no request has to find it out again."""

from typing import Any

from aiohttp.web_urldispatcher import AbstractRoute
from msgspec import Struct

from .operations import CLIENTS_ONLY, QUERIES

#: What paths of workers have in them.
WORKERS = "/_worker/"
#: Methods that change nothing.
LOOKS = ("GET", "HEAD")
#: POSTs that only look, for as long as somebody likes.
_LOOKING = ":wait"


class Destination(Struct, frozen=True, eq=False):
    """Where a request goes."""

    handler: Any
    #: The path as it was declared; `none` for what leads nowhere.
    name: str
    #: It needs a client's token.
    is_for_clients: bool
    #: Only workers get an answer there. By the route: a path may have names in it that others chose.
    is_for_workers: bool
    #: It changes nothing; None: the method of the request says so.
    only_looks: bool | None
    #: What may stand in its query; None: anything.
    query: tuple[str, ...] | None


class Destinations:
    """Of all routes that were asked for. As many as there are routes."""

    def __init__(self) -> None:
        self._known: dict[AbstractRoute, Destination] = {}

    def of(self, route: AbstractRoute) -> Destination:
        """Where this route leads."""
        known = self._known.get(route)
        if known is None:
            known = _destination(route)
            if route.resource is not None:  # else a refusal, made for one request
                self._known[route] = known
        return known


def _destination(route: AbstractRoute) -> Destination:
    name = "none" if route.resource is None else route.resource.canonical
    return Destination(
        handler=route.handler,
        name=name,
        is_for_clients=route.handler in CLIENTS_ONLY,
        is_for_workers=WORKERS in name,
        only_looks=None if route.method == "*" else route.method in LOOKS or name.endswith(_LOOKING),
        query=QUERIES.get(route.handler),
    )
