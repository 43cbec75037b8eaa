"""The one middleware of the API: connection guard, trace, problems, compression and metrics."""

import logging
from collections.abc import Callable

from aiohttp import ClientConnectionResetError, hdrs, web
from aiohttp.typedefs import Handler

from ..errors import RegistaError
from ..observe.telemetry import Telemetry
from ..trace_context import REQUEST_TRACE, ActiveSpan, from_headers, start_span
from .compression import compress_response, is_compressible
from .connection_guard import ConnectionGuards
from .problems import CODE, Problem, problem_of, problem_response
from .responses import abort_connection
from .routes import Operation
from .stage import CLIENT

log = logging.getLogger("regista.api")

#: aiohttp's own refusals, by status.
HTTP_CODES = {
    404: "not_found",
    405: "method_not_allowed",
    413: "body_too_large",
    415: "unsupported_media_type",
}

FindOperation = Callable[[web.Request], Operation | None]


class RequestMiddleware:
    """Runs around every handler. `find_operation` returns the operation of a request, or None for unknown paths."""

    def __init__(
        self, guards: ConnectionGuards, find_operation: FindOperation, telemetry: Telemetry | None
    ) -> None:
        self._guards = guards
        self._find_operation = find_operation
        self._metrics = telemetry.metrics if telemetry is not None and telemetry.counts else None
        self._has_spans = telemetry is not None and telemetry.traces

    @web.middleware
    async def handle(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """The response of the handler, or the problem that its exception means."""
        guard = self._guards.find(request)
        if guard is None:  # the application is served by another server
            return await self._answer_and_count(request, handler)
        guard.request_started(request.content)  # before authentication: that may take longer than headers
        try:
            return await self._answer_and_count(request, handler)
        finally:
            guard.request_finished()

    async def _answer_and_count(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        operation = self._find_operation(request)
        trace = from_headers(request.headers)
        span = self._start_span(request, operation, trace)
        if span is not None:
            trace = span.carrier()
        before = REQUEST_TRACE.set(trace)
        status = 0
        try:
            response = await self._answer(request, handler)
            status = response.status
        finally:
            REQUEST_TRACE.reset(before)
            if span is not None:
                span.note(status=status)
                span.end(None if 0 < status < 500 else f"answered {status}")
        self._count(request, response, operation)
        return response

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            response = await handler(request)
        except Exception as error:  # noqa: BLE001  # the outermost turn of a request; our own faults are logged
            response = error_response(request, error)
        if is_compressible(response):
            await compress_response(request, response)
        if _must_close(request, response):
            response.force_close()
        return response

    def _start_span(
        self, request: web.Request, operation: Operation | None, trace: dict[str, str]
    ) -> ActiveSpan | None:
        """A span for a client's POST that changes something; reading is not worth one."""
        if not self._has_spans or request.method != "POST":
            return None
        if operation is None or operation.kind != "client" or operation.is_read(request.method):
            return None
        return start_span(
            f"POST {_route(request, operation)}", "server", trace, path=request.rel_url.raw_path
        )

    def _count(self, request: web.Request, response: web.StreamResponse, operation: Operation | None) -> None:
        if self._metrics is None:
            return
        route = _route(request, operation)
        self._metrics.requests.add((request.method, route, str(response.status)))
        if response.status >= 400:
            kind = "public" if operation is None else operation.kind
            self._count_refusal(request, response, route, kind)

    def _count_refusal(
        self, request: web.Request, response: web.StreamResponse, route: str, kind: str
    ) -> None:
        assert self._metrics is not None
        status, code = response.status, response.get(CODE, "")
        if code in ("signature_wrong", "signature_missing"):
            self._metrics.signature_invalid.add()
        if status == 401:
            self._metrics.auth_failures.add((kind, code))
        elif status == 403:
            self._metrics.identity_mismatch.add((kind, code))
        elif status == 429:
            client = request.get(CLIENT)
            self._metrics.rate_limited.add((kind if client is None else f"{kind}:{client.name}", route))
        elif status == 500:
            self._metrics.request_errors.add()


def _route(request: web.Request, operation: Operation | None) -> str:
    """The path as it was declared: ids in it would make a time series of each."""
    resource = request.match_info.route.resource
    return "none" if operation is None or resource is None else resource.canonical


def _must_close(request: web.Request, response: web.StreamResponse) -> bool:
    """Where the request ends is uncertain, so the next bytes on this connection must not be read as another one."""
    if request.content.exception() is not None:
        return True
    if request.headers.get(hdrs.TRANSFER_ENCODING, "chunked").strip().lower() != "chunked":
        return True
    return hdrs.UPGRADE in request.headers and response.status != 101


def error_response(request: web.Request, error: Exception) -> web.Response:
    """The response that an exception means; a redirect is raised again.

    A response that was begun is cut off: a second one would be read as its rest.
    """
    if request.writer.output_size > 0:
        abort_connection(request)  # what is returned below is counted, and not sent
    elif isinstance(error, web.HTTPException) and error.status < 400:
        raise error
    return problem_response(_problem(request, error))


def _problem(request: web.Request, error: Exception) -> Problem:
    match error:
        case Problem():
            return error
        case RegistaError() if (known := problem_of(error)) is not None:
            return known
        case web.HTTPException():
            code = HTTP_CODES.get(error.status, f"http_{error.status}")
            allow = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
            return Problem(error.status, code, _detail(request, error), headers=allow)
        case ClientConnectionResetError():
            # The client has disconnected, so the response does not matter; it is no error of ours.
            log.debug(
                "%s %s: disconnected", request.method, request.path, extra={"action": "client_disconnected"}
            )
            return Problem(400, "client_disconnected", "the connection was closed before the answer")
    log.exception("%s %s failed", request.method, request.path, extra={"action": "request_failed"})
    if isinstance(error, RegistaError):
        return Problem(500, error.code, "an error of the orchestrator; its log says more")
    return Problem(500, "internal_error", "an error of the orchestrator; its log says more")


def _detail(request: web.Request, error: web.HTTPException) -> str:
    match error.status:
        case 404:
            return f"there is nothing at {request.path}"
        case 405:
            return f"{request.path} does not take {request.method}; it takes {error.headers.get('Allow', 'nothing')}"
        case 413:
            return "the body is larger than this orchestrator accepts"
        case _:
            return error.text or error.reason
