"""Operations: every route with what it takes and gives. The router and the OpenAPI document are made from them."""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from aiohttp import hdrs, web
from aiohttp.http import HttpVersion11
from msgspec import Struct, field

from .parameters import Parameter

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Access = Literal["client", "public"]

#: Where the client API answers. The first is the one that documents name; the other means the same.
PREFIXES = ("/api/v1", "/api")


#: How a record's schema is found in the document.
REFS = "#/components/schemas/{name}"


class Schema(dict[str, Any]):
    """A JSON schema written by hand, where no single record says it. `uses` are the records it refers to."""

    def __init__(self, schema: Mapping[str, Any], uses: Iterable[Any] = ()) -> None:
        super().__init__(schema)
        self.uses = tuple(uses)


def ref(record: type[Any]) -> dict[str, Any]:
    """A reference to a record's schema."""
    return {"$ref": REFS.format(name=record.__name__)}


class Media(Struct, frozen=True):
    """An answer that is not JSON."""

    types: tuple[str, ...]
    words: str


class Operation(Struct, frozen=True, kw_only=True):
    """One method of one path."""

    method: str
    #: Below the prefixes for clients; as it stands for the public.
    path: str
    handler: Handler
    tag: str
    #: Further paths with the same meaning; documents do not name them.
    also: Sequence[str] = ()
    access: Access = "client"
    parameters: Sequence[Parameter] = ()
    #: The record that the body is read into; None takes none.
    body: Any = None
    body_required: bool = True
    #: Status → the record that the answer shows, other media, or None for no body.
    answers: Mapping[int, Any] = field(default_factory=lambda: {200: None})
    #: Media types in which the answer may come besides JSON.
    media: Sequence[str] = ()
    #: Further refusals: status → when.
    problems: Mapping[int, str] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """Its name among all."""
        return f"{self.tag}_{self.handler.__name__}"

    @property
    def summary(self) -> str:
        """What it does, in a sentence."""
        return (inspect.getdoc(self.handler) or "").partition("\n")[0]

    @property
    def description(self) -> str:
        """What else there is to know."""
        return (inspect.getdoc(self.handler) or "").partition("\n")[2].strip()

    @property
    def query(self) -> tuple[str, ...]:
        """The names that may stand in its query."""
        return tuple(each.name for each in self.parameters if each.where == "query")

    def paths(self) -> list[str]:
        """Every path that it answers at; the documented one first."""
        own = [self.path] if self.access == "public" else [prefix + self.path for prefix in PREFIXES]
        return [*own, *self.also]


class Operations:
    """The operations of one noun, declared by decorators."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self._found: list[Operation] = []

    def __iter__(self) -> Iterator[Operation]:
        return iter(self._found)

    def get(self, path: str, **facts: Any) -> Callable[[Handler], Handler]:
        """Declare what answers GET."""
        return self._declare("GET", path, facts)

    def post(self, path: str, **facts: Any) -> Callable[[Handler], Handler]:
        """Declare what answers POST."""
        return self._declare("POST", path, facts)

    def _declare(self, method: str, path: str, facts: dict[str, Any]) -> Callable[[Handler], Handler]:
        def declare(handler: Handler) -> Handler:
            operation = Operation(method=method, path=path, handler=handler, tag=self.tag, **facts)
            if operation.access == "client":
                CLIENTS_ONLY.add(handler)
                QUERIES[handler] = operation.query
            self._found.append(operation)
            return handler

        return declare


async def on_expect(request: web.Request) -> None:
    """Send `100 Continue` to a client that waits for it; other expectations are ignored.

    aiohttp's own handler refuses unknown ones with 417, before any middleware and without a problem.
    """
    expected = request.headers[hdrs.EXPECT].lower() == "100-continue"
    if expected and request.version == HttpVersion11 and request.transport is not None:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")


def add_routes(app: web.Application, table: Iterable[web.AbstractRouteDef]) -> None:
    """Add the routes of a table, with `on_expect`."""
    for route in table:
        assert isinstance(route, web.RouteDef)
        app.router.add_route(route.method, route.path, route.handler, expect_handler=on_expect)


#: The handlers that need a client's token.
CLIENTS_ONLY: set[Any] = set()
#: The handlers of clients → what may stand in their query. What the public asks for may carry anything: mail
#: programs and probes hang words of their own on addresses.
QUERIES: dict[Any, tuple[str, ...]] = {}
