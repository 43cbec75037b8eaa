"""Queues over HTTP: waiting and running tasks."""

from datetime import datetime

from aiohttp import web
from msgspec import Struct

from ..schemas.pages import Page
from ..services.queues import QueueCounts, Totals
from . import view
from .callers import caller_of
from .routes import RouteTable
from .stage import STAGE

routes = RouteTable("queues")


class QueueObject(Struct, frozen=True, kw_only=True):
    """One queue of tasks. `oldest` is the age in seconds of the task that waits longest."""

    name: str
    waiting: int
    running: int
    oldest: float | None
    #: Workers that take tasks from it.
    workers: int


@routes.get("/queues", answers={200: Page[QueueObject]})
async def find(request: web.Request) -> web.Response:
    """List the queues, by name.

    Those in which a task waits or from which one runs, and those that a connected worker serves. Tasks are
    counted for you alone; an operator counts everybody's.
    """
    stage = request.app[STAGE]
    queues = await stage.services.queues.list_all(caller_of(request))
    now = stage.clock.now()
    return view.json(Page([queue_view(name, queues[name], now) for name in sorted(queues)], None))


@routes.get("/dashboard", answers={200: Totals})
async def dashboard(request: web.Request) -> web.Response:
    """Count workers by state, and tasks that wait and run."""
    return view.json(await request.app[STAGE].services.queues.totals(caller_of(request)))


def queue_view(name: str, queue: QueueCounts, now: datetime) -> QueueObject:
    oldest_s = None if queue.oldest is None else max(0.0, (now - queue.oldest).total_seconds())
    return QueueObject(
        name=name,
        waiting=queue.waiting,
        running=queue.running,
        oldest=oldest_s,
        workers=len(queue.workers),
    )
