"""Search: the one way to find and count jobs, for the API, the command line and whoever comes later.

History, and what is still on its way there: a job that was just accepted is found at once.
"""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from ..errors import BadQuery
from ..model import Summary
from ..model.attributes import Attributes
from ..storage.base import Outbox
from .base import HistoryStorage
from .listfilter import Field, Place, Query, field_named, understand, warm
from .listfilter.evaluate import comes_after, fits, in_order, place_of
from .listfilter.index import stored
from .listfilter.tally import GROUPED, Tally, members_of

#: Unrecorded entries that a search takes into account. There are more only while history cannot keep up.
_UNRECORDED = 5000


class Found(NamedTuple):
    """A page of jobs."""

    rows: list[Summary]
    #: Where the next page begins, behind it; None at the end.
    end: Place | None


async def query_of(text: str, attributes: Attributes, tz: str = "UTC") -> Query:
    """What a text asks for, or BadQuery. Times without a zone are in `tz`."""
    if text:
        await asyncio.to_thread(warm)
    from zoneinfo import ZoneInfo  # a few milliseconds that a start can save

    return understand(text, attributes, ZoneInfo(tz))


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
    last = place_of(order, rows[-1]) if more else None
    found = {row.job_id: row for row in rows if row.job_id not in latest}
    for job_id, row in latest.items():
        place = place_of(order, row)
        if after is not None and comes_after(order, place, after) <= 0:
            continue
        # Beyond the last row of history, history knows more than it was asked for.
        if fits(query.where, row) and (last is None or comes_after(order, place, last) <= 0):
            found[job_id] = row
    page = in_order(order, found.values())
    more = more or len(page) > limit
    page = page[:limit]
    if not more:
        return Found(page, None)
    return Found(page, place_of(order, page[-1]) if page else last)


async def count_jobs(
    storage: Outbox, history: HistoryStorage, query: Query, by: Field | None = None, limit: int = 100
) -> Tally:
    """How many jobs fit, in all and in the largest groups, and how long those that have ended took."""
    latest = await _unrecorded(storage, history)
    beside = members_of(query, by, latest.values())
    return await history.tally(query, by, without=list(latest), beside=beside, limit=limit)


async def _unrecorded(storage: Outbox, history: HistoryStorage) -> Mapping[str, Summary]:
    """The newest summary of every job that history has not heard of, or not lately."""
    recorded = await history.cursor()
    entries = await storage.outbox(recorded, _UNRECORDED)
    return {entry.job_id: _as_kept(entry.summary) for entry in entries if entry.summary is not None}


def _as_kept(row: Summary) -> Summary:
    if not row.search_attributes:
        return row
    return replace(row, search_attributes=stored(row.search_attributes))
