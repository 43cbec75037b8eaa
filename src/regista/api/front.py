"""Front: the way of a request to its handler where nobody stands around us.

On our own site it is known beforehand which steps every request takes, so they are taken one after the other. An
application that ours is part of leads requests through its middlewares, to the same steps.
"""

import functools

from aiohttp import hdrs, web

from .destinations import Destination
from .middleware.entrance import Entrance
from .middleware.observed import Observer
from .router import Router, say_continue

#: Ways that are remembered, and the characters of their paths: about a megabyte in all.
_MOST_KNOWN, _LONGEST_KNOWN = 1024, 200
#: What a path says, and where it leads.
Found = tuple[web.UrlMappingMatchInfo, Destination]


class Front:
    """Answers requests of an application that is served by itself."""

    def __init__(self, app: web.Application, observer: Observer, entrance: Entrance) -> None:
        assert isinstance(app.router, Router)
        self._app = app
        self._router = app.router
        self._observer = observer
        self._entrance = entrance
        #: Method and path → where the last requests for them went: a worker polls at the same address all the time.
        self._known: dict[tuple[str, str], Found] = {}

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """The answer to a request."""
        assert isinstance(request, web.Request)
        found = self._find(request)
        if found is None:
            return await self._app._handle(request)  # nobody takes it, and aiohttp knows how to say that
        request._match_info, to = found
        if hdrs.EXPECT in request.headers:
            await say_continue(request)
            await request.writer.drain()
        if self._observer.is_traced(request):
            handler = functools.partial(self._entrance.lead, handler=to.handler)
            return await self._observer.watch(request, handler)
        response = await self._entrance.serve(request, to.handler, to)
        self._observer.count(request, response, to.name)
        return response

    def _find(self, request: web.Request) -> Found | None:
        url = request.rel_url
        asked = request.method, url.raw_path
        found = self._known.get(asked)
        if found is not None:
            return found
        match = self._router.find(request.method, url.path_safe)
        if match is None:
            return None
        match.add_app(self._app)
        match.freeze()
        found = match, self._entrance.destinations.of(match.route)
        if len(url.raw_path) <= _LONGEST_KNOWN:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[asked] = found
        return found


FRONT = web.AppKey("front", Front)
