"""Paths of blueprints: a blueprint's own endpoint, the common routes below its version, and unknown paths."""

from typing import Any

from aiohttp import web
from msgspec import Struct, field
from msgspec.structs import replace

from ..engines.base import Submission
from ..schemas.jobs import Accepted, Positive, Text, WebhookUrl
from . import bodies, parameters, view
from .callers import caller_of
from .parameters import check_query
from .routes import Operation
from .stage import STAGE

#: The end of the routes that match every path.
CATCH_ALL = "/{tail}"
#: Any of these says that the body has the members of `EndpointBody`; without them it is the input itself.
_MEMBERS = frozenset({"initial_data", "webhook_url", "dispatch_timeout", "result_timeout"})


class EndpointBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job of one blueprint, as Avtomatika clients ask for it."""

    initial_data: dict[str, Any] = field(default_factory=dict)
    webhook_url: WebhookUrl | None = None
    dispatch_timeout: Positive | None = None
    result_timeout: Positive | None = None
    idempotency_key: Text | None = None
    priority: float = 0.0
    search_attributes: dict[str, Any] = field(default_factory=dict)


async def submit_to_endpoint(request: web.Request) -> web.StreamResponse:
    """Start a job at its blueprint's own path; 404 or 405 where no blueprint has the path."""
    services = request.app[STAGE].services
    # Asked for each request: blueprints may be registered while we serve.
    blueprint = services.blueprints.find_by_path(_tail(request).strip("/"))
    if blueprint is None or request.method != "POST":
        raise await _not_allowed(request, set() if blueprint is None else {"POST"})
    body = _endpoint_body(await bodies.read(request))
    job = await services.jobs.submit_one(
        caller_of(request),
        Submission(
            blueprint=blueprint.name,
            input=body.initial_data,
            idempotency_key=parameters.idempotency_key(request, body.idempotency_key),
            priority=body.priority,
            dispatch_timeout_s=body.dispatch_timeout,
            result_timeout_s=body.result_timeout,
            webhook_url=body.webhook_url,
            search_attributes=body.search_attributes,
        ),
    )
    return view.json(Accepted("accepted", job.id), 202)


async def unknown_path(request: web.Request) -> web.StreamResponse:
    """Answer 404, or 405 where the path is known under another method."""
    raise await _not_allowed(request, set())


def _endpoint_body(body: bytes) -> EndpointBody:
    data = bodies.parse(body, dict[str, Any]) if body else {}
    return bodies.parse(body, EndpointBody) if _MEMBERS & data.keys() else EndpointBody(initial_data=data)


def _tail(request: web.Request) -> str:
    """The path below `/api/`, wherever the application is mounted."""
    prefix, _, _ = _pattern(request).partition("/api/{")
    return request.path.removeprefix(prefix).removeprefix("/api/")


def _pattern(request: web.Request) -> str:
    resource = request.match_info.route.resource
    return resource.canonical if resource is not None else ""


async def _not_allowed(request: web.Request, also: set[str]) -> Exception:
    """404, or 405 where the path is taken under another method: by one of ours, or under what is `also` allowed."""
    allowed = also
    for resource in request.app.router.resources():
        if "/api/{" not in resource.canonical and not resource.canonical.endswith(CATCH_ALL):
            allowed = allowed | (await resource.resolve(request))[1]
    if allowed:
        return web.HTTPMethodNotAllowed(request.method, sorted(allowed))
    return web.HTTPNotFound()


def under_version(operation: Operation) -> Operation:
    """The same operation below the version of some blueprint, where clients of the documents look for it."""

    async def versioned(request: web.Request) -> web.StreamResponse:
        blueprints = request.app[STAGE].services.blueprints
        if not blueprints.has_version_prefix(request.match_info["version"]):
            return await submit_to_endpoint(request)
        check_query(request, operation.query)
        answer = await operation.handler(request)
        if request.path.endswith("/cancel") and answer.status == 200:
            return view.json({"status": "cancellation_request_accepted"})
        return answer

    return replace(
        operation, path="/api/{version}" + operation.path, handler=versioned, ignore_unknown_query=True
    )


#: Clients call the endpoints of blueprints, so unknown paths below `/api` need a token, too.
ENDPOINT = Operation(
    method="*", path="/api/{tail:.*}", handler=submit_to_endpoint, tag="jobs", ignore_unknown_query=True
)
UNKNOWN_PATH = Operation(method="*", path="/{tail:.*}", handler=unknown_path, tag="api", kind="public")
