"""Seen from outside: every answer is counted, and a trace that comes with a request goes on with what it begins."""

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler

from ...observe.telemetry import Telemetry
from ...trace_context import REQUEST_TRACE, ActiveSpan, from_headers, start_span
from ..problems import CODE
from ..stage import CLIENT

#: A header's name that need not be made small each time it is looked for.
_TRACE = type(hdrs.VARY)("traceparent")
#: POSTs that only look, for as long as somebody likes: they are no step of anything.
_LOOKING = ":wait"


class Observer:
    """Counts answers and opens spans. Without telemetry it only passes a trace on."""

    def __init__(self, telemetry: Telemetry | None) -> None:
        self._of = telemetry.metrics if telemetry is not None and telemetry.counts else None
        self._traces = telemetry is not None and telemetry.traces

    def is_traced(self, request: web.Request) -> bool:
        """A trace goes along with it, or may begin with it; else to `count` its answer is all there is to do."""
        return self._traces or _TRACE in request.headers

    @web.middleware
    async def watch(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """The outermost of all: what it sees is what is sent."""
        carried = from_headers(request.headers) if _TRACE in request.headers else {}
        span = self._begin(request, carried) if self._traces else None
        if not carried and span is None:
            response = await handler(request)
        else:
            response = await self._carrying(request, handler, carried, span)
        self.count(request, response, _route(request))
        return response

    async def _carrying(
        self, request: web.Request, handler: Handler, carried: dict[str, str], span: ActiveSpan | None
    ) -> web.StreamResponse:
        before = REQUEST_TRACE.set(carried if span is None else span.carrier())
        status = 0
        try:
            response = await handler(request)
            status = response.status
            return response
        finally:
            REQUEST_TRACE.reset(before)
            if span is not None:
                span.note(status=status)
                span.end(None if 0 < status < 500 else f"answered {status}")

    def _begin(self, request: web.Request, carried: dict[str, str]) -> ActiveSpan | None:
        """A span for what changes something; looking is not worth one."""
        path = request.rel_url.raw_path
        if request.method != "POST" or not path.startswith("/api/") or path.endswith(_LOOKING):
            return None
        return start_span(f"POST {_route(request)}", "server", carried, path=path)

    def count(self, request: web.Request, response: web.StreamResponse, route: str) -> None:
        """One more answer. The route is the path as it was declared."""
        if self._of is None:
            return
        status = response.status
        self._of.requests.add((request.method, route, str(status)))
        if status >= 400:
            self._count_refusal(request, status, route, response.get(CODE, ""))

    def _count_refusal(self, request: web.Request, status: int, route: str, code: str) -> None:
        assert self._of is not None
        door = (
            "worker" if route.startswith("/_worker") else "client" if route.startswith("/api") else "public"
        )
        if code in ("signature_wrong", "signature_missing"):
            self._of.signature_invalid.add()
        if status == 401:
            self._of.auth_failures.add((door, code))
        elif status == 403:
            self._of.identity_mismatch.add((door, code))
        elif status == 429:
            client = request.get(CLIENT)
            self._of.rate_limited.add((door if client is None else f"{door}:{client.name}", route))
        elif status == 500:
            self._of.request_errors.add()


def _route(request: web.Request) -> str:
    """The path as it was declared: ids in it would make a series of each."""
    resource = request.match_info.route.resource
    return "none" if resource is None else resource.canonical
