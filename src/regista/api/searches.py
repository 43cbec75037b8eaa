"""Searches over HTTP: how many jobs fit, and all of them with their stories, line by line."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from aiohttp import web

from ..history.query import Place, Query
from ..history.query.counts import JobCounts
from ..history.reader import count_jobs, find_jobs, group_of, read_events
from . import parameters, view
from .listing import NO_HISTORY, QUERY, asked, item_of
from .middleware.ratelimit import tell
from .operations import Media, Operations
from .parameters import BLUEPRINT, LIMIT, STATUS, Parameter
from .sending import whole_or_cut, write
from .stage import STAGE, Stage

routes = Operations("searches")

#: Jobs, and events of one job, that are in memory at a time.
_JOBS, _EVENTS = 100, 500
#: Seconds that a client may take to read what is ready for it, before its connection is cut.
SLOW_S = 30.0

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
    query = await asked(request)
    name = request.query.get("group_by")
    by = None if not name else group_of(name, stage.library.attributes())
    limit = parameters.limit(request, stage.config.max_page)
    return view.json(await count_jobs(stage.storage, stage.history, query, by, limit))


@routes.get("/jobs:export", parameters=[QUERY, STATUS, BLUEPRINT], answers={200: LINES}, problems=NO_HISTORY)
async def export(request: web.Request) -> web.StreamResponse:
    """Take all jobs that fit along, with their stories.

    A line for each job, `{"job": …}`, then a line for each of its events, `{"event": …}`; at last
    `{"end": {"jobs": …, "events": …}}`, by which you know that nothing is missing.
    """
    stage = request.app[STAGE]
    return await stream(request, _exported(stage, await asked(request)))


async def _exported(stage: Stage, query: Query) -> AsyncIterator[bytes]:
    jobs = events = 0
    after: Place | None = None
    while True:
        page = await find_jobs(stage.storage, stage.history, query, after, _JOBS)
        items = await asyncio.gather(*(item_of(stage, row) for row in page.rows))
        for row, item in zip(page.rows, items, strict=True):
            yield line({"job": item})
            jobs += 1
            async for chunk, told in _story(stage, row.job_id, "event"):
                events += told
                yield chunk
        after = page.end
        if after is None:
            break
    yield line({"end": {"jobs": jobs, "events": events}})


async def story_lines(stage: Stage, job_id: str, after: int = 0) -> AsyncIterator[bytes]:
    """The events of one job, a line each."""
    async for chunk, _ in _story(stage, job_id, "", after):
        yield chunk


async def _story(stage: Stage, job_id: str, name: str, after: int = 0) -> AsyncIterator[tuple[bytes, int]]:
    show = view.clock_of(stage.config)
    while True:
        events = await read_events(stage.storage, stage.history, job_id, after, _EVENTS)
        told = [view.shown(event, show) for event in events]
        if told:
            yield b"".join(line({name: event} if name else event) for event in told), len(told)
        if len(events) < _EVENTS:
            return
        after = events[-1].seq


def line(document: Any) -> bytes:
    """One line of JSON."""
    return view.encode(document) + b"\n"


async def stream(request: web.Request, lines: AsyncIterator[bytes]) -> web.StreamResponse:
    """An answer that is made while it is read. A reader that stops reading is let go."""
    headers = {"Content-Type": "application/jsonl; charset=utf-8", "X-Accel-Buffering": "no"}
    response = web.StreamResponse(headers=headers)
    tell(request, response)
    try:
        first = await anext(lines, b"")  # what fails before anything was said is an answer of its own
        with whole_or_cut(request):
            await response.prepare(request)
            await write(response, first, SLOW_S)
            async for chunk in lines:
                await write(response, chunk, SLOW_S)
            await response.write_eof()
    finally:
        await lines.aclose()  # type: ignore[attr-defined]  # an async generator
    return response
