"""Listing: a page of jobs, from history and from what is still on its way there."""

from datetime import datetime, timedelta
from typing import Any

from ..clock import EPOCH
from ..history.base import Place
from ..model import Summary
from ..wire.jobs import Bill, Fault, JobObject
from ..wire.pages import Page, token_of
from ..wire.story import job_object
from . import view
from .stage import Stage

#: Unrecorded entries that a list takes into account. There are more only while history cannot keep up.
_UNRECORDED = 5000
_MICROSECOND = timedelta(microseconds=1)


async def list_jobs(
    stage: Stage,
    *,
    client: str | None,
    status: str | None,
    blueprint: str | None,
    before: tuple[int, str] | None,
    limit: int,
) -> Page[JobObject]:
    """The jobs that fit, newest first. `before` is where the page before has ended."""
    asked = {"client": client, "status": status, "blueprint": blueprint}
    place = None if before is None else (_moment(before[0]), before[1])
    # The outbox first: an entry leaves it only when it is recorded, so what is missing there is in history.
    latest = await _unrecorded(stage)
    rows = await stage.history.summaries(**asked, before=place, limit=limit + 1)
    more = len(rows) > limit
    found = {row.job_id: row for row in rows}
    for job_id, summary in latest.items():
        if _fits(summary, asked, place):
            found[job_id] = summary
        else:
            found.pop(job_id, None)
    if more:  # beyond the last row of history, history knows more than we have asked for
        last = _place(rows[-1])
        found = {job_id: row for job_id, row in found.items() if _place(row) >= last}
    page = sorted(found.values(), key=_place, reverse=True)
    more = more or len(page) > limit
    page = page[:limit]
    end = _place(page[-1] if page else rows[-1]) if more else None
    items = [await _item(stage, row) for row in page]
    return Page(items, None if end is None else token_of(((end[0] - EPOCH) // _MICROSECOND, end[1])))


async def _unrecorded(stage: Stage) -> dict[str, Summary]:
    """The newest summary of every job that history has not heard of, or not lately."""
    recorded = await stage.history.cursor()
    entries = await stage.storage.outbox(recorded, _UNRECORDED)
    return {entry.job_id: entry.summary for entry in entries if entry.summary is not None}


def _fits(summary: Summary, asked: dict[str, Any], before: Place | None) -> bool:
    wanted = all(value is None or getattr(summary, name) == value for name, value in asked.items())
    return wanted and (before is None or _place(summary) < before)


def _place(row: Summary) -> Place:
    return row.created_at, row.job_id


def _moment(microseconds: int) -> datetime:
    try:
        return EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:  # a token that somebody made up; nothing is older
        return EPOCH


async def _item(stage: Stage, row: Summary) -> JobObject:
    """The job as it is now; what history remembers of it, where the store has let go of it."""
    show = view.clock_of(stage.config)
    job = await stage.storage.get(row.job_id)
    if job is not None:
        return job_object(job, show=show)
    return JobObject(
        id=row.job_id,
        blueprint=row.blueprint,
        version=row.version,
        status=row.status,
        state=row.state,
        input={},
        data={},
        result=None,
        error=None if row.error_code is None else Fault(row.error_code),
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
