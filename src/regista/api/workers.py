"""Workers over HTTP, for people: who is there, and no new tasks for one of them."""

from datetime import datetime
from typing import Any

from aiohttp import web
from msgspec import Struct

from ..fleet.facts import WorkerFacts
from ..model import ClientConfig
from ..wire.pages import Page
from ..wire.story import Show
from . import bodies, view
from .audit import audit
from .operations import Operations
from .problems import Problem
from .stage import CLIENT, STAGE, Stage

routes = Operations("workers")

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
    return view.json(Page(await _all(request.app[STAGE], request[CLIENT]), None))


@routes.get("/workers/{worker_id}", answers={200: WorkerObject}, problems=_UNKNOWN)
async def get(request: web.Request) -> web.Response:
    """Describe a worker."""
    return view.json(await _one(request))


@routes.post(
    "/workers/{worker_id}/drain",
    body=Drain,
    body_required=False,
    answers={200: WorkerObject},
    problems=_UNKNOWN | {403: "for operators only"},
)
async def drain(request: web.Request) -> web.Response:
    """Give a worker no new tasks.

    What it has in its hands it may finish. `{"on": false}` takes it back. For operators only.
    """
    stage = request.app[STAGE]
    wish = await bodies.take_optional(request, Drain)
    if not request[CLIENT].operator:
        raise Problem(403, "operators_only", "only an operator may drain a worker")
    if not await stage.workers.ask_to_drain(request.match_info["worker_id"], wish.on):
        raise _unknown(request)
    await audit(request, "worker.drain" if wish.on else "worker.undrain", request.match_info["worker_id"])
    return view.json(await _one(request))


async def _one(request: web.Request) -> WorkerObject:
    wanted = request.match_info["worker_id"]
    for worker in await _all(request.app[STAGE], request[CLIENT]):
        if worker.id == wanted:
            return worker
    raise _unknown(request)


def _unknown(request: web.Request) -> Problem:
    return Problem(
        404, "worker_not_found", f"no worker named {request.match_info['worker_id']!r} is known here"
    )


async def _all(stage: Stage, client: ClientConfig) -> list[WorkerObject]:
    show = view.clock_of(stage.config)
    return [_object(facts, client.operator, show) for facts in await stage.workers.describe()]


def _object(facts: WorkerFacts, operator: bool, show: Show) -> WorkerObject:
    worker, profile = facts.worker, facts.worker.profile
    return WorkerObject(
        id=worker.id,
        type=profile.type,
        state=facts.state,
        skills=list(worker.skills),
        queues=None if worker.queues is None else list(worker.queues),
        capacity=worker.capacity,
        free=facts.free,
        running=len(facts.holding),
        # An attempt's id names the job, and the job may be somebody else's.
        holding=list(facts.holding) if operator else [],
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
