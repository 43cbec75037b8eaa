"""Webhook deliveries and signing secrets over HTTP."""

import re
from datetime import datetime

from aiohttp import web
from msgspec import Struct

from ..schemas.job_view import TimeFormat
from ..schemas.pages import Page
from ..services.webhooks import DeliveryState, FoundDelivery
from . import bodies, parameters, view
from .callers import caller_of
from .pagination import page_request, record_page
from .parameters import LIMIT, NEXT, Parameter
from .routes import RouteTable
from .stage import STAGE

routes = RouteTable("webhooks")

#: User and password in a URL; only the receiver needs them.
_PASSWORD = re.compile(r"://[^/?#]*@")
_UNKNOWN = {404: "no such delivery of yours"}


STATE = Parameter(
    name="state",
    words="`dead`: what was given up; `pending`: what is still tried.",
    schema={"type": "string", "enum": [state.value for state in DeliveryState], "default": "dead"},
)


class DeliveryObject(Struct, frozen=True, kw_only=True):
    """A webhook delivery that is pending or was given up."""

    #: Names the event; the header `webhook-id` of every try.
    id: str
    state: str
    #: finished, failed, cancelled, quarantined or waiting_for_human.
    event: str
    job_id: str
    client: str
    url: str
    #: When it happened.
    at: datetime
    tries: int
    last_try_at: datetime | None
    next_try_at: datetime | None
    #: The status of the last answer; null where there was none.
    last_status: int | None
    last_error: str


class Empty(Struct, frozen=True, forbid_unknown_fields=True):
    """A body without members."""


class SecretObject(Struct, frozen=True, kw_only=True):
    """What your deliveries are signed with, newest first; each of them signs."""

    secrets: list[str]
    #: Made here, since `clients.toml` names none for you.
    derived: bool


@routes.get("/webhooks", parameters=[STATE, LIMIT, NEXT], answers={200: Page[DeliveryObject]})
async def find(request: web.Request) -> web.Response:
    """List deliveries: those that were given up, or (`state=pending`) those still under way.

    A client's own; for an operator those of all clients. In the order of their jobs. A page may be short and yet have a
    `next`.
    """
    stage = request.app[STAGE]
    state = parameters.choice(request, "state", DeliveryState) or DeliveryState.DEAD
    after, limit = page_request(request)
    page = await stage.services.webhooks.list_page(caller_of(request), state, after, limit)
    show = view.clock_of(stage.config)
    return view.json(record_page(page, lambda found: delivery_view(found, show)))


@routes.get("/webhooks/secret", answers={200: SecretObject})
async def secret(request: web.Request) -> web.Response:
    """Show the secret that your deliveries are signed with.

    A client's own secret: not even an operator sees another client's.
    """
    known = await request.app[STAGE].services.webhooks.secrets(caller_of(request))
    answer = SecretObject(secrets=list(known.secrets), derived=known.derived)
    return view.json(answer, headers={"Cache-Control": "no-store"})


@routes.get("/webhooks/{delivery_id}", answers={200: DeliveryObject}, problems=_UNKNOWN)
async def get(request: web.Request) -> web.Response:
    """Show a delivery. One that was delivered is deleted."""
    stage = request.app[STAGE]
    found = await stage.services.webhooks.get(caller_of(request), request.match_info["delivery_id"])
    return view.json(delivery_view(found, view.clock_of(stage.config)))


@routes.post(
    "/webhooks/{delivery_id}/redeliver",
    body=Empty,
    body_required=False,
    answers={200: DeliveryObject},
    problems=_UNKNOWN,
)
async def redeliver(request: web.Request) -> web.Response:
    """Send a delivery again, now, with all its tries before it.

    One that was given up, or one that waits for its next try. Its id stays the same. One that was not tried yet does
    not change.
    """
    stage = request.app[STAGE]
    await bodies.take_optional(request, Empty)
    found = await stage.services.webhooks.redeliver(caller_of(request), request.match_info["delivery_id"])
    return view.json(delivery_view(found, view.clock_of(stage.config)))


@routes.post(
    "/webhooks/{delivery_id}/discard",
    body=Empty,
    body_required=False,
    answers={200: DeliveryObject},
    problems=_UNKNOWN,
)
async def discard(request: web.Request) -> web.Response:
    """Forget a delivery: it is not tried any more."""
    stage = request.app[STAGE]
    await bodies.take_optional(request, Empty)
    found = await stage.services.webhooks.discard(caller_of(request), request.match_info["delivery_id"])
    return view.json(delivery_view(found, view.clock_of(stage.config)))


def delivery_view(found: FoundDelivery, show: TimeFormat) -> DeliveryObject:
    delivery = found.delivery
    return DeliveryObject(
        id=delivery.id,
        state=found.state.value,
        event=delivery.event,
        job_id=delivery.job.id,
        client=delivery.job.client,
        url=_PASSWORD.sub("://***@", delivery.url),
        at=show(delivery.at),
        tries=delivery.tries,
        last_try_at=show(delivery.tried_at),
        next_try_at=show(found.item.due),
        last_status=delivery.status,
        last_error=delivery.error,
    )
