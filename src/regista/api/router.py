"""Router: aiohttp's own, where finding a route costs the same however many there are.

Left to itself aiohttp tries the pattern of every route that begins alike, and nearly all of ours do. Here a path is
followed part by part to the few resources that it can belong to; these are asked in the order in which aiohttp
would ask them, so the answer is the same.
"""

import re

from aiohttp import hdrs, web
from aiohttp.http import HttpVersion11
from msgspec import Struct

from .pathway import Pathway, is_pathway

#: A group of a pattern that takes some of one part of a path, and never a slash.
_WITHIN_A_PART = re.compile(r"\(\?P<(\w+)>\[\^(?:{})?/\]\+\)")
_NAMES = re.compile(r"{(\w+)}")


class Way(Struct, frozen=True, eq=False):
    """A resource, and the paths that it may be asked for."""

    resource: web.AbstractResource
    #: What stands between the slashes; None for anything.
    parts: tuple[str | None, ...]
    #: More may come behind these parts.
    is_open: bool


Ways = tuple[Way, ...]


class Junction:
    """Where a path may have got to, part by part."""

    __slots__ = ("ahead", "here", "otherwise", "simple")

    def __init__(self, here: tuple[web.AbstractResource, ...]) -> None:
        #: Who may answer a path that ends here, the first to ask first.
        self.here = here
        #: The same, where a path and a method are all that they look at; else nobody.
        self.simple = tuple(one for one in here if isinstance(one, web.Resource))
        if len(self.simple) < len(here):
            self.simple = ()
        #: The next part → where it leads; any other leads to `otherwise`.
        self.ahead: dict[str, Junction] = {}
        self.otherwise = self


async def say_continue(request: web.Request) -> None:
    """Tell whoever waits for that word that the body may come. Nothing else that is expected of us means anything.

    aiohttp would refuse it before any of our own steps, so without a problem that says why; and it fails at bytes
    that are no text.
    """
    if request.headers[hdrs.EXPECT].lower() == "100-continue" and request.version == HttpVersion11:
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # the answer itself has not begun


class Router(web.UrlDispatcher):
    """Finds the route of a request."""

    def __init__(self) -> None:
        super().__init__()
        self._start: Junction | None = None

    def freeze(self) -> None:
        """No more routes come. All of them take what is expected of us in our way."""
        super().freeze()
        for route in self.routes():
            route._expect_handler = say_continue

    def add_resource(self, path: str, *, name: str | None = None) -> web.Resource:
        """A resource for this path; the last one, if it is that."""
        last = self._resources[-1] if self._resources else None
        if not is_pathway(path) or (last is not None and last.name == name and last.raw_match(path)):
            return super().add_resource(path, name=name)
        pathway = Pathway(path, name=name)
        self.register_resource(pathway)
        return pathway

    def index_resource(self, resource: web.AbstractResource) -> None:
        """A resource is new, or has a new path: the application was mounted below a prefix."""
        super().index_resource(resource)
        self._start = None

    def find(self, method: str, path: str) -> web.UrlMappingMatchInfo | None:
        """The route of a request, where nobody needs to wait for that; None: `resolve` knows more.

        The path is without quotes (`path_safe`).
        """
        if self._start is None:
            return None
        for resource in self._place(self._start, path).simple:
            found = resource._match(path)
            if found is not None:
                route = resource._routes.get(method, resource._any_route)
                if route is not None:
                    return web.UrlMappingMatchInfo(found, route)
        return None

    def _place(self, place: Junction, path: str) -> Junction:
        for part in path.split("/"):
            place = place.ahead.get(part, place.otherwise)
        return place

    async def resolve(self, request: web.Request) -> web.UrlMappingMatchInfo:
        """The route of a request, or the refusal that stands for none."""
        if self._start is None:
            if not self.frozen or self._matched_sub_app_resources:
                return await super().resolve(request)  # more may come, or not the path alone decides
            self._start = _junction(self._ways(), 0, {})
        for resource in self._place(self._start, request.rel_url.path_safe).here:
            found, _ = await resource.resolve(request)
            if found is not None:
                return found
        nobody = await super().resolve(request)  # aiohttp knows how to say that
        nobody.route._expect_handler = say_continue
        return nobody

    def _ways(self) -> Ways:
        """All of them, in the order in which aiohttp asks: the deepest key first, then as they were added."""
        ranked = sorted(self.resources(), key=lambda one: -len(self._get_resource_index_key(one)))
        return tuple(_way(resource) for resource in ranked)


def _way(resource: web.AbstractResource) -> Way:
    path = resource.canonical
    if isinstance(resource, Pathway):
        return Way(resource, resource.parts, False)
    if isinstance(resource, web.PlainResource):
        return Way(resource, tuple(path.split("/")), False)
    if isinstance(resource, web.DynamicResource):
        within = set(_WITHIN_A_PART.findall(resource.get_info()["pattern"].pattern))
        parts = _parts(path, within)
        return Way(resource, parts, len(parts) <= path.count("/"))
    return Way(resource, tuple(path.rstrip("/").split("/")), True)  # files, or an application within this one


def _parts(path: str, within: set[str]) -> tuple[str | None, ...]:
    """The parts of a path up to the first that may take slashes."""
    parts: list[str | None] = []
    for part in path.split("/"):
        names = _NAMES.findall(part)
        if not within.issuperset(names):
            break
        parts.append(None if names else part)
    return tuple(parts)


def _junction(ways: Ways, depth: int, known: dict[tuple[int, Ways], Junction]) -> Junction:
    """Where one is who has come so many parts along each of these ways. Many roads lead to the same one."""
    junction = known.get((depth, ways))
    if junction is None:
        here = tuple(way.resource for way in ways if len(way.parts) <= depth)
        junction = known[depth, ways] = Junction(here)
        if any(len(way.parts) >= depth for way in ways):  # else all that is left takes anything
            _lead_on(junction, ways, depth, known)
    return junction


def _lead_on(junction: Junction, ways: Ways, depth: int, known: dict[tuple[int, Ways], Junction]) -> None:
    # The next part → the ways that go on with it, in their order; `anything` goes on with all others.
    named: dict[str, list[Way]] = {}
    anything: list[Way] = []
    for way in ways:
        part = way.parts[depth] if depth < len(way.parts) else None
        if part is not None:
            named.setdefault(part, anything.copy()).append(way)
        elif way.is_open or depth < len(way.parts):
            for each in (anything, *named.values()):
                each.append(way)
    after = {part: _junction(tuple(each), depth + 1, known) for part, each in named.items()}
    junction.ahead, junction.otherwise = after, _junction(tuple(anything), depth + 1, known)
