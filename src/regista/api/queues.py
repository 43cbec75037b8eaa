"""Queues over HTTP: what waits, what runs, and since when."""

from datetime import datetime

from aiohttp import web
from msgspec import Struct

from ..wire.pages import Page
from . import view
from .operations import Operations
from .stage import CLIENT, STAGE, Stage

routes = Operations("queues")


class QueueObject(Struct, frozen=True, kw_only=True):
    """One line of tasks. `oldest` is the age in seconds of the task that waits longest."""

    name: str
    waiting: int
    running: int
    oldest: float | None
    #: Workers that take tasks from it.
    workers: int


class Dashboard(Struct, frozen=True):
    """Counts for a first glance."""

    workers: dict[str, int]
    tasks: dict[str, int]


class _Line:
    """A queue while it is counted."""

    __slots__ = ("oldest", "running", "waiting", "workers")

    def __init__(self) -> None:
        self.waiting = self.running = 0
        #: The ids of those who serve it.
        self.workers: set[str] = set()
        self.oldest: datetime | None = None


@routes.get("/queues", answers={200: Page[QueueObject]})
async def find(request: web.Request) -> web.Response:
    """List the queues, by name.

    Those in which a task waits or from which one runs, and those that a connected worker serves. Tasks are
    counted for you alone; an operator counts everybody's.
    """
    stage = request.app[STAGE]
    client = request[CLIENT]
    lines = await _lines(stage, None if client.operator else client.name)
    return view.json(Page([_object(name, lines[name], stage) for name in sorted(lines)], None))


@routes.get("/dashboard", answers={200: Dashboard})
async def dashboard(request: web.Request) -> web.Response:
    """Count workers by state, and tasks that wait and run."""
    stage = request.app[STAGE]
    client = request[CLIENT]
    lines = (await _lines(stage, None if client.operator else client.name)).values()
    workers: dict[str, int] = {"total": 0}
    for facts in await stage.workers.describe():
        workers["total"] += 1
        workers[facts.state] = workers.get(facts.state, 0) + 1
    tasks = {"waiting": sum(line.waiting for line in lines), "running": sum(line.running for line in lines)}
    return view.json(Dashboard(workers, tasks))


def _object(name: str, line: _Line, stage: Stage) -> QueueObject:
    age = None if line.oldest is None else max(0.0, (stage.clock.now() - line.oldest).total_seconds())
    return QueueObject(
        name=name, waiting=line.waiting, running=line.running, oldest=age, workers=len(line.workers)
    )


async def _lines(stage: Stage, client: str | None) -> dict[str, _Line]:
    lines: dict[str, _Line] = {}
    #: Skill → those who have it and serve any queue.
    anywhere: dict[str, set[str]] = {}
    for facts in await stage.workers.describe():
        worker = facts.worker
        for name in worker.skills if worker.queues is None else worker.queues:
            # Without a queue of its own, a task waits in the queue of its type.
            lines.setdefault(name, _Line()).workers.add(worker.id)
        for skill in worker.skills if worker.queues is None else ():
            anywhere.setdefault(skill, set()).add(worker.id)
    for status in await stage.storage.lanes():
        if client in (None, status.client):
            line = lines.setdefault(status.lane.queue, _Line())
            line.workers |= anywhere.get(status.lane.type, set())
            line.waiting += status.waiting
            if status.oldest is not None and (line.oldest is None or status.oldest < line.oldest):
                line.oldest = status.oldest
    for worker_id in await stage.storage.holders():
        for task in await stage.storage.held_by(worker_id):
            if client in (None, task.client):
                line = lines.setdefault(task.queue or task.type, _Line())
                line.workers |= anywhere.get(task.type, set())
                line.running += 1
    return lines
