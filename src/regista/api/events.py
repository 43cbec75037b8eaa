"""Events of jobs as server-sent events: resumable, each event encoded once for all readers."""

import asyncio
import re
from collections.abc import AsyncIterator

import msgspec
from aiohttp import web

from ..engines.live_events import LiveEvent
from ..schemas.job_view import TimeFormat
from ..schemas.jobs import Progress
from ..services.events import News, Position, SlowReader
from . import view
from .callers import caller_of
from .parameters import Parameter, bad
from .responses import abort_on_failure
from .routes import Media, RouteTable
from .stage import STAGE

routes = RouteTable("streams")

#: Seconds that a client may take to read what is ready for it, before its connection is cut.
SLOW_S = 10.0
_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # or nginx keeps what it gets until there is much of it
}
_encode = msgspec.json.Encoder().encode
_LAST_ID = "Last-Event-ID"

AFTER_SEQ = Parameter(
    name="after",
    words="The seq after which to begin; `Last-Event-ID` wins over it.",
    schema={"type": "integer", "minimum": 0, "default": 0},
)
AFTER_ID = Parameter(
    name="after",
    words="The id after which to begin (`0`: with all that history has); `Last-Event-ID` wins over it. "
    "Without either it begins now.",
    schema={"type": "string", "pattern": r"^[0-9]{1,18}(-[0-9]{1,9})?$"},
)
LAST_ID = Parameter(
    name=_LAST_ID,
    where="header",
    words="The id of the last event that was seen, as a browser sends it when it comes back.",
    schema={"type": "string", "pattern": r"^[0-9]{1,18}(-[0-9]{1,9})?$"},
)
_STREAM = Media(("text/event-stream",), "events; `data` is the event as JSON, `id` is what to resume from")


@routes.get(
    "/jobs/{job_id}/events",
    parameters=[AFTER_SEQ, LAST_ID],
    answers={200: _STREAM, 204: None},
    problems={404: "no such job of yours"},
)
async def job_events(request: web.Request) -> web.StreamResponse:
    """Watch a job, as server-sent events.

    First what has happened, then what happens, in order and each once; ends after the job's last event.
    `id` is the event's seq. `progress` comes in between, live only and without an id. 204 when the job has
    ended and there is nothing after the id asked for: there is nothing to come back for.
    """
    events, job_id = request.app[STAGE].services.events, request.match_info["job_id"]
    news = await events.follow_job(caller_of(request), job_id, _seq(request))
    return web.Response(status=204) if news is None else await send_events(request, news, wide=False)


@routes.get("/events", parameters=[AFTER_ID, LAST_ID], answers={200: _STREAM})
async def all_events(request: web.Request) -> web.StreamResponse:
    """Watch all your jobs, as server-sent events.

    An operator watches everybody's. Begins now, or where an id says: then everything that happened since
    comes first. Does not end by itself.
    """
    events = request.app[STAGE].services.events
    news = events.follow_all(caller_of(request), _position(request))
    return await send_events(request, news, wide=True)


async def send_events(request: web.Request, news: AsyncIterator[News], *, wide: bool) -> web.StreamResponse:
    """The events as they come; `wide` gives them ids that are good for all jobs."""
    response = web.StreamResponse(headers=_HEADERS)
    show = view.clock_of(request.app[STAGE].config)
    try:
        # Cut where it reads nothing at all, or there is nothing to read from: it may come back with its last id.
        with abort_on_failure(request):
            await response.prepare(request)  # fails already where the client has hung up
            await _write(response, b"retry: 1000\n\n")
            try:
                async for page in news:
                    chunk = b"".join(_chunk(one, show, wide) for one in page)
                    await _write(response, chunk or b": still here\n\n")
                await response.write_eof()
            except SlowReader:
                await _write(response, b'event: closed\ndata: {"reason":"too_slow"}\n\n')
    finally:
        await news.aclose()  # type: ignore[attr-defined]  # an async generator, and it must leave the feed now
    return response


async def _write(response: web.StreamResponse, chunk: bytes) -> None:
    async with asyncio.timeout(SLOW_S):
        await response.write(chunk)


def _chunk(news: LiveEvent | Progress, show: TimeFormat, wide: bool) -> bytes:
    if isinstance(news, Progress):
        return b"event: progress\ndata: %b\n\n" % _encode(msgspec.structs.replace(news, at=show(news.at)))
    if news.body is None:
        event = view.shown(news.event, show)
        news.body = b"event: %b\ndata: %b\n\n" % (event.type.encode(), _encode(event))
    if wide:
        return b"id: %d-%d\n%b" % (news.number, news.offset, news.body)
    return b"id: %d\n%b" % (news.event.seq, news.body)


def _seq(request: web.Request) -> int:
    name, text = _last_id(request)
    if not re.fullmatch(r"[0-9]{1,18}", text or "0"):
        raise bad(name, "the seq of an event", text)
    return int(text or "0")


def _position(request: web.Request) -> Position | None:
    name, text = _last_id(request)
    if not text:
        return None
    if not re.fullmatch(r"[0-9]{1,18}(-[0-9]{1,9})?", text):
        raise bad(name, "the id of an event of this stream", text)
    number, _, offset = text.partition("-")
    return int(number), int(offset) if offset else float("inf")


def _last_id(request: web.Request) -> tuple[str, str]:
    """Where it comes from, and what it says. A browser that comes back repeats its URL, so the header wins."""
    if header := request.headers.get(_LAST_ID, ""):
        return _LAST_ID, header
    return "after", request.query.get("after", "")
