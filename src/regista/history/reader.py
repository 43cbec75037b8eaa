"""Search: the one way to find and count jobs, for the API, the command line and whoever comes later.

History, and what is still on its way there: a job that was just accepted is found at once.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from ..errors import BadQuery
from ..model import Event, JobSummary
from ..model.attributes import Attributes
from ..storage.base import Outbox
from .base import HistoryStorage
from .query import Field, Place, Query, field_named, parse_query, warm
from .query.counts import GROUPED, JobCounts, members_of
from .query.evaluate import comes_after, in_order, matches, sort_position
from .query.index import stored

#: Unrecorded entries that a search takes into account. There are more only while history cannot keep up.
_UNRECORDED = 5000


class Found(NamedTuple):
    """A page of jobs."""

    rows: list[JobSummary]
    #: Where the next page begins, behind it; None at the end.
    end: Place | None


async def query_of(text: str, attributes: Attributes, tz: str = "UTC") -> Query:
    """What a text asks for, or BadQuery. Times without a zone are in `tz`."""
    if text:
        await asyncio.to_thread(warm)
    from zoneinfo import ZoneInfo  # a few milliseconds that a start can save

    return parse_query(text, attributes, ZoneInfo(tz))


def group_of(name: str, attributes: Attributes) -> Field:
    """The field that jobs are to be grouped by, or BadQuery."""
    field = field_named(name, attributes)
    if field.kind not in GROUPED:
        raise BadQuery(0, "an attribute that jobs can be grouped by", f"{name}, which is {field.kind}")
    return field


async def find_jobs(
    storage: Outbox, history: HistoryStorage, query: Query, after: Place | None = None, limit: int = 100
) -> Found:
    """The jobs that fit, in the order of the query, behind a place in it."""
    # The outbox first: an entry leaves it only when it is recorded, so what is missing there is in history.
    latest = await _unrecorded(storage, history)
    rows = await history.search(query, after, limit + 1)
    order = query.order
    more = len(rows) > limit
    last = sort_position(order, rows[-1]) if more else None
    found = {row.job_id: row for row in rows if row.job_id not in latest}
    for job_id, row in latest.items():
        place = sort_position(order, row)
        if after is not None and comes_after(order, place, after) <= 0:
            continue
        # Beyond the last row of history, history knows more than it was asked for.
        if matches(query.where, row) and (last is None or comes_after(order, place, last) <= 0):
            found[job_id] = row
    page = in_order(order, found.values())
    more = more or len(page) > limit
    page = page[:limit]
    if not more:
        return Found(page, None)
    return Found(page, sort_position(order, page[-1]) if page else last)


async def count_jobs(
    storage: Outbox, history: HistoryStorage, query: Query, by: Field | None = None, limit: int = 100
) -> JobCounts:
    """How many jobs fit, in all and in the largest groups, and how long those that have ended took."""
    latest = await _unrecorded(storage, history)
    beside = members_of(query, by, latest.values())
    return await history.count(query, by, without=list(latest), beside=beside, limit=limit)


async def _unrecorded(storage: Outbox, history: HistoryStorage) -> Mapping[str, JobSummary]:
    """The newest summary of every job that history has not heard of, or not lately."""
    recorded = await history.cursor()
    entries = (await storage.outbox(recorded, _UNRECORDED)).entries
    return {entry.job_id: _as_kept(entry.summary) for entry in entries if entry.summary is not None}


def _as_kept(row: JobSummary) -> JobSummary:
    if not row.search_attributes:
        return row
    return replace(row, search_attributes=stored(row.search_attributes))


async def read_events(
    storage: Outbox, history: HistoryStorage, job_id: str, after_seq: int = 0, limit: int = 1000
) -> list[Event]:
    """The events of a job above `after_seq`: history, and what is not recorded yet (FENCES 4).

    In order, without gap or duplicate, while the recorder runs. The outbox is read first: an entry
    leaves it only when it is recorded, so whatever is missing there is found in history afterwards.
    The other way round, an entry could be recorded and pruned between the two looks and be in neither.
    """
    unrecorded = await storage.tail(job_id, after_seq)
    return _joined(await history.events(job_id, after_seq, limit), unrecorded)[:limit]


def _joined(recorded: list[Event], tail: list[Event]) -> list[Event]:
    """What history has, and what the outbox has. Where they differ the story was told anew, and history does not know it yet."""
    known = {event.seq: event for event in tail}
    if any(known.get(event.seq, event) != event for event in recorded):
        return [event for event in recorded if event.seq < tail[0].seq] + tail
    last = recorded[-1].seq if recorded else 0
    return recorded + [event for event in tail if event.seq > last]


async def read_events_of_jobs(
    storage: Outbox, history: HistoryStorage, job_ids: Sequence[str], limit: int = 1000
) -> dict[str, list[Event]]:
    """The first events of several jobs. Those whose outbox still has everything cost history nothing."""
    found: dict[str, list[Event]] = {}
    partly: dict[str, list[Event]] = {}
    for job_id in job_ids:
        tail = await storage.tail(job_id, 0)
        (found if tail and tail[0].seq == 1 else partly)[job_id] = tail
    if partly:
        recorded = await history.events_of_jobs(list(partly), limit)
        for job_id, tail in partly.items():
            found[job_id] = _joined(recorded.get(job_id, []), tail)[:limit]
    return found
