"""Workers over HTTP, for clients and operators."""

from datetime import datetime
from typing import Any

from aiohttp import web
from msgspec import Struct

from ..schemas.job_view import TimeFormat
from ..schemas.pages import Page
from ..services.workers import ListedWorker
from . import bodies, view
from .callers import caller_of
from .routes import RouteTable
from .stage import STAGE

routes = RouteTable("workers")

_UNKNOWN = {404: "no such worker"}


class WorkerObject(Struct, frozen=True, kw_only=True):
    """A worker. `holding` names the attempts in its hands; only operators see them."""

    id: str
    type: str
    #: ready, busy, draining, disconnected (its stream is closed) or silent (its lease is over).
    state: str
    skills: list[str]
    #: null serves any queue.
    queues: list[str] | None
    capacity: int
    free: int
    running: int
    holding: list[str]
    transport: str
    hostname: str
    zone: str
    labels: dict[str, Any]
    cost_per_second: float
    #: 0 to 1, from history; 1 is a new worker's.
    reputation: float
    resources: dict[str, Any]
    registered_at: datetime | None
    last_seen: datetime | None
    #: Since when it is disconnected; null while it is not.
    disconnected_at: datetime | None


class Drain(Struct, frozen=True, forbid_unknown_fields=True):
    """No new tasks, or (`on: false`) new ones again."""

    on: bool = True


@routes.get("/workers", answers={200: Page[WorkerObject]})
async def find(request: web.Request) -> web.Response:
    """List the workers that are known, by id."""
    stage = request.app[STAGE]
    show = view.clock_of(stage.config)
    listed = await stage.services.workers.list_all(caller_of(request))
    return view.json(Page([worker_view(each, show) for each in listed], None))


@routes.get("/workers/{worker_id}", answers={200: WorkerObject}, problems=_UNKNOWN)
async def get(request: web.Request) -> web.Response:
    """Describe a worker."""
    stage = request.app[STAGE]
    listed = await stage.services.workers.get(caller_of(request), request.match_info["worker_id"])
    return view.json(worker_view(listed, view.clock_of(stage.config)))


@routes.post(
    "/workers/{worker_id}/drain",
    body=Drain,
    body_required=False,
    answers={200: WorkerObject},
    problems=_UNKNOWN,
    operator=True,
)
async def drain(request: web.Request) -> web.Response:
    """Give a worker no new tasks.

    What it has in its hands it may finish. `{"on": false}` takes it back. For operators only.
    """
    stage = request.app[STAGE]
    body = await bodies.take_optional(request, Drain)
    worker_id = request.match_info["worker_id"]
    listed = await stage.services.workers.drain(caller_of(request), worker_id, body.on)
    return view.json(worker_view(listed, view.clock_of(stage.config)))


def worker_view(listed: ListedWorker, show: TimeFormat) -> WorkerObject:
    """The worker as a response."""
    facts = listed.facts
    worker, profile = facts.worker, facts.worker.profile
    return WorkerObject(
        id=worker.id,
        type=profile.type,
        state=facts.state,
        skills=list(worker.skills),
        queues=None if worker.queues is None else list(worker.queues),
        capacity=worker.capacity,
        free=facts.free,
        running=listed.running,
        holding=list(facts.holding),
        transport=worker.transport,
        hostname=worker.hostname,
        zone=profile.zone,
        labels=profile.labels,
        cost_per_second=profile.cost_per_second,
        reputation=profile.reputation,
        resources={
            "cpu_cores": profile.cpu_cores,
            "ram_gb": profile.ram_gb,
            "disk_gb": profile.disk_gb,
            "gpus": [{"model": gpu.model, "vram_gb": gpu.vram_gb} for gpu in profile.gpus],
            "software": profile.software,
            "models": profile.models,
            "hot": list(profile.hot),
        },
        registered_at=show(worker.registered_at),
        last_seen=show(facts.last_seen),
        disconnected_at=show(facts.since),
    )
