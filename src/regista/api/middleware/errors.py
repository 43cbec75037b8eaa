"""Whatever goes wrong becomes a problem, and only our faults a traceback."""

import logging

from aiohttp import ClientConnectionResetError, web

from ...errors import RegistaError
from ..problems import Problem, problem_of, response_of
from ..sending import cut

log = logging.getLogger("regista.api")

#: aiohttp's own refusals, by status.
_CODES = {404: "not_found", 405: "method_not_allowed", 413: "body_too_large", 415: "unsupported_media_type"}


def refusal(request: web.Request, error: Exception) -> web.Response:
    """The answer that an exception means; a redirect is raised again.

    An answer that was begun is cut: a second one would be read as its rest.
    """
    if request.writer.output_size > 0:
        cut(request)  # what is returned below is counted, and goes nowhere
    elif isinstance(error, web.HTTPException) and error.status < 400:
        raise error
    return response_of(_problem(request, error))


def _problem(request: web.Request, error: Exception) -> Problem:
    match error:
        case Problem():
            return error
        case RegistaError() if (known := problem_of(error)) is not None:
            return known
        case web.HTTPException():
            code = _CODES.get(error.status, f"http_{error.status}")
            allow = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
            return Problem(error.status, code, _words(request, error), headers=allow)
        case ClientConnectionResetError():
            # Whoever asked has hung up, so it does not matter what is answered; it is no error of ours.
            log.debug("%s %s: hung up", request.method, request.path, extra={"action": "client_disconnected"})
            return Problem(400, "client_disconnected", "the connection was closed before the answer")
    log.exception("%s %s failed", request.method, request.path, extra={"action": "request_failed"})
    if isinstance(error, RegistaError):
        return Problem(500, error.code, "an error of the orchestrator; its log says more")
    return Problem(500, "internal_error", "an error of the orchestrator; its log says more")


def _words(request: web.Request, refusal: web.HTTPException) -> str:
    match refusal.status:
        case 404:
            return f"there is nothing at {request.path}"
        case 405:
            return f"{request.path} does not take {request.method}; it takes {refusal.headers.get('Allow', 'nothing')}"
        case 413:
            return "the body is larger than this orchestrator accepts"
        case _:
            return refusal.text or refusal.reason
