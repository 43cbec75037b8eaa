"""Schedules over HTTP, for operators."""

from datetime import datetime
from typing import Annotated, Any

import msgspec
from aiohttp import web
from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from ..schedules.registry import StoredSchedule
from ..schedules.schedule import Schedule
from ..schedules.state import ScheduleRecord, fires_at, is_paused
from ..schemas.job_view import TimeFormat
from ..schemas.jobs import Words
from ..schemas.pages import Page
from ..services.schedules import Tick
from . import bodies, parameters, view
from .callers import caller_of
from .parameters import KEY, Parameter
from .routes import RouteTable
from .stage import STAGE, Stage

routes = RouteTable("schedules")

_UNKNOWN = {404: "no such schedule"}
#: Ticks that `next` returns at most.
_MOST = 1000
COUNT = Parameter(
    name="count",
    words="How many ticks.",
    schema={"type": "integer", "minimum": 1, "maximum": _MOST, "default": 10},
)


class NewSchedule(Schedule, frozen=True, kw_only=True):
    """A new schedule, with its name. The other members are those of `schedules.toml`."""

    name: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=200,
            pattern="^[A-Za-z0-9][A-Za-z0-9._-]*$",
            description="letters, digits, dots, - and _, the first a letter or a digit",
        ),
    ]


class ReasonBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The reason, for the audit record."""

    reason: Words = ""


class TriggerRequest(Struct, frozen=True, forbid_unknown_fields=True):
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
    records: list[ScheduleRecord]


class Triggered(Struct, frozen=True):
    """The job that was started."""

    job_id: str


@routes.get("/schedules", operator=True, answers={200: Page[ScheduleObject]})
async def find(request: web.Request) -> web.Response:
    """List the schedules, by name. For operators only.

    Those of `schedules.toml` and those that were made here. `records` is left empty: look at one for what became of
    its ticks.
    """
    stage = request.app[STAGE]
    entries = await stage.services.schedules.list_all(caller_of(request))
    items = [replace(schedule_view(stage, entry), records=[]) for entry in entries]
    return view.json(Page(items, None))


@routes.post(
    "/schedules",
    operator=True,
    body=NewSchedule,
    answers={201: ScheduleObject},
    problems={404: "no such blueprint", 409: "another schedule has that name"},
)
async def create(request: web.Request) -> web.Response:
    """Make a schedule. For operators only.

    Its members are those of a table of `schedules.toml`, and `name`. The first tick is the next one from now. The very same schedule
    again is fine.
    """
    stage = request.app[STAGE]
    wanted = await bodies.take(request, NewSchedule)
    members = {name: value for name, value in asdict(wanted).items() if name != "name"}
    schedule = Schedule(**members)
    entry = await stage.services.schedules.create(caller_of(request), wanted.name, schedule)
    return view.json(schedule_view(stage, entry), 201, {"Location": f"{request.path}/{wanted.name}"})


@routes.get("/schedules/{schedule}", operator=True, answers={200: ScheduleObject}, problems=_UNKNOWN)
async def get(request: web.Request) -> web.Response:
    """Look at a schedule, and at what became of its last ticks. For operators only.

    `records`, newest first: `started` and `triggered` name the job; `skipped` says why (`missed`, `outside_window`,
    `superseded`, `overlap`, `replaced`, `paused`, `refused` or the code of a refusal) and for how many ticks in a row.
    """
    stage, name = request.app[STAGE], request.match_info["schedule"]
    return view.json(schedule_view(stage, await stage.services.schedules.get(caller_of(request), name)))


@routes.get(
    "/schedules/{schedule}/next",
    operator=True,
    parameters=[COUNT],
    answers={200: Page[Tick]},
    problems=_UNKNOWN,
)
async def coming(request: web.Request) -> web.Response:
    """Tell the next ticks of a schedule. For operators only.

    As if it were not paused.
    """
    stage, name = request.app[STAGE], request.match_info["schedule"]
    count = parameters.whole(request, "count", 10, 1, _MOST)
    ticks = await stage.services.schedules.next_ticks(caller_of(request), name, count)
    show = view.clock_of(stage.config)
    return view.json(Page([Tick(show(each.tick), show(each.fires_at)) for each in ticks], None))


@routes.post(
    "/schedules/{schedule}/pause",
    operator=True,
    body=ReasonBody,
    body_required=False,
    answers={200: ScheduleObject},
    problems=_UNKNOWN,
)
async def pause(request: web.Request) -> web.Response:
    """Let nothing fire until it is resumed. For operators only.

    Ticks are recorded as skipped. Jobs that run go on. Twice is fine.
    """
    stage, name = request.app[STAGE], request.match_info["schedule"]
    body = await bodies.take_optional(request, ReasonBody)
    entry = await stage.services.schedules.pause(caller_of(request), name, body.reason)
    return view.json(schedule_view(stage, entry))


@routes.post(
    "/schedules/{schedule}/resume",
    operator=True,
    body=ReasonBody,
    body_required=False,
    answers={200: ScheduleObject},
    problems=_UNKNOWN,
)
async def resume(request: web.Request) -> web.Response:
    """Let a schedule fire again, from now on. For operators only.

    What came while it was paused stays skipped. Twice is fine.
    """
    stage, name = request.app[STAGE], request.match_info["schedule"]
    body = await bodies.take_optional(request, ReasonBody)
    entry = await stage.services.schedules.resume(caller_of(request), name, body.reason)
    return view.json(schedule_view(stage, entry))


@routes.post(
    "/schedules/{schedule}/trigger",
    operator=True,
    parameters=[KEY],
    body=TriggerRequest,
    body_required=False,
    answers={202: Triggered},
    problems={404: "no such schedule, or its blueprint is not registered"},
)
async def trigger(request: web.Request) -> web.Response:
    """Start a job of a schedule now, whatever its ticks say. For operators only.

    Paused or not, and beside whatever runs. With an idempotency key twice is once.
    """
    stage, name = request.app[STAGE], request.match_info["schedule"]
    body = await bodies.take_optional(request, TriggerRequest)
    key = parameters.idempotency_key(request, body.idempotency_key)
    job_id = await stage.services.schedules.trigger(caller_of(request), name, key)
    place = request.path.removesuffix(f"/schedules/{name}/trigger")
    return view.json(Triggered(job_id), 202, {"Location": f"{place}/jobs/{job_id}"})


@routes.post(
    "/schedules/{schedule}/delete",
    operator=True,
    body=ReasonBody,
    body_required=False,
    answers={204: None},
    problems=_UNKNOWN | {409: "it stands in schedules.toml"},
)
async def delete(request: web.Request) -> web.Response:
    """Forget a schedule that was made here. For operators only.

    Its jobs stay. One that stands in `schedules.toml` can only be taken out there, or paused.
    """
    stage, name = request.app[STAGE], request.match_info["schedule"]
    await bodies.take_optional(request, ReasonBody)
    await stage.services.schedules.delete(caller_of(request), name)
    return web.Response(status=204)


def schedule_view(stage: Stage, entry: StoredSchedule) -> ScheduleObject:
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
        next=None if tick is None else show(fires_at(entry.name, tick, schedule, entry.calendar)),
        last_tick=show(state.last_tick),
        last_job_id=state.last_job_id,
        fired=state.fired,
        skipped=state.skipped,
        buffered=show(state.buffered),
        schedule=msgspec.to_builtins(schedule),
        records=[_shown(record, show) for record in reversed(state.records)],
    )


def _shown(record: ScheduleRecord, show: TimeFormat) -> ScheduleRecord:
    return replace(record, at=show(record.at), tick=show(record.tick), last=show(record.last))
