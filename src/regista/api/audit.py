"""Audit: who did what. One function that every handler calls once it has changed something that is no job's."""

import logging
from datetime import datetime

from aiohttp import web
from msgspec import Struct

from ..errors import StorageAway
from ..model import Item, ItemWrite
from ..model.audit import AUDIT_SHELF, AuditRecord, Deed, audit_record, audit_write
from ..wire.pages import Page
from ..wire.story import Show
from . import view
from .address import client_address
from .operations import Operations
from .parameters import LIMIT, NEXT, Parameter
from .problems import Problem
from .shelf_pages import shelf_page
from .stage import CLIENT, STAGE

log = logging.getLogger("regista.audit")
routes = Operations("audit")

ACTOR = Parameter(name="actor", words="Only what this one did: `client:NAME`, …", schema={"type": "string"})
ACTION = Parameter(name="action", words="Only such deeds: `worker.drain`, …", schema={"type": "string"})
TARGET = Parameter(name="target", words="Only what was done to this id.", schema={"type": "string"})

#: Seconds in the days that the setting counts.
DAY_S = 86_400.0


def actor_of(request: web.Request) -> str:
    """Who asks, as records name them. A request without a client's token is an approval link's."""
    client = request.get(CLIENT)
    if client is None:
        return "approval_link"
    return f"{'operator' if client.operator else 'client'}:{client.name}"


def tell(
    request: web.Request, action: str, target: str, *, actor: str = "", level: int = logging.INFO
) -> None:
    """The line in the log alone: for what stands in a job's own events as well."""
    if log.isEnabledFor(level):
        actor = actor or actor_of(request)
        facts = {"action": action, "actor": actor, "target": target, "address": client_address(request)}
        log.log(level, "%s %s %s", actor, action, target, extra=facts)


def tell_submitted(request: web.Request, target: str) -> None:
    """The line about accepted jobs. At DEBUG: there are many, and each job's history begins with who wanted it."""
    if log.isEnabledFor(logging.DEBUG):
        tell(request, "job.submit", target, level=logging.DEBUG)


def deed(request: web.Request, action: str, target: str, **facts: str) -> Deed:
    """What this request is about to do to a job: the engine writes it down in the very commit that does it."""
    record = _record(request, action, target, actor_of(request), facts)
    return Deed(record.actor, _write(request, record))


async def audit(
    request: web.Request, action: str, target: str = "", *, actor: str = "", **facts: str
) -> None:
    """Leave a record of what this request has done: on the shelf, and in the log.

    Call it after the deed. `action` is noun and verb (`worker.drain`), `target` the id of what was touched, `actor`
    whoever asked where that is no client (`worker:ID`). No tokens and nothing of what was sent: operators read it. A
    store that is away loses the record but not the line in the log, and never the answer to whoever asked.
    """
    tell(request, action, target, actor=actor)
    record = _record(request, action, target, actor or actor_of(request), facts)
    try:
        await request.app[STAGE].storage.put([_write(request, record)])
    except StorageAway:
        log.warning("%s: not kept, since the store is away", action, extra={"action": action})


def _record(request: web.Request, action: str, target: str, actor: str, facts: dict[str, str]) -> AuditRecord:
    stage = request.app[STAGE]
    return AuditRecord(
        at=stage.clock.now(),
        actor=actor,
        action=action,
        target=target,
        address=client_address(request),
        instance=stage.config.instance_id,
        facts=facts,
    )


def _write(request: web.Request, record: AuditRecord) -> ItemWrite:
    return audit_write(record, request.app[STAGE].config.audit_days * DAY_S)


# -- reading it ------------------------------------------------------------------------------------


class AuditObject(Struct, frozen=True, kw_only=True):
    """Who did what, and from where."""

    at: datetime
    #: `client:NAME`, `operator:NAME`, `worker:ID`, `approval_link` or `system`.
    actor: str
    #: Noun and verb: `job.cancel`, `worker.drain`, …
    action: str
    target: str
    address: str
    #: The orchestrator that did it.
    instance: str
    facts: dict[str, str]


@routes.get(
    "/audit",
    parameters=[ACTOR, ACTION, TARGET, LIMIT, NEXT],
    answers={200: Page[AuditObject]},
    problems={403: "for operators only"},
)
async def find(request: web.Request) -> web.Response:
    """List who did what, newest first. For operators only.

    Kept for `REGISTA_AUDIT_DAYS`. A page may be short and yet have a `next`. Submissions are not in it: each job's
    history begins with who wanted it.
    """
    if not request[CLIENT].operator:
        raise Problem(403, "operators_only", "only an operator may read who did what")
    show = view.clock_of(request.app[STAGE].config)

    def shown(item: Item) -> AuditObject | None:
        record = audit_record(item)
        return _object(record, show) if _fits(request, record) else None

    return view.json(await shelf_page(request, AUDIT_SHELF, shown))


def _fits(request: web.Request, record: AuditRecord) -> bool:
    asked = request.query
    return all(
        wanted is None or wanted == told
        for wanted, told in (
            (asked.get("actor"), record.actor),
            (asked.get("action"), record.action),
            (asked.get("target"), record.target),
        )
    )


def _object(record: AuditRecord, show: Show) -> AuditObject:
    return AuditObject(
        at=show(record.at),
        actor=record.actor,
        action=record.action,
        target=record.target,
        address=record.address,
        instance=record.instance,
        facts=record.facts,
    )
