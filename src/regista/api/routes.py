"""Declares the operations of the API and wraps each handler with the checks of its kind.

The routes of aiohttp and the OpenAPI document are made from the same operations.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from aiohttp import hdrs, web
from aiohttp.http import HttpVersion11
from msgspec import Struct, field

from ..errors import OperatorsOnly, RegistaError
from .auth import AuthFailures, RejectedWorkerLog, authenticate_client
from .authenticator import Authenticator
from .parameters import Parameter, check_query
from .problems import Problem, problem_of
from .rate_limits import RateLimiter
from .stage import CLIENT

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
#: Who calls an operation: a client with its token, a worker with its credentials, or anybody.
Kind = Literal["client", "worker", "public"]

#: Where the client API answers. The first is the one that documents name; the other means the same.
PREFIXES = ("/api/v1", "/api")
#: Methods that change nothing.
READING_METHODS = ("GET", "HEAD")

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
    #: Below the prefixes for clients; as it stands for workers and the public.
    path: str
    handler: Handler
    tag: str
    kind: Kind = "client"
    #: Further paths with the same meaning; documents do not name them.
    also: Sequence[str] = ()
    #: Only for operators: other clients are refused before the body is read.
    operator: bool = False
    #: It changes nothing, so it counts against the limit of reads; None: the method of the request says so.
    read_only: bool | None = None
    #: Its address contains a secret that could be guessed.
    secret_in_url: bool = False
    #: Parameters that are not declared are ignored, not refused.
    ignore_unknown_query: bool = False
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
        own = [prefix + self.path for prefix in PREFIXES] if self.kind == "client" else [self.path]
        return [*own, *self.also]

    def is_read(self, method: str) -> bool:
        """A request with this method changes nothing."""
        return method in READING_METHODS if self.read_only is None else self.read_only


class RouteTable:
    """The operations of one noun, declared by decorators."""

    def __init__(self, tag: str, kind: Kind = "client") -> None:
        self.tag = tag
        self._kind = kind
        self._operations: list[Operation] = []

    def __iter__(self) -> Iterator[Operation]:
        return iter(self._operations)

    def get(self, path: str, **fields: Any) -> Callable[[Handler], Handler]:
        """Declare the handler of GET."""
        return self._declare("GET", path, fields)

    def head(self, path: str, **fields: Any) -> Callable[[Handler], Handler]:
        """Declare the handler of HEAD."""
        return self._declare("HEAD", path, fields)

    def post(self, path: str, **fields: Any) -> Callable[[Handler], Handler]:
        """Declare the handler of POST."""
        return self._declare("POST", path, fields)

    def patch(self, path: str, **fields: Any) -> Callable[[Handler], Handler]:
        """Declare the handler of PATCH."""
        return self._declare("PATCH", path, fields)

    def put(self, path: str, **fields: Any) -> Callable[[Handler], Handler]:
        """Declare the handler of PUT."""
        return self._declare("PUT", path, fields)

    def any_method(self, path: str, **fields: Any) -> Callable[[Handler], Handler]:
        """Declare the handler of every method that no other route takes."""
        return self._declare("*", path, fields)

    def _declare(self, method: str, path: str, fields: dict[str, Any]) -> Callable[[Handler], Handler]:
        def declare(handler: Handler) -> Handler:
            given = {"kind": self._kind, **fields}
            self._operations.append(
                Operation(method=method, path=path, handler=handler, tag=self.tag, **given)
            )
            return handler

        return declare


class AccessControl:
    """Wraps handlers: who may call them, and how often."""

    def __init__(
        self,
        authenticator: Authenticator,
        failures: AuthFailures,
        limiter: RateLimiter,
        log: RejectedWorkerLog,
    ) -> None:
        self._authenticator = authenticator
        self._failures = failures
        self._limiter = limiter
        self._rejected = log

    def wrap(self, operation: Operation) -> Handler:
        """Return the handler of an operation with the checks of its kind before it."""
        match operation.kind:
            case "client":
                return self._client_route(operation)
            case "worker":
                return self._worker_route(operation)
            case "public":
                return self._public_route(operation)

    def _client_route(self, operation: Operation) -> Handler:
        """401, 429 and 403 come before the query and the body are looked at."""

        async def handle(request: web.Request) -> web.StreamResponse:
            mark = self._failures.check(request)
            try:
                client = request[CLIENT] = authenticate_client(request, self._authenticator)
            except Problem as problem:
                self._failures.record(request, problem, mark)
                raise
            self._failures.remember(mark)
            await self._limiter.take_for_client(request, client, read=operation.is_read(request.method))
            if operation.operator and not client.operator:
                raise OperatorsOnly("call this operation")
            if not operation.ignore_unknown_query:
                check_query(request, operation.query)
            return await operation.handler(request)

        return handle

    def _worker_route(self, operation: Operation) -> Handler:
        """The handler itself authenticates: it may need the body for that."""

        async def handle(request: web.Request) -> web.StreamResponse:
            mark = self._failures.check(request, worker=True)
            try:
                response = await operation.handler(request)
            except (Problem, RegistaError) as error:
                problem = problem_of(error) if isinstance(error, RegistaError) else error
                if problem is not None:
                    self._failures.record(request, problem, mark, worker=True)
                    self._rejected.write(request, problem)
                raise
            self._failures.remember_worker(request, mark)
            return response

        return handle

    def _public_route(self, operation: Operation) -> Handler:
        """The number of wrong secrets is checked where the URL contains one; a status page must not depend on it."""

        async def handle(request: web.Request) -> web.StreamResponse:
            await self._limiter.take_for_public(request)
            if not operation.secret_in_url:
                return await operation.handler(request)
            mark = self._failures.check(request)
            try:
                return await operation.handler(request)
            except (Problem, RegistaError) as error:
                problem = problem_of(error) if isinstance(error, RegistaError) else error
                if problem is not None:
                    self._failures.record(request, problem, mark)
                raise

        return handle


def add_route(app: web.Application, method: str, path: str, handler: Handler) -> None:
    """Add a route. `{file}` may contain braces, which aiohttp does not allow in a part of a path by itself."""
    app.router.add_route(method, path.replace("{file}", "{file:[^/]+}"), handler, expect_handler=on_expect)


async def on_expect(request: web.Request) -> None:
    """Send `100 Continue` to a client that waits for it; other expectations are ignored.

    aiohttp's own handler refuses unknown ones with 417, before any middleware and without a problem.
    """
    expected = request.headers[hdrs.EXPECT].lower() == "100-continue"
    if expected and request.version == HttpVersion11 and request.transport is not None:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
