"""Webhooks over HTTP: what is on its way, what was given up, and the secret that proves both."""

import re
from datetime import datetime
from enum import StrEnum

from aiohttp import web
from msgspec import Struct
from msgspec.structs import replace

from ..model import ClientConfig, Item, ItemWrite
from ..model.delivery import DEAD_SHELF, WEBHOOK_SHELF, Delivery, delivery_write, readable
from ..wire.pages import Page
from ..wire.story import Show
from . import bodies, parameters, view
from .audit import audit
from .operations import Operations
from .parameters import LIMIT, NEXT, Parameter
from .problems import Problem
from .shelf_pages import shelf_page
from .stage import CLIENT, STAGE

routes = Operations("webhooks")

#: Who and with what password, in a URL: nobody's business but the receiver's.
_PASSWORD = re.compile(r"://[^/?#]*@")
_UNKNOWN = {404: "no such delivery of yours"}


class Fate(StrEnum):
    """Where a delivery stands."""

    PENDING = "pending"
    DEAD = "dead"


_SHELVES = {Fate.DEAD: DEAD_SHELF, Fate.PENDING: WEBHOOK_SHELF}
STATE = Parameter(
    name="state",
    words="`dead`: what was given up; `pending`: what is still tried.",
    schema={"type": "string", "enum": [fate.value for fate in Fate], "default": "dead"},
)


class DeliveryObject(Struct, frozen=True, kw_only=True):
    """A word about a job on its way to its webhook, or given up."""

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
    """Nothing more to say."""


class SecretObject(Struct, frozen=True, kw_only=True):
    """What your deliveries are signed with, newest first; each of them signs."""

    secrets: list[str]
    #: Made here, since `clients.toml` names none for you.
    derived: bool


@routes.get("/webhooks", parameters=[STATE, LIMIT, NEXT], answers={200: Page[DeliveryObject]})
async def find(request: web.Request) -> web.Response:
    """List deliveries: those that were given up, or (`state=pending`) those still under way.

    Yours; an operator's list has everybody's. In the order of their jobs. A page may be short and yet have a `next`.
    """
    fate = parameters.choice(request, "state", Fate) or Fate.DEAD
    show = view.clock_of(request.app[STAGE].config)

    def shown(item: Item) -> DeliveryObject | None:
        delivery = readable(item)
        if delivery is None or not _may_see(request[CLIENT], delivery):
            return None
        return _object(delivery, item, fate, show)

    return view.json(await shelf_page(request, _SHELVES[fate], shown))


@routes.get("/webhooks/secret", answers={200: SecretObject})
async def secret(request: web.Request) -> web.Response:
    """Show the secret that your deliveries are signed with.

    Yours alone: nobody, not even an operator, sees another client's.
    """
    book, name = request.app[STAGE].webhooks, request[CLIENT].name
    answer = SecretObject(secrets=list(await book.secrets_of(name)), derived=not book.has_own(name))
    return view.json(answer, headers={"Cache-Control": "no-store"})


@routes.get("/webhooks/{delivery_id}", answers={200: DeliveryObject}, problems=_UNKNOWN)
async def get(request: web.Request) -> web.Response:
    """Look at a delivery. One that was heard is gone."""
    stage = request.app[STAGE]
    delivery, item, fate = await _own(request)
    return view.json(_object(delivery, item, fate, view.clock_of(stage.config)))


@routes.post(
    "/webhooks/{delivery_id}/redeliver",
    body=Empty,
    body_required=False,
    answers={200: DeliveryObject},
    problems=_UNKNOWN,
)
async def redeliver(request: web.Request) -> web.Response:
    """Send a delivery again, now, with all its tries before it.

    One that was given up, or one that waits for its next try. Its id stays the same. One that was not tried yet is on
    its way already: nothing changes.
    """
    stage = request.app[STAGE]
    await bodies.take_optional(request, Empty)
    delivery, item, fate = await _own(request)
    now = stage.clock.now()
    if fate is Fate.PENDING and delivery.tries == 0:  # it is on its way: to ask again changes nothing
        return view.json(_object(delivery, item, fate, view.clock_of(stage.config)))
    fresh = replace(delivery, tries=0)
    if fate is Fate.DEAD:
        # On to the one shelf before off the other: a crash in between repeats it, and loses nothing.
        writes = [delivery_write(fresh, now), ItemWrite(DEAD_SHELF, item.key, None, expected=item.revision)]
    else:
        writes = [delivery_write(fresh, now, item.revision)]
    await stage.storage.put(writes)
    await audit(request, "webhook.redeliver", delivery.id)
    shown = replace(item, due=now)
    return view.json(_object(fresh, shown, Fate.PENDING, view.clock_of(stage.config)))


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
    delivery, item, fate = await _own(request)
    await stage.storage.put([ItemWrite(item.shelf, item.key, None)])
    await audit(request, "webhook.discard", delivery.id)
    return view.json(_object(delivery, item, fate, view.clock_of(stage.config)))


async def _own(request: web.Request) -> tuple[Delivery, Item, Fate]:
    """The delivery that the path names, if it is the asker's; others' are as unknown as those that are gone."""
    stage, wanted = request.app[STAGE], request.match_info["delivery_id"]
    for fate in (Fate.PENDING, Fate.DEAD):
        item = await stage.storage.item(_SHELVES[fate], wanted)
        if item is not None:
            delivery = readable(item)
            if delivery is not None and _may_see(request[CLIENT], delivery):
                return delivery, item, fate
    detail = f"no delivery {wanted[:100]!r} of yours is under way or given up"
    raise Problem(404, "delivery_not_found", detail)


def _may_see(client: ClientConfig, delivery: Delivery) -> bool:
    return view.may_see(client, delivery.job)


def _object(delivery: Delivery, item: Item, fate: Fate, show: Show) -> DeliveryObject:
    return DeliveryObject(
        id=delivery.id,
        state=fate.value,
        event=delivery.event,
        job_id=delivery.job.id,
        client=delivery.job.client,
        url=_PASSWORD.sub("://***@", delivery.url),
        at=show(delivery.at),
        tries=delivery.tries,
        last_try_at=show(delivery.tried_at),
        next_try_at=show(item.due),
        last_status=delivery.status,
        last_error=delivery.error,
    )
