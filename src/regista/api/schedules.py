"""Schedules over HTTP, for operators: what is started when, what became of it, and a hand on it."""

from datetime import datetime
from secrets import token_urlsafe
from typing import Annotated, Any

import msgspec
from aiohttp import web
from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from ..schedules.calendar import upcoming
from ..schedules.schedule import Schedule
from ..schedules.state import Record, fires_at, is_paused
from ..upkeep.schedule_book import Entry
from ..wire.jobs import Words
from ..wire.pages import Page
from ..wire.story import Show
from . import bodies, parameters, view
from .audit import audit
from .operations import Operations
from .parameters import KEY, Parameter
from .problems import Problem
from .stage import CLIENT, STAGE, Stage

routes = Operations("schedules")

_OPERATORS = {403: "for operators only"}
_UNKNOWN = _OPERATORS | {404: "no such schedule"}
#: Ticks that `next` tells of, at most.
_MOST = 1000
COUNT = Parameter(
    name="count",
    words="How many ticks.",
    schema={"type": "integer", "minimum": 1, "maximum": _MOST, "default": 10},
)


class NewSchedule(Schedule, frozen=True, kw_only=True):
    """A schedule that somebody wants, with its name. The other members are those of `schedules.toml`."""

    name: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=200,
            pattern="^[A-Za-z0-9][A-Za-z0-9._-]*$",
            description="letters, digits, dots, - and _, the first a letter or a digit",
        ),
    ]


class Said(Struct, frozen=True, forbid_unknown_fields=True):
    """Why, for the record."""

    reason: Words = ""


class Wanted(Struct, frozen=True, forbid_unknown_fields=True):
    """A job of a schedule, now. The same key is the same job; the header `Idempotency-Key` says the same."""

    idempotency_key: Annotated[str, Meta(min_length=1, max_length=1000)] | None = None


class ScheduleObject(Struct, frozen=True, kw_only=True):
    """A schedule. `schedule` has its members; `records` is what became of its last ticks, newest first."""

    name: str
    #: file (`schedules.toml`) or api.
    source: str
    blueprint: str
    #: When it ticks, in words.
    when: str
    timezone: str
    paused: bool
    #: When the next tick fires, jitter included; null while it is paused.
    next: datetime | None
    last_tick: datetime | None
    last_job_id: str | None
    fired: int
    skipped: int
    #: A tick that waits for the end of the job before it.
    buffered: datetime | None
    schedule: dict[str, Any]
    records: list[Record]


class Tick(Struct, frozen=True):
    """A tick to come: by the calendar, and with its jitter."""

    tick: datetime
    fires_at: datetime


class Triggered(Struct, frozen=True):
    """The job that was started."""

    job_id: str


@routes.get("/schedules", answers={200: Page[ScheduleObject]}, problems=_OPERATORS)
async def find(request: web.Request) -> web.Response:
    """List the schedules, by name. For operators only.

    Those of `schedules.toml` and those that were made here. `records` is left empty: look at one for what became of
    its ticks.
    """
    _operators_only(request)
    stage = request.app[STAGE]
    entries = await stage.scheduler.book.all()
    items = [replace(_object(stage, entry), records=[]) for entry in entries]
    return view.json(Page(items, None))


@routes.post(
    "/schedules",
    body=NewSchedule,
    answers={201: ScheduleObject},
    problems=_OPERATORS | {404: "no such blueprint", 409: "another schedule has that name"},
)
async def create(request: web.Request) -> web.Response:
    """Make a schedule. For operators only.

    Its members are those of a table of `schedules.toml`, and `name`. The first tick is the next one from now. The very same schedule
    again is fine.
    """
    wish = await bodies.take(request, NewSchedule)
    _operators_only(request)
    stage = request.app[STAGE]
    stage.library.get(wish.blueprint)
    members = {name: value for name, value in asdict(wish).items() if name != "name"}
    entry = await stage.scheduler.book.create(wish.name, Schedule(**members))
    await audit(request, "schedule.create", wish.name)
    stage.upkeep.nudge("scheduler")
    return view.json(_object(stage, entry), 201, {"Location": f"{request.path}/{wish.name}"})


@routes.get("/schedules/{schedule}", answers={200: ScheduleObject}, problems=_UNKNOWN)
async def get(request: web.Request) -> web.Response:
    """Look at a schedule, and at what became of its last ticks. For operators only.

    `records`, newest first: `started` and `triggered` name the job; `skipped` says why (`missed`, `outside_window`,
    `superseded`, `overlap`, `replaced`, `paused`, `refused` or the code of a refusal) and for how many ticks in a row.
    """
    _operators_only(request)
    stage = request.app[STAGE]
    return view.json(_object(stage, await stage.scheduler.book.get(request.match_info["schedule"])))


