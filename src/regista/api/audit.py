"""Audit records over HTTP, for operators."""

from datetime import datetime

from aiohttp import web
from msgspec import Struct

from ..model.audit import AuditRecord
from ..schemas.job_view import TimeFormat
from ..schemas.pages import Page
from ..services.audit import AuditFilter
from . import view
from .callers import caller_of
from .pagination import page_request, record_page
from .parameters import LIMIT, NEXT, Parameter
from .routes import RouteTable
from .stage import STAGE

routes = RouteTable("audit")

ACTOR = Parameter(
    name="actor", words="Only actions of this actor: `client:NAME`, …", schema={"type": "string"}
)
ACTION = Parameter(name="action", words="Only this action: `worker.drain`, …", schema={"type": "string"})
TARGET = Parameter(name="target", words="Only actions on this id.", schema={"type": "string"})


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
    operator=True,
    parameters=[ACTOR, ACTION, TARGET, LIMIT, NEXT],
    answers={200: Page[AuditObject]},
)
async def find(request: web.Request) -> web.Response:
    """List who did what, newest first. For operators only.

    Kept for `REGISTA_AUDIT_DAYS`. A page may be short and yet have a `next`. Submissions are not in it: each job's
    history begins with who wanted it.
    """
    stage = request.app[STAGE]
    query = request.query
    wanted = AuditFilter(query.get("actor"), query.get("action"), query.get("target"))
    after, limit = page_request(request)
    page = await stage.services.audit.list_page(caller_of(request), wanted, after, limit)
    show = view.clock_of(stage.config)
    return view.json(record_page(page, lambda record: audit_view(record, show)))


def audit_view(record: AuditRecord, show: TimeFormat) -> AuditObject:
    return AuditObject(
        at=show(record.at),
        actor=record.actor,
        action=record.action,
        target=record.target,
        address=record.address,
        instance=record.instance,
        facts=record.facts,
    )
