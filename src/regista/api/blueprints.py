"""Blueprints over HTTP: list, describe and draw them."""

from enum import StrEnum

from aiohttp import web
from msgspec import Struct

from ..blueprint import StateMachineBlueprint
from ..blueprint.registry import endpoint_path
from ..schemas.pages import Page
from . import parameters, view
from .callers import caller_of
from .parameters import Parameter
from .routes import Media, RouteTable
from .stage import STAGE

routes = RouteTable("blueprints")

_UNKNOWN = {404: "no such blueprint"}


class GraphFormat(StrEnum):
    """How a graph is drawn."""

    DOT = "dot"
    SVG = "svg"
    PNG = "png"


_TYPES = {
    GraphFormat.DOT: "text/vnd.graphviz",
    GraphFormat.SVG: "image/svg+xml",
    GraphFormat.PNG: "image/png",
}
FORMAT = Parameter(
    name="format",
    words="`svg` and `png` need graphviz where the orchestrator runs.",
    schema={"type": "string", "enum": [each.value for each in GraphFormat], "default": "dot"},
)


class StateObject(Struct, frozen=True, kw_only=True):
    """One state. `targets` is null when a handler computes where it leads: then any state may follow."""

    name: str
    is_start: bool
    is_end: bool
    is_aggregator: bool
    outcome: str | None
    targets: list[str] | None
    conditions: list[str]
    #: "file:line" of each handler.
    handlers: list[str]


class BlueprintObject(Struct, frozen=True, kw_only=True):
    """A blueprint; `version` is a hash of its graph."""

    name: str
    version: str
    start: str
    endpoint: str | None
    states: list[StateObject]


@routes.get("/blueprints", answers={200: Page[BlueprintObject]})
async def find(request: web.Request) -> web.Response:
    """List the blueprints that can be run here, by name."""
    found = request.app[STAGE].services.blueprints.list_all(caller_of(request))
    return view.json(Page([blueprint_view(blueprint) for blueprint in found], None))


@routes.get("/blueprints/{name}", answers={200: BlueprintObject}, problems=_UNKNOWN)
async def get(request: web.Request) -> web.Response:
    """Describe a blueprint: its states, where they lead, and where they are written."""
    blueprints = request.app[STAGE].services.blueprints
    return view.json(blueprint_view(blueprints.get(caller_of(request), request.match_info["name"])))


@routes.get(
    "/blueprints/{name}/graph",
    parameters=[FORMAT],
    answers={200: Media(tuple(_TYPES.values()), "the drawing")},
    problems=_UNKNOWN | {501: "graphviz is missing, and this format needs it"},
)
async def graph(request: web.Request) -> web.Response:
    """Draw a blueprint's graph."""
    blueprints, caller = request.app[STAGE].services.blueprints, caller_of(request)
    name = request.match_info["name"]
    format = parameters.choice(request, "format", GraphFormat) or GraphFormat.DOT
    if format is GraphFormat.DOT:
        return web.Response(text=blueprints.get(caller, name).to_dot(), content_type=_TYPES[format])
    drawing = await blueprints.draw(caller, name, format.value)
    return web.Response(body=drawing, content_type=_TYPES[format])


def blueprint_view(blueprint: StateMachineBlueprint) -> BlueprintObject:
    """The blueprint as a response."""
    handlers: dict[str, list[str]] = {}
    for handler in blueprint.handlers:
        handlers.setdefault(handler.state, []).append(handler.location)
    return BlueprintObject(
        name=blueprint.name,
        version=blueprint.version,
        start=blueprint.graph.start,
        endpoint=endpoint_of(blueprint),
        states=[
            StateObject(
                name=info.name,
                is_start=info.is_start,
                is_end=info.is_end,
                is_aggregator=info.is_aggregator,
                outcome=info.outcome if info.is_end else None,
                targets=None if info.targets is None else sorted(info.targets),
                conditions=list(info.conditions),
                handlers=handlers.get(info.name, []),
            )
            for info in blueprint.graph.states.values()
        ],
    )


def endpoint_of(blueprint: StateMachineBlueprint) -> str | None:
    """The path of its own at which jobs of it can be created, if it has one."""
    place = endpoint_path(blueprint)
    return None if place is None else f"/api/{place}"
