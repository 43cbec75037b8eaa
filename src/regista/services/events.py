"""Events of jobs as they happen: first the stored ones, then the live ones, without gap or duplicate (FENCES 4).

A subscription to the live feed begins before store and history are read. Events in between are received
twice and passed on once.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import ParamSpec, TypeVar

from ..engines.live_events import EventSubscription, LiveEvent, LiveEventFeed
from ..errors import HistoryUnavailable, StorageUnavailable
from ..history.base import HistoryStorage
from ..history.reader import read_events
from ..model import EventType, Job, OutboxEntry
from ..schemas.jobs import Progress
from ..storage.base import Outbox
from .caller import Caller
from .jobs import JobService

#: Seconds of silence after which a follower yields an empty list, so that its connection shows a sign of life.
QUIET_S = 15.0
#: Seconds until a store that is unavailable is asked again.
RETRY_S = 1.0
#: Events, or outbox entries, that are read at once.
_PAGE = 500

News = list[LiveEvent | Progress]
#: The number of an outbox entry, and the position of an event in it.
Position = tuple[float, float]

T = TypeVar("T")
P = ParamSpec("P")


class SlowReader(Exception):
    """The reader let too many events gather. It may come back with the id of the last one that it got."""


class EventService:
    """Follows the events of jobs: of a client's own, or of all for an operator."""

    def __init__(
        self, jobs: JobService, feed: LiveEventFeed, storage: Outbox, history: HistoryStorage
    ) -> None:
        self._jobs = jobs
        self._feed = feed
        self._storage = storage
        self._history = history

    async def follow_job(self, caller: Caller, job_id: str, after_seq: int = 0) -> AsyncIterator[News] | None:
        """The events of the job above `after_seq`, to its end; None if it has ended and there are no more.

        JobNotFound is raised here. The iterator yields an empty list when all is quiet, and raises SlowReader.
        """
        job = await self._jobs.get(caller, job_id)
        if job.status.terminal and not await read_events(self._storage, self._history, job_id, after_seq, 1):
            return None
        return self._follow_job(job, after_seq)

    async def follow_all(self, caller: Caller, after: Position | None) -> AsyncIterator[News]:
        """The events of all jobs that the caller may see, behind this position, or from now on.

        Yields an empty list when all is quiet; raises SlowReader.
        """
        subscription = await self._feed.subscribe(client=caller.visible_client)
        try:
            position: Position = (subscription.since, math.inf) if after is None else after
            subscription.missed = after is not None
            while not subscription.over or subscription.slow:
                if subscription.missed:
                    subscription.missed = False
                    async for page in self._read_missed(subscription, position):
                        yield [*page]
                        position = (page[-1].number, page[-1].offset)
                news = await subscription.take(QUIET_S)
                if not news and subscription.slow:
                    raise SlowReader
                if subscription.missed:
                    continue  # all of it is in the store, in order
                fresh = [
                    one for one in news if isinstance(one, Progress) or (one.number, one.offset) > position
                ]
                position = max(
                    ((one.number, one.offset) for one in fresh if isinstance(one, LiveEvent)),
                    default=position,
                )
                if fresh or not news:
                    yield fresh
        finally:
            self._feed.unsubscribe(subscription)

    # -- one job ---------------------------------------------------------------------------------

    async def _follow_job(self, job: Job, after_seq: int) -> AsyncIterator[News]:
        subscription = await self._feed.subscribe(job_id=job.id)
        try:
            last = after_seq
            while page := await _retry_while_unavailable(subscription, self._stored, job.id, last):
                yield [*page]
                last = page[-1].event.seq
                if _has_end(page):
                    return
            while not subscription.over or subscription.slow:
                news = await subscription.take(QUIET_S)
                if not news and subscription.slow:
                    raise SlowReader
                # A lost hint, or an entry that was pruned before we subscribed, is found in the store.
                events = [one for one in news if isinstance(one, LiveEvent)]
                if not news or (events and events[0].event.seq > last + 1):
                    news = [
                        *(one for one in news if not isinstance(one, LiveEvent)),
                        *(await _retry_while_unavailable(subscription, self._stored, job.id, last) or ()),
                    ]
                fresh = [one for one in news if isinstance(one, Progress) or one.event.seq > last]
                last = max((one.event.seq for one in fresh if isinstance(one, LiveEvent)), default=last)
                if fresh or not news:
                    yield fresh
                if _has_end(fresh):
                    return
        finally:
            self._feed.unsubscribe(subscription)

    async def _stored(self, job_id: str, after_seq: int) -> list[LiveEvent]:
        try:
            events = await read_events(self._storage, self._history, job_id, after_seq, _PAGE)
        except HistoryUnavailable:
            events = await self._storage.tail(job_id, after_seq)
            # Without a gap this is everything so far. A gap in the live events shows what else there may be.
            if not (events[0].seq == after_seq + 1 if events else after_seq):
                raise
        return [LiveEvent(event) for event in events[:_PAGE]]

    # -- all jobs --------------------------------------------------------------------------------

    async def _read_missed(
        self, subscription: EventSubscription, position: Position
    ) -> AsyncIterator[list[LiveEvent]]:
        """Everything recorded behind the position, then what is not recorded yet."""
        base = int(position[0]) - (0 if position[1] == math.inf else 1)  # the entry may have been cut short
        while found := await _retry_while_unavailable(subscription, self._entries, subscription.client, base):
            entries, base = found
            page = [event for event in _events_of(entries) if (event.number, event.offset) > position]
            if page:
                yield page

    async def _entries(self, client: str | None, base: int) -> tuple[Sequence[OutboxEntry], int] | None:
        """The next entries above this number that concern the client, and how far they reach; None at the end."""
        # The outbox first: an entry leaves it only when it is recorded.
        unrecorded = (await self._storage.outbox(base, _PAGE)).entries
        entries, upto = await self._history.entries(base, _PAGE, client)
        if upto != base:
            return entries, upto
        if not unrecorded:
            return None
        own = [one for one in unrecorded if client is None or await self._feed.owner_of(one) == client]
        return own, unrecorded[-1].number


async def _retry_while_unavailable(
    subscription: EventSubscription, ask: Callable[P, Awaitable[T]], *arguments: P.args, **named: P.kwargs
) -> T | None:
    """The answer of the store, however long it is unavailable; None if the subscription ends before.

    The stream stays open meanwhile: for a browser an error at its return would be final.
    """
    while True:
        try:
            return await ask(*arguments, **named)
        except StorageUnavailable:
            if subscription.over:
                return None
        await asyncio.sleep(RETRY_S)


def _has_end(news: Sequence[LiveEvent | Progress]) -> bool:
    return any(isinstance(one, LiveEvent) and one.event.type is EventType.JOB_FINISHED for one in news)


def _events_of(entries: Sequence[OutboxEntry]) -> list[LiveEvent]:
    return [
        LiveEvent(event, entry.number, offset)
        for entry in entries
        for offset, event in enumerate(entry.numbered())
    ]
