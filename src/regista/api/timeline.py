"""The timeline of a job over HTTP: one call, all spans."""

from aiohttp import web

from ..history.projection import JobProjection
from ..history.reader import read_events
from ..history.timeline import Timeline
from ..model import Event
from . import view
from .operations import Operations
from .stage import STAGE, Stage

routes = Operations("jobs")

#: Events that are read in one go, and at most: a job of more is told up to there.
_PAGE, _MOST = 5000, 50_000


@routes.get("/jobs/{job_id}/timeline", answers={200: Timeline}, problems={404: "no such job of yours"})
async def timeline(request: web.Request) -> web.Response:
    """Tell a job's life as spans of time.

    The states that it visited, in each the tasks with their attempts, and every wait with its reason: for a `worker`, a
    `retry`, a person (`human`), a `child`, a `timer`, a release (`release`) or the end of a cancellation (`cancel`). What goes on has no end
    yet. It follows from the events; `truncated` where there are too many to tell.
    """
    stage = request.app[STAGE]
    job = await view.own_job(request)
    events, truncated = await _events(stage, job.id)
    show = view.clock_of(stage.config)
    projection = JobProjection(job.id)
    for event in events:
        projection.apply(view.shown(event, show))
    return view.json(projection.timeline(show(stage.clock.now()), job.status.value, truncated))


async def _events(stage: Stage, job_id: str) -> tuple[list[Event], bool]:
    events: list[Event] = []
    while len(events) < _MOST:
        after = events[-1].seq if events else 0
        page = await read_events(stage.storage, stage.history, job_id, after, _PAGE)
        events += page
        if len(page) < _PAGE:
            return events, False
    return events, True
