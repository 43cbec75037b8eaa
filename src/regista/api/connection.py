"""Connections: what comes over them may not even be HTTP. That is refused like anything else, and no error of ours."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong
from aiohttp.web_protocol import RequestHandler

from .problems import Problem, response_of

log = logging.getLogger("regista.api")


class Connection(RequestHandler):
    """One connection of a client."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """A request that could not be read is answered with a problem; anything else is ours, as before."""
        if not isinstance(exc, HttpProcessingError) or request.writer.output_size > 0:
            return super().handle_error(request, status, exc, message)
        log.debug("not HTTP from %s: %s", request.remote, exc, extra={"action": "bad_request"})
        answer = response_of(_problem(exc))
        answer.force_close()
        return answer


def _problem(error: HttpProcessingError) -> Problem:
    if isinstance(error, LineTooLong):
        return Problem(431, "headers_too_large", "the request line or a header is larger than we accept")
    words = (error.message or "this is not HTTP").strip().partition("\n")[0].rstrip(": ")
    return Problem(400, "malformed_request", words)


class Runner(web.AppRunner):
    """Runs an application on connections of ours."""

    def __init__(self, app: web.Application, arguments: dict[str, Any], shutdown_timeout: float) -> None:
        super().__init__(app, shutdown_timeout=shutdown_timeout)
        self._arguments = {name: value for name, value in arguments.items() if name != "handler_cancellation"}

    @property
    def server(self) -> Any:
        """What makes a connection out of a socket."""
        return self._connection if super().server is not None else None

    @property
    def _connection(self) -> Callable[[], Connection]:
        server = super().server
        assert server is not None
        loop = asyncio.get_running_loop()
        return lambda: Connection(server, loop=loop, **self._arguments)
