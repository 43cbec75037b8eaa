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
        #: Paths without names → method → where requests for them go. As many as there are routes.
        self._plain: dict[str, dict[str, Found]] = {}

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
        method, url = request.method, request.rel_url
        known = self._plain.get(url.raw_path)
        if known is not None and method in known:
            return known[method]
        match = self._router.find(method, url.path_safe)
        if match is None:
            return None
        match.add_app(self._app)
        match.freeze()
        found = match, self._entrance.destinations.of(match.route)
        if found[1].name == url.raw_path and match.route.method == method:
            self._plain.setdefault(url.raw_path, {})[method] = found
        return found


FRONT = web.AppKey("front", Front)