@routes.get("/schedules/{schedule}/next", parameters=[COUNT], answers={200: Page[Tick]}, problems=_UNKNOWN)
async def coming(request: web.Request) -> web.Response:
    """Tell the next ticks of a schedule. For operators only.

    As if it were not paused.
    """
    _operators_only(request)
    stage = request.app[STAGE]
    count = parameters.whole(request, "count", 10, 1, _MOST)
    entry = await stage.scheduler.book.get(request.match_info["schedule"])
    show = view.clock_of(stage.config)
    ticks = upcoming(entry.calendar, entry.state.cursor, count)
    return view.json(Page([Tick(show(tick), show(_fires(entry, tick))) for tick in ticks], None))


@routes.post(
    "/schedules/{schedule}/pause",
    body=Said,
    body_required=False,
    answers={200: ScheduleObject},
    problems=_UNKNOWN,
)
async def pause(request: web.Request) -> web.Response:
    """Let nothing fire until somebody resumes it. For operators only.

    Ticks are recorded as skipped. Jobs that run go on. Twice is fine.
    """
    wish = await bodies.take_optional(request, Said)
    _operators_only(request)
    stage, name = request.app[STAGE], request.match_info["schedule"]
    entry = await stage.scheduler.book.pause(name, wish.reason)
    await audit(request, "schedule.pause", name)
    return view.json(_object(stage, entry))


@routes.post(
    "/schedules/{schedule}/resume",
    body=Said,
    body_required=False,
    answers={200: ScheduleObject},
    problems=_UNKNOWN,
)
async def resume(request: web.Request) -> web.Response:
    """Let a schedule fire again, from now on. For operators only.

    What came while it was paused stays skipped. Twice is fine.
    """
    wish = await bodies.take_optional(request, Said)
    _operators_only(request)
    stage, name = request.app[STAGE], request.match_info["schedule"]
    entry = await stage.scheduler.book.resume(name, wish.reason)
    await audit(request, "schedule.resume", name)
    stage.upkeep.nudge("scheduler")
    return view.json(_object(stage, entry))


@routes.post(
    "/schedules/{schedule}/trigger",
    parameters=[KEY],
    body=Wanted,
    body_required=False,
    answers={202: Triggered},
    problems={403: "for operators only", 404: "no such schedule, or its blueprint is not registered"},
)
async def trigger(request: web.Request) -> web.Response:
    """Start a job of a schedule now, whatever its ticks say. For operators only.

    Paused or not, and beside whatever runs. With an idempotency key twice is once.
    """
    wish = await bodies.take_optional(request, Wanted)
    _operators_only(request)
    stage, name = request.app[STAGE], request.match_info["schedule"]
    key = parameters.idempotency_key(request, wish.idempotency_key) or token_urlsafe()
    job_id = await stage.scheduler.trigger(name, key)
    await audit(request, "schedule.trigger", name, job_id=job_id)
    place = request.path.removesuffix(f"/schedules/{name}/trigger")
    return view.json(Triggered(job_id), 202, {"Location": f"{place}/jobs/{job_id}"})


@routes.post(
    "/schedules/{schedule}/delete",
    body=Said,
    body_required=False,
    answers={204: None},
    problems=_UNKNOWN | {409: "it stands in schedules.toml"},
)
async def delete(request: web.Request) -> web.Response:
    """Forget a schedule that was made here. For operators only.

    Its jobs stay. One that stands in `schedules.toml` can only be taken out there, or paused.
    """
    await bodies.take_optional(request, Said)
    _operators_only(request)
    name = request.match_info["schedule"]
    await request.app[STAGE].scheduler.book.delete(name)
    await audit(request, "schedule.delete", name)
    return web.Response(status=204)


def _operators_only(request: web.Request) -> None:
    if not request[CLIENT].operator:
        raise Problem(403, "operators_only", "only an operator may see and move schedules")


def _object(stage: Stage, entry: Entry) -> ScheduleObject:
    schedule, state = entry.schedule, entry.state
    show = view.clock_of(stage.config)
    paused = is_paused(schedule, state)
    tick = None if paused else entry.calendar.next(state.cursor)
    return ScheduleObject(
        name=entry.name,
        source="file" if entry.in_file else "api",
        blueprint=schedule.blueprint,
        when=schedule.words(),
        timezone=schedule.timezone or stage.config.tz,
        paused=paused,
        next=None if tick is None else show(_fires(entry, tick)),
        last_tick=show(state.last_tick),
        last_job_id=state.last_job_id,
        fired=state.fired,
        skipped=state.skipped,
        buffered=show(state.buffered),
        schedule=msgspec.to_builtins(schedule),
        records=[_shown(record, show) for record in reversed(state.records)],
    )


def _fires(entry: Entry, tick: datetime) -> datetime:
    return fires_at(entry.name, tick, entry.schedule, entry.calendar)


def _shown(record: Record, show: Show) -> Record:
    return replace(record, at=show(record.at), tick=show(record.tick), last=show(record.last))
