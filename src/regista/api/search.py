"""Search over HTTP: lists, counts and exports of jobs, and the tokens of their pages."""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from math import isfinite
from typing import Any

from aiohttp import web
from msgspec.structs import replace

from ..clock import EPOCH
from ..history.query import Place, Query
from ..history.query.counts import JobCounts
from ..history.query.nodes import Key, Kind
from ..model import JobStatus
from ..schemas.jobs import JobObject
from ..schemas.pages import BadPageToken, Page, decode_position, encode_position
from ..services.search import FoundJob, JobSearch
from . import parameters, view
from .callers import caller_of
from .job_views import listed_view
from .parameters import BLUEPRINT, LIMIT, NEXT, STATUS, Parameter, bad
from .responses import json_line, stream_lines
from .routes import Media, RouteTable
from .stage import CLIENT, STAGE, Stage

routes = RouteTable("searches")

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
GROUP_BY = Parameter(
    name="group_by",
    words="Count by the values of this: `ExecutionStatus`, `BlueprintName`, or a search attribute.",
    schema={"type": "string", "maxLength": 64},
)
LINES = Media(("application/jsonl",), "JSON, a document on each line")


@routes.get(
    "/jobs:count",
    parameters=[QUERY, STATUS, BLUEPRINT, GROUP_BY, LIMIT],
    answers={200: JobCounts},
    problems=NO_HISTORY,
)
async def count(request: web.Request) -> web.Response:
    """Count jobs, and tell how long they took.

    Of your own jobs, or of everybody's for an operator: how many fit, and the mean, the median and the 95th
    percentile of the seconds that those of them took that have ended. With `group_by` the same for each of the
    `limit` largest groups; a group's `value` is null for jobs that have none.
    """
    stage = request.app[STAGE]
    query = await query_of_request(request)
    limit = parameters.limit(request, stage.config.max_page)
    group_by = request.query.get("group_by", "")
    return view.json(await stage.services.search.count(query, group_by, limit))


@routes.get("/jobs:export", parameters=[QUERY, STATUS, BLUEPRINT], answers={200: LINES}, problems=NO_HISTORY)
async def export(request: web.Request) -> web.StreamResponse:
    """Take all jobs that fit along, with their stories.

    A line for each job, `{"job": …}`, then a line for each of its events, `{"event": …}`; at last
    `{"end": {"jobs": …, "events": …}}`, by which you know that nothing is missing.
    """
    return await stream_lines(request, _export_lines(request.app[STAGE], await query_of_request(request)))


async def _export_lines(stage: Stage, query: Query) -> AsyncIterator[bytes]:
    show = view.clock_of(stage.config)
    jobs = events = 0
    async for part in stage.services.search.export(query):
        if isinstance(part, FoundJob):
            yield json_line({"job": listed_view(part, show)})
            jobs += 1
        else:
            yield b"".join(json_line({"event": view.shown(event, show)}) for event in part)
            events += len(part)
    yield json_line({"end": {"jobs": jobs, "events": events}})


async def query_of_request(request: web.Request) -> Query:
    """What a request searches, restricted to what the caller may see."""
    status = parameters.choice(request, "status", JobStatus)
    wanted = JobSearch(
        request.query.get("query", ""),
        None if status is None else status.value,
        request.query.get("blueprint"),
    )
    return await request.app[STAGE].services.search.query(caller_of(request), wanted)


async def search_page(request: web.Request, query: Query) -> Page[JobObject]:
    """The page of jobs that a request asks for; for operators each job says whose it is."""
    stage = request.app[STAGE]
    limit = parameters.limit(request, stage.config.max_page)
    found = await stage.services.search.find(query, position_in(request, query), limit)
    show = view.clock_of(stage.config)
    items = [listed_view(each, show) for each in found.jobs]
    if request[CLIENT].operator:
        items = [
            replace(item, client=each.summary.client) for item, each in zip(items, found.jobs, strict=True)
        ]
    return Page(items, None if found.end is None else token_for(query, found.end))


def token_for(query: Query, place: Place) -> str:
    """The token for a position in the list of this query, and of no other."""
    return encode_position((query.fingerprint, [_portable(value) for value in place]))


def _portable(value: Any) -> Any:
    return (value - EPOCH) // _MICROSECOND if isinstance(value, datetime) else value


def position_in(request: web.Request, query: Query) -> Place | None:
    """Where the page before has ended; None for the first page. The token of another list is refused."""
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
