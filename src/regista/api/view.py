"""View: jobs and events as answers. Everything shown is flushed (FENCES 1)."""

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec
from aiohttp import hdrs, web
from msgspec.structs import replace

from ..config import Config
from ..errors import HistoryUnavailable, JobNotFound
from ..history.reader import read_events_of_jobs
from ..model import ClientConfig, Event, Job, JobStatus
from ..schemas.job_view import TimeFormat, as_stored, job_view
from ..schemas.jobs import JobObject
from .stage import CLIENT, STAGE, Stage

#: Events from which the attempts of a job are told; `/history` has all of them.
_STORY = 1000
_WAITING_FOR_HUMAN = JobStatus.WAITING_FOR_HUMAN
#: Ended jobs whose answer is remembered.
_SHOWN = 256
_JSON: dict[str, str] = {hdrs.CONTENT_TYPE: "application/json; charset=utf-8"}
encode = msgspec.json.Encoder().encode


def json(answer: object, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    """An answer of records."""
    return web.Response(body=encode(answer), status=status, headers=_JSON | (headers or {}))


def clock_of(config: Config) -> TimeFormat:
    """How this orchestrator shows times: in its zone."""
    return as_stored if config.tz == "UTC" else _shown_in(config.tz)


@lru_cache(maxsize=8)
def _shown_in(tz: str) -> TimeFormat:
    from zoneinfo import ZoneInfo  # a few milliseconds that most starts can save

    zone = ZoneInfo(tz)

    def show(moment: datetime | None) -> Any:
        return None if moment is None else moment.astimezone(zone)

    return show


def shown(event: Event, show: TimeFormat) -> Event:
    """The event with its time in the zone of this orchestrator."""
    return event if show is as_stored else replace(event, at=show(event.at))


def may_see(client: ClientConfig, job: Job) -> bool:
    """Nothing of a client is visible to another one; an operator sees everything."""
    return client.operator or job.client == client.name


async def own_job(request: web.Request) -> Job:
    """The job that the path names, if it is the asker's; JobNotFound says the same of others' and of none."""
    job_id = request.match_info["job_id"]
    job = await request.app[STAGE].engine.get(job_id)
    if not may_see(request[CLIENT], job):
        raise JobNotFound(job_id)
    return job


async def current(stage: Stage, job_id: str) -> JobObject:
    """The job as it is now, with its open tasks."""
    # Tasks first: `get` waits until what they show is flushed, too.
    tasks = await stage.storage.tasks_of(job_id)
    job = await stage.engine.get(job_id)
    if job.status.terminal:
        tasks = []
    token = stage.engine.approval_token(job) if job.status is _WAITING_FOR_HUMAN else None
    stories = await _stories(stage, [job_id])
    shown = job_view(job, stories.get(job_id, ()), tasks, token, clock_of(stage.config))
    return shown if job_id in stories else _without_story(shown)


def fresh(stage: Stage, job: Job) -> JobObject:
    """A job that was just taken on, as it was written: nobody has to look at its tasks or its events for that."""
    token = stage.engine.approval_token(job) if job.status is _WAITING_FOR_HUMAN else None
    return job_view(job, token=token, show=clock_of(stage.config))


async def all_ended(stage: Stage, jobs: Sequence[Job], attempts: bool = True) -> list[JobObject]:
    """Jobs that have settled, or were just changed and need no second look.

    History is asked once for all, or not at all where nobody wants the attempts.
    """
    if not attempts:
        show = clock_of(stage.config)
        return [job_view(job, show=show) for job in jobs]
    new = [job.id for job in jobs if job.status.terminal and job.id not in stage.shown]
    stories = await _stories(stage, new) if new else {}
    show = clock_of(stage.config)
    items = []
    for job in jobs:
        events = stories.get(job.id)
        if events is not None:
            stage.shown[job.id] = job_view(job, events, show=show)
        known = stage.shown.get(job.id)
        if known is None:
            away = job.status.terminal
            known = _without_story(job_view(job, show=show)) if away else await current(stage, job.id)
        items.append(known)
    while len(stage.shown) > _SHOWN:
        stage.shown.popitem(last=False)
    return items


async def _stories(stage: Stage, job_ids: Sequence[str]) -> dict[str, list[Event]]:
    """The stories of these jobs; none while history is away: what the store knows of a job is shown all the same."""
    try:
        return await read_events_of_jobs(stage.storage, stage.history, job_ids, _STORY)
    except HistoryUnavailable:
        return {}


def _without_story(shown: JobObject) -> JobObject:
    return replace(shown, incomplete=["attempts", "bill"])


async def story(stage: Stage, job_id: str) -> Sequence[Event]:
    """The events that tell of the attempts: from memory while all of them are there, else from history too."""
    return (await read_events_of_jobs(stage.storage, stage.history, [job_id], _STORY))[job_id]


async def answer(
    stage: Stage,
    job: Job,
    status: int = 200,
    headers: dict[str, str] | None = None,
    *,
    whose: bool = False,
) -> web.Response:
    """The job, as an answer; `whose` says whose it is, which is for operators."""
    (shown,) = await all_ended(stage, [await stage.filing.seen(job)])
    return json(replace(shown, client=job.client) if whose else shown, status, headers)
