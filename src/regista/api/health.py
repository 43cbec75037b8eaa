"""Is it there, is it alive, can it work: for people, probes and load balancers. No token."""

from functools import cache
from importlib.metadata import version

from aiohttp import web
from msgspec import Struct

from . import view
from .operations import Operations
from .problems import Problem
from .stage import STAGE

routes = Operations("health")


class Health(Struct, frozen=True):
    """How it is."""

    status: str
    version: str


@cache
def our_version() -> str:
    """The version of the installed package."""
    return version("regista")


@routes.get("/_public/status", access="public", answers={200: Health})
async def status(request: web.Request) -> web.Response:
    """Say that the process answers, and which version it is."""
    return view.json(Health("ok", our_version()))


@routes.get("/_public/live", access="public", answers={200: Health})
async def live(request: web.Request) -> web.Response:
    """Say that the process answers: for liveness probes."""
    return view.json(Health("ok", our_version()))


@routes.get(
    "/_public/ready",
    access="public",
    answers={200: Health},
    problems={503: "not started yet, stopping, or without its store"},
)
async def ready(request: web.Request) -> web.Response:
    """Say whether it takes work: for readiness probes.

    Asks the store, so that the answer holds now: `storage_unavailable` while nobody can reach it.
    """
    stage = request.config_dict[STAGE]
    if not stage.is_ready():
        raise Problem(503, "not_ready", "the orchestrator has not started yet, or stops")
    await stage.storage.next_due()  # any cheap question does: what counts is that there is an answer
    return view.json(Health("ready", our_version()))
