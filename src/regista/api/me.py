"""Who asks: the client as the orchestrator knows it, and what it may still have."""

from datetime import datetime

from aiohttp import web
from msgspec import Struct

from . import view
from .allowance import allowance
from .operations import Operations
from .stage import CLIENT, STAGE

routes = Operations("me")


class QuotaObject(Struct, frozen=True, kw_only=True):
    """Accepted jobs of this calendar month. `resets_at` is when it begins anew."""

    limit: int
    used: int
    resets_at: datetime


class MeObject(Struct, frozen=True, kw_only=True):
    """A client, as it is known here. No `quota`: it may submit as many jobs as it likes."""

    name: str
    plan: str
    #: Sees and moves the jobs of everybody.
    operator: bool
    quota: QuotaObject | None


@routes.get("/me", answers={200: MeObject})
async def show(request: web.Request) -> web.Response:
    """Say who you are, and how much of your quota is used.

    The quota counts jobs that were accepted; repeats of an idempotency key, children of jobs and what was
    refused count nothing.
    """
    client = request[CLIENT]
    quota = await _quota(request)
    return view.json(MeObject(name=client.name, plan=client.plan, operator=client.operator, quota=quota))


async def _quota(request: web.Request) -> QuotaObject | None:
    mine = allowance(request)
    if mine is None:
        return None
    used = await request.app[STAGE].storage.used(mine.quota.counter)
    return QuotaObject(limit=mine.quota.limit or 0, used=used, resets_at=mine.resets_at)
