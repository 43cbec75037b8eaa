"""What the documents promise beside our own paths: a blueprint's endpoint, and the common routes under its version."""

import functools
from typing import Any

from aiohttp import web
from msgspec import Struct, field

from ..blueprint.registry import endpoint_version
from ..engines.base import Submission
from ..schemas.jobs import Accepted, Positive, Text, WebhookUrl
from . import bodies, parameters, view
from .allowance import allowance
from .callers import caller_of
from .middleware.known_query import check_query
from .operations import CLIENTS_ONLY, QUERIES, Handler
from .stage import CLIENT, STAGE

#: How the paths of the routes end that take whatever no other route takes.
CATCH_ALL = "/{tail}"
#: Any of these says that the body is an order; without them it is the data itself.
_ORDERS = frozenset({"initial_data", "webhook_url", "dispatch_timeout", "result_timeout"})


class Order(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job of one blueprint, as the documents ask for it."""

    initial_data: dict[str, Any] = field(default_factory=dict)
    webhook_url: WebhookUrl | None = None
    dispatch_timeout: Positive | None = None
    result_timeout: Positive | None = None
    idempotency_key: Text | None = None
    priority: float = 0.0
    search_attributes: dict[str, Any] = field(default_factory=dict)


async def anything_else(request: web.Request) -> web.StreamResponse:
    """Whatever no other route takes: a blueprint's own endpoint, or nothing."""
    stage = request.app[STAGE]
    blueprint = stage.library.find_by_path(
        _tail(request).strip("/")
    )  # asked anew each time: blueprints come while we serve
    if blueprint is None or request.method != "POST":
        raise await _not_so(request, set() if blueprint is None else {"POST"})
    order = _order(await bodies.read(request))
    job = await stage.engine.submit(
        Submission(
            blueprint=blueprint.name,
            input=order.initial_data,
            client=request[CLIENT].name,
            idempotency_key=parameters.idempotency_key(request, order.idempotency_key),
            priority=order.priority,
            dispatch_timeout_s=order.dispatch_timeout,
            result_timeout_s=order.result_timeout,
            webhook_url=order.webhook_url,
            search_attributes=order.search_attributes,
        ),
        allowance(request),
    )
    stage.services.audit.log_submission(caller_of(request), job.id)
    return view.json(Accepted("accepted", job.id), 202)


CLIENTS_ONLY.add(anything_else)


async def unknown_path(request: web.Request) -> web.StreamResponse:
    """Answer 404, or 405 where the path is known under another method."""
    raise await _not_so(request, set())


def _order(body: bytes) -> Order:
    data = bodies.parse(body, dict[str, Any]) if body else {}
    return bodies.parse(body, Order) if _ORDERS & data.keys() else Order(initial_data=data)


def _tail(request: web.Request) -> str:
    """The path below `/api/`, wherever the application is mounted."""
    prefix, _, _ = _pattern(request).partition("/api/{")
    return request.path.removeprefix(prefix).removeprefix("/api/")


def _pattern(request: web.Request) -> str:
    resource = request.match_info.route.resource
    return resource.canonical if resource is not None else ""


async def _not_so(request: web.Request, also: set[str]) -> Exception:
    """404, or 405 where the path is taken under another method: by one of ours, or under what is `also` allowed."""
    allowed = also
    for resource in request.app.router.resources():
        if "/api/{" not in resource.canonical and not resource.canonical.endswith(CATCH_ALL):
            allowed = allowed | (await resource.resolve(request))[1]
    if allowed:
        return web.HTTPMethodNotAllowed(request.method, sorted(allowed))
    return web.HTTPNotFound()


def under_version(handler: Handler) -> Handler:
    """The same route below the version of some blueprint, where clients of the documents look for it."""

    @functools.wraps(handler)
    async def versioned(request: web.Request) -> web.StreamResponse:
        stage = request.app[STAGE]
        versions = {endpoint_version(one) for one in stage.library.blueprints() if one.api_endpoint}
        if request.match_info["version"] not in versions:
            return await anything_else(request)
        check_query(request, QUERIES.get(handler))
        answer = await handler(request)
        if request.path.endswith("/cancel") and answer.status == 200:
            return view.json({"status": "cancellation_request_accepted"})
        return answer

    if handler in CLIENTS_ONLY:
        CLIENTS_ONLY.add(versioned)
    return versioned
