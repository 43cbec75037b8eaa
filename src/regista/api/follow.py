"""Follow: history, then what happens live, without gap or duplicate (FENCES 4).

A follower joins the feed first and reads the store and history afterwards: whatever falls in between it
hears twice, and tells once.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import ParamSpec, TypeVar

from ..engines.live_events import EventSubscription, LiveEvent, LiveEventFeed
from ..errors import HistoryUnavailable, StorageUnavailable
from ..history.reader import read_events
from ..model import EventType, Job, OutboxEntry
from ..schemas.jobs import Progress
from .stage import Stage

#: Seconds of silence after which a follower yields nothing, so that its connection shows a sign of life.
QUIET_S = 15.0
#: Seconds after which a store that was away is asked again.
AWAY_S = 1.0
#: Events, or entries, read at once.
_PAGE = 500

News = list[LiveEvent | Progress]
#: An entry's number, and the place of an event in it.
Place = tuple[float, float]

T = TypeVar("T")
P = ParamSpec("P")


class TooSlow(Exception):
    """The reader let too much gather. It may come back with the id of the last event that it got."""


async def follow_job(stage: Stage, feed: LiveEventFeed, job: Job, after: int) -> AsyncIterator[News]:
    """What happened to a job after that seq, and what happens, to its end. Yields nothing when all is quiet."""
    reader = await feed.join(job_id=job.id)
    try:
        last = after
        while page := await _outlast(reader, _events, stage, job.id, last):
            yield [*page]
            last = page[-1].event.seq
            if _is_end(page):
                return
        while not reader.over or reader.slow:
            news = await reader.take(QUIET_S)
            if not news and reader.slow:
                raise TooSlow
            # A lost hint, or an entry that was pruned before we came, is found in the store.
            told = [one for one in news if isinstance(one, LiveEvent)]
            if not news or (told and told[0].event.seq > last + 1):
                news = [
                    *(one for one in news if not isinstance(one, LiveEvent)),
                    *(await _outlast(reader, _events, stage, job.id, last) or ()),
                ]
            fresh = [one for one in news if isinstance(one, Progress) or one.event.seq > last]
            last = max((one.event.seq for one in fresh if isinstance(one, LiveEvent)), default=last)
            if fresh or not news:
                yield fresh
            if _is_end(fresh):
                return
    finally:
        feed.leave(reader)


async def _events(stage: Stage, job_id: str, after: int) -> list[LiveEvent]:
    try:
        events = await read_events(stage.storage, stage.history, job_id, after, _PAGE)
    except HistoryUnavailable:
        events = await stage.storage.tail(job_id, after)
        # Without a gap it is the whole story so far. What else there may be, a gap in what comes live will show.
        if not (events[0].seq == after + 1 if events else after):
            raise
    return [LiveEvent(event) for event in events[:_PAGE]]


def _is_end(news: Sequence[LiveEvent | Progress]) -> bool:
    return any(isinstance(one, LiveEvent) and one.event.type is EventType.JOB_FINISHED for one in news)


async def follow_all(
    stage: Stage, feed: LiveEventFeed, client: str | None, after: Place | None
) -> AsyncIterator[News]:
    """What happened to all jobs of a client (None: of everybody) after that place, and what happens.

    Without a place it begins now. Yields nothing when all is quiet.
    """
    reader = await feed.join(client=client)
    try:
        place: Place = (reader.since, math.inf) if after is None else after
        reader.missed = after is not None
        while not reader.over or reader.slow:
            if reader.missed:
                reader.missed = False
                async for page in _catch_up(stage, feed, reader, place):
                    yield [*page]
                    place = (page[-1].number, page[-1].offset)
            news = await reader.take(QUIET_S)
            if not news and reader.slow:
                raise TooSlow
            if reader.missed:
                continue  # all of it is in the store, in order
            fresh = [one for one in news if isinstance(one, Progress) or (one.number, one.offset) > place]
            place = max(
                ((one.number, one.offset) for one in fresh if isinstance(one, LiveEvent)), default=place
            )
            if fresh or not news:
                yield fresh
    finally:
        feed.leave(reader)


async def _catch_up(
    stage: Stage, feed: LiveEventFeed, reader: EventSubscription, place: Place
) -> AsyncIterator[list[LiveEvent]]:
    """Everything recorded after the place, then what is not recorded yet."""
    base = int(place[0]) - (0 if place[1] == math.inf else 1)  # the entry itself may have been cut short
    while found := await _outlast(reader, _entries, stage, feed, reader.client, base):
        entries, base = found
        page = [told for told in _told(entries) if (told.number, told.offset) > place]
        if page:
            yield page


async def _entries(
    stage: Stage, feed: LiveEventFeed, client: str | None, base: int
) -> tuple[Sequence[OutboxEntry], int] | None:
    """The next entries after this number that concern the client, and how far they reach; None after the last."""
    # The outbox first: an entry leaves it only when it is recorded.
    unrecorded = await stage.storage.outbox(base, _PAGE)
    entries, upto = await stage.history.entries(base, _PAGE, client)
    if upto != base:
        return entries, upto
    if not unrecorded:
        return None
    mine = [one for one in unrecorded if client is None or await feed.owner(one) == client]
    return mine, unrecorded[-1].number


async def _outlast(
    reader: EventSubscription, ask: Callable[P, Awaitable[T]], *asked: P.args, **more: P.kwargs
) -> T | None:
    """What the store says, however long it is away; None when the reader is over before that.

    The stream stays open meanwhile: to a browser a refusal at its return would be final.
    """
    while True:
        try:
            return await ask(*asked, **more)
        except StorageUnavailable:
            if reader.over:
                return None
        await asyncio.sleep(AWAY_S)


def _told(entries: Sequence[OutboxEntry]) -> list[LiveEvent]:
    return [
        LiveEvent(event, entry.number, offset)
        for entry in entries
        for offset, event in enumerate(entry.numbered())
    ]
