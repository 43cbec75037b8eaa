"""The outermost middleware: whatever goes wrong below becomes a problem, and only our faults a traceback."""

import logging

from aiohttp import ClientConnectionResetError, web
from aiohttp.typedefs import Handler

from ...errors import RegistaError
from ..problems import Problem, problem_of, response_of

log = logging.getLogger("regista.api")

#: aiohttp's own refusals, by status.
_CODES = {404: "not_found", 405: "method_not_allowed", 413: "body_too_large", 415: "unsupported_media_type"}


@web.middleware
async def errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn exceptions into problems."""
    try:
        return await handler(request)
    except Problem as problem:
        return response_of(problem)
    except RegistaError as error:
        known = problem_of(error)
        if known is None:
            log.exception("%s %s failed", request.method, request.path, extra={"action": "request_failed"})
            known = Problem(500, error.code, "an error of the orchestrator; its log says more")
        return response_of(known)
    except web.HTTPException as refusal:
        if refusal.status < 400:
            raise
        code = _CODES.get(refusal.status, f"http_{refusal.status}")
        allow = {"Allow": refusal.headers["Allow"]} if "Allow" in refusal.headers else {}
        return response_of(Problem(refusal.status, code, _words(request, refusal), headers=allow))
    except ClientConnectionResetError:
        # Whoever asked has hung up, so it does not matter what is answered; it is no error of ours.
        log.debug("%s %s: hung up", request.method, request.path, extra={"action": "hung_up"})
        return response_of(Problem(400, "hung_up", "the connection was closed before the answer"))
    except Exception:
        log.exception("%s %s failed", request.method, request.path, extra={"action": "request_failed"})
        return response_of(Problem(500, "internal_error", "an error of the orchestrator; its log says more"))


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
