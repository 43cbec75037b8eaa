"""Is it there, is it alive, can it work: for people, probes and load balancers. No token."""

from aiohttp import web

from .problems import Problem
from .stage import STAGE

routes = web.RouteTableDef()


@routes.get("/_public/status")
@routes.get("/_public/live")
async def live(request: web.Request) -> web.Response:
    """The process answers."""
    return web.json_response({"status": "ok"})


@routes.get("/_public/ready")
async def ready(request: web.Request) -> web.Response:
    """It takes work: started, and neither stopping nor failed."""
    if not request.config_dict[STAGE].is_ready():
        raise Problem(503, "not_ready", "the orchestrator has not started yet, or stops")
    return web.json_response({"status": "ready"})
