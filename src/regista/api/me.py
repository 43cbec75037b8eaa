"""The calling client, and how much of its quota is used."""

from aiohttp import web
from msgspec import Struct

from ..services.jobs import QuotaUsage
from . import view
from .callers import caller_of
from .routes import RouteTable
from .stage import CLIENT, STAGE

routes = RouteTable("me")


class ClientView(Struct, frozen=True, kw_only=True):
    """A client, as it is known here. No `quota`: it may submit as many jobs as it likes."""

    name: str
    plan: str
    #: Sees and moves the jobs of everybody.
    operator: bool
    quota: QuotaUsage | None


@routes.get("/me", answers={200: ClientView})
async def show(request: web.Request) -> web.Response:
    """Say who you are, and how much of your quota is used.

    The quota counts jobs that were accepted; repeats of an idempotency key, children of jobs and what was
    refused count nothing.
    """
    client = request[CLIENT]
    quota = await request.app[STAGE].services.jobs.quota_usage(caller_of(request))
    return view.json(ClientView(name=client.name, plan=client.plan, operator=client.operator, quota=quota))
