"""Upkeep over HTTP, for operators: how the chores of an instance have fared."""

from aiohttp import web
from msgspec import Struct
from msgspec.structs import replace

from ..upkeep.loop import ChoreStatus
from . import view
from .callers import caller_of
from .operations import Operations
from .stage import STAGE

routes = Operations("upkeep")


class UpkeepObject(Struct, frozen=True):
    """The chores of the instance that answers, in the order in which they are done."""

    instance: str
    items: list[ChoreStatus]


@routes.get("/upkeep", answers={200: UpkeepObject}, problems={403: "for operators only"})
async def find(request: web.Request) -> web.Response:
    """Tell how the chores have fared: when each last ran, how long that took, what it did, how often it failed. For operators only.

    Of the instance that answers, since its start. A chore that one instance does for all (`needs_leader`) runs where `leading`
    is true.
    """
    stage = request.app[STAGE]
    show = view.clock_of(stage.config)
    items = [
        replace(one, last_run_at=show(one.last_run_at), last_error_at=show(one.last_error_at))
        for one in stage.services.system.chores(caller_of(request))
    ]
    return view.json(UpkeepObject(stage.config.instance_id, items))
