"""What happened to a job over HTTP: its events, its timeline, and all of its events as lines."""

from collections.abc import AsyncIterator, Sequence
from enum import StrEnum
from typing import Any

from aiohttp import web

from ..history.timeline import Timeline
from ..model import Event
from ..schemas.job_view import TimeFormat
from ..schemas.pages import Page, encode_position
from . import parameters, view
from .callers import caller_of
from .parameters import NEXT, Parameter, page_limit
from .responses import json_line, stream_lines
from .routes import RouteTable
from .stage import STAGE

routes = RouteTable("jobs")


class HistoryFormat(StrEnum):
    """How the events of a job are answered."""

    JSON = "json"
    JSONL = "jsonl"


_LIMIT = page_limit(1000)
FORMAT = Parameter(
    name="format",
    words="`jsonl` streams all events, a line each, and pays no heed to `limit`.",
    schema={"type": "string", "enum": [form.value for form in HistoryFormat], "default": "json"},
)


@routes.get(
    "/jobs/{job_id}/history",
    parameters=[_LIMIT, NEXT, FORMAT],
    answers={200: Page[Event]},
    media=["application/jsonl"],
    problems={404: "no such job of yours"},
)
async def history(request: web.Request) -> web.StreamResponse:
    """What happened to a job, in order.

    History, and what is still on its way there. `next` is there as long as the page is full; of a job that
    still lives, more may come after the last page. With `format=jsonl` all of it comes at once, an event on each
    line, however many there are.
    """
    stage, caller, job_id = request.app[STAGE], caller_of(request), request.match_info["job_id"]
    after = parameters.place(request, int) or 0
    limit = parameters.limit(request, stage.config.max_page, _LIMIT)
    show = view.clock_of(stage.config)
    if parameters.choice(request, "format", HistoryFormat) is HistoryFormat.JSONL:
        chunks = await stage.services.job_history.all_events(caller, job_id, after)
        return await stream_lines(request, _lines(chunks, show))
    events = await stage.services.job_history.events(caller, job_id, after, limit)
    items = [view.shown(event, show) for event in events]
    return view.json(Page[Any](items, encode_position(items[-1].seq) if len(items) == limit else None))


async def _lines(chunks: AsyncIterator[Sequence[Event]], show: TimeFormat) -> AsyncIterator[bytes]:
    async for events in chunks:
        yield b"".join(json_line(view.shown(event, show)) for event in events)


@routes.get("/jobs/{job_id}/timeline", answers={200: Timeline}, problems={404: "no such job of yours"})
async def timeline(request: web.Request) -> web.Response:
    """Tell a job's life as spans of time.

    The states that it visited, in each the tasks with their attempts, and every wait with its reason: for a `worker`, a
    `retry`, a person (`human`), a `child`, a `timer`, a release (`release`) or the end of a cancellation (`cancel`). What goes on has no end
    yet. It follows from the events; `truncated` where there are too many to tell.
    """
    from zoneinfo import ZoneInfo  # a few milliseconds that a start can save

    stage = request.app[STAGE]
    job_id, zone = request.match_info["job_id"], ZoneInfo(stage.config.tz)
    return view.json(await stage.services.job_history.timeline(caller_of(request), job_id, zone))
