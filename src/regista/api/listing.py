"""Listing: a page of jobs, as answers, and the words that lead from one page to the next."""

import asyncio
from datetime import datetime, timedelta
from math import isfinite
from typing import Any

from aiohttp import web
from msgspec.structs import replace

from ..clock import EPOCH
from ..history.query import Place, Query
from ..history.query.nodes import Key, Kind
from ..history.reader import find_jobs, query_of
from ..model import JobStatus, JobSummary
from ..schemas.job_view import job_view
from ..schemas.jobs import Bill, ErrorView, JobObject
from ..schemas.pages import BadPageToken, Page, decode_position, encode_position
from . import parameters, view
from .parameters import NEXT, Parameter, bad
from .stage import CLIENT, STAGE, Stage

QUERY = Parameter(
    name="query",
    words="Only jobs that fit this list filter, in the order that it asks for: "
    "`AssetType = 'video' AND StartTime > '2026-01-01' ORDER BY CloseTime DESC`.",
    schema={"type": "string", "maxLength": 10_000},
)
#: What every list refuses beside what all operations do.
NO_HISTORY = {501: "no history is configured, and a list is made from it"}
_MICROSECOND = timedelta(microseconds=1)
#: Whole numbers in histories have 64 bits.
_MOST_NUMBER = 1 << 63


async def asked(request: web.Request) -> Query:
    """What a request asks for: its query and its filters, and never more than the asker may see."""
    stage = request.app[STAGE]
    client = request[CLIENT]
    status = parameters.choice(request, "status", JobStatus)
    query = await query_of(request.query.get("query", ""), stage.library.attributes(), stage.config.tz)
    return query.restricted(
        client=None if client.operator else client.name,
        status=None if status is None else status.value,
        blueprint=request.query.get("blueprint"),
    )


async def list_jobs(
    stage: Stage, query: Query, after: Place | None, limit: int, whose: bool = False
) -> Page[JobObject]:
    """The jobs that fit. `after` is where the page before has ended; `whose` says whose each job is."""
    found = await find_jobs(stage.storage, stage.history, query, after, limit)
    # Concurrent questions share round trips to the store.
    items = await asyncio.gather(*(item_of(stage, row) for row in found.rows))
    if whose:
        items = [replace(item, client=row.client) for item, row in zip(items, found.rows, strict=True)]
    return Page(list(items), None if found.end is None else token_for(query, found.end))


def token_for(query: Query, place: Place) -> str:
    """The word for a place in the list of this query, and of no other."""
    return encode_position((query.fingerprint, [_portable(value) for value in place]))


def _portable(value: Any) -> Any:
    return (value - EPOCH) // _MICROSECOND if isinstance(value, datetime) else value


def place_in(request: web.Request, query: Query) -> Place | None:
    """Where the page before has ended; None for the first page. A word of another list is refused."""
    text = request.query.get(NEXT.name)
    if not text:
        return None
    try:
        fingerprint, values = decode_position(text, tuple[bytes, list[Any]])
        if fingerprint != query.fingerprint or len(values) != len(query.order):
            raise BadPageToken("of another search")
        return tuple(_value(key, value) for key, value in zip(query.order, values, strict=True))
    except (BadPageToken, OverflowError):
        expected = "the `next` of an earlier page of this very search: same query, filters and order"
        raise bad(NEXT.name, expected, text) from None


#: What the values of a place may be, by the kind of their field.
_TYPES: dict[Kind, type | tuple[type, ...]] = {
    Kind.KEYWORD: str,
    Kind.DATETIME: str,
    Kind.NUMBER: (int, float),
    Kind.BOOL: bool,
    Kind.TIMESTAMP: int,
    Kind.DURATION: int,
}


def _value(key: Key, value: Any) -> Any:
    field = key.field
    if value is None and field.optional:
        return None
    if not isinstance(value, _TYPES[field.kind]) or not _is_sound(field.kind, value):
        raise BadPageToken("made up")
    moment: Any = value
    return EPOCH + timedelta(microseconds=moment) if field.kind is Kind.TIMESTAMP else value


def _is_sound(kind: Kind, value: Any) -> bool:
    """Every history can compare with it."""
    if isinstance(value, bool):  # which is an int as well
        return kind is Kind.BOOL
    if isinstance(value, float):
        return isfinite(value)
    if isinstance(value, int):
        return -_MOST_NUMBER <= value < _MOST_NUMBER
    return "\0" not in value


async def item_of(stage: Stage, row: JobSummary) -> JobObject:
    """The job as it is now; what history remembers of it, where the store has let go of it."""
    show = view.clock_of(stage.config)
    (job,) = await stage.storage.get([row.job_id])
    if job is not None:
        return job_view(job, show=show)
    return JobObject(
        id=row.job_id,
        blueprint=row.blueprint,
        version=row.version,
        status=row.status,
        state=row.state,
        input={},
        data={},
        result=None,
        error=None if row.error_code is None else ErrorView(row.error_code),
        progress=None,
        waiting_for=None,
        attempts=[],
        created_at=show(row.created_at),
        updated_at=show(row.updated_at),
        finished_at=show(row.finished_at),
        search_attributes=row.search_attributes,
        parent_id=row.parent_id,
        bill=Bill(0.0, 0.0),
    )
