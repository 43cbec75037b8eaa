"""LiveEventFeed: new events of jobs, passed to all subscriptions, each event once."""

import asyncio
import logging
from collections import OrderedDict, deque

from ..aio import resolve, wait_or_timeout
from ..clock import Clock
from ..errors import HistoryUnavailable, StorageError, StorageUnavailable
from ..history.base import HistoryStorage
from ..model import Event, OutboxEntry, job_id_of_task, split_attempt_id
from ..schemas.jobs import Progress
from ..storage.base import StorageBackend

log = logging.getLogger("regista.feed")

#: Events that may wait in one subscription. A slower reader is disconnected and resumes from its last event.
MAX_BEHIND = 1000
#: Hints may be lost, so the outbox is read this often anyway (FENCES 4).
RECHECK_S = 2.0
#: Entries that are read at once.
_PAGE = 1000
#: Cached clients of jobs: most entries of a job do not name its client.
_OWNERS_KEPT = 10_000


class LiveEvent:
    """One event, and the outbox entry that contained it. `body` caches its encoded form for all readers."""

    __slots__ = ("body", "event", "number", "offset")

    def __init__(self, event: Event, number: int = 0, offset: int = 0) -> None:
        self.event = event
        self.number = number
        self.offset = offset
        self.body: bytes | None = None


class EventSubscription:
    """A subscription to the events of one job, of the jobs of one client, or of all jobs.

    Events wait here until the reader takes them. A reader that is too slow is disconnected: what it has taken is
    complete, and it resumes from the id of its last event.
    """

    def __init__(self, job_id: str | None, client: str | None) -> None:
        self.job_id = job_id
        self.client = client
        #: All events behind this entry arrive.
        self.since = 0
        #: Some entries were missed: the store has them.
        self.missed = False
        self.slow = False
        self.over = False
        self._news: deque[LiveEvent | Progress] = deque()
        self._waiter: asyncio.Future[None] | None = None

    async def take(self, timeout_s: float) -> list[LiveEvent | Progress]:
        """The waiting events, or the next one. Empty after the timeout and after the end."""
        if not self._news and not self.over:
            self._waiter = asyncio.get_running_loop().create_future()
            await wait_or_timeout(self._waiter, timeout_s)
            self._waiter = None
        news = list(self._news)
        self._news.clear()
        return news

    def push(self, news: LiveEvent | Progress) -> None:
        """Adds an event or progress. Progress is dropped first when the subscription fills up."""
        room = MAX_BEHIND if isinstance(news, LiveEvent) else MAX_BEHIND // 2
        if self.over:
            return
        if len(self._news) < room:
            self._news.append(news)
        elif isinstance(news, LiveEvent):
            self.slow = self.over = True
        self._wake()

    def mark_missed(self) -> None:
        """Events may have been missed: the reader must read the store."""
        self.missed = True
        self._wake()

    def close(self) -> None:
        """Ends the subscription."""
        self.over = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None:
            resolve(self._waiter)


class LiveEventFeed:
    """Reads the outbox once for all subscriptions. It does nothing while there are none."""

    def __init__(self, storage: StorageBackend, history: HistoryStorage, clock: Clock) -> None:
        self._storage = storage
        self._history = history
        self._clock = clock
        self._by_job: dict[str, list[EventSubscription]] = {}
        self._wide: list[EventSubscription] = []
        self._owners: OrderedDict[str, str] = OrderedDict()
        #: The last entry that was passed on; None without subscriptions.
        self._cursor: int | None = None
        self._joining = asyncio.Lock()
        self._woken = asyncio.Event()
        self._pump: asyncio.Task[None] | None = None
        self._open = False

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Accepts subscriptions."""
        self._open = True

    def close(self) -> None:
        """Ends all subscriptions."""
        self._open = False
        for reader in self._readers():
            reader.close()

    async def stop(self) -> None:
        """The same, and stops reading. A second call changes nothing."""
        self.close()
        pump, self._pump = self._pump, None
        if pump is not None:
            pump.cancel()
            await asyncio.gather(pump, return_exceptions=True)
        self._cursor = None

    def _readers(self) -> list[EventSubscription]:
        return [*self._wide, *(reader for group in self._by_job.values() for reader in group)]

    # -- readers ---------------------------------------------------------------------------------

    async def subscribe(self, *, job_id: str | None = None, client: str | None = None) -> EventSubscription:
        """A subscription to everything that is flushed from now on. Earlier events are in the store and the history."""
        reader = EventSubscription(job_id, client)
        (self._wide if job_id is None else self._by_job.setdefault(job_id, [])).append(reader)
        if not self._open:
            reader.close()
            return reader
        try:
            async with self._joining:
                if self._cursor is None:
                    self._cursor = await self._newest()
        except BaseException:
            self.unsubscribe(reader)
            raise
        reader.since = self._cursor
        if self._pump is None:
            self._pump = asyncio.get_running_loop().create_task(self._run(), name="feed")
        self.wake()
        return reader

    def unsubscribe(self, reader: EventSubscription) -> None:
        """Ends a subscription. A second call changes nothing."""
        group = self._wide if reader.job_id is None else self._by_job.get(reader.job_id, [])
        if reader in group:
            group.remove(reader)
        if reader.job_id is not None and not group:
            self._by_job.pop(reader.job_id, None)

    async def _newest(self) -> int:
        """The number of the newest flushed entry."""
        newest = await self._recorded() or 0
        while entries := (await self._storage.outbox(newest, _PAGE)).entries:
            newest = entries[-1].number
        return newest

    async def _recorded(self) -> int | None:
        """The last entry in the history; None while it is away. Live events need the outbox only."""
        try:
            return await self._history.cursor()
        except HistoryUnavailable:
            return None

    # -- news ------------------------------------------------------------------------------------

    def wake(self) -> None:
        """New entries may be there. Cheap without subscriptions."""
        if self._pump is not None:
            self._woken.set()

    def progress(self, attempt_id: str, value: float | None, message: str) -> None:
        """Passes the progress of an attempt to the current subscriptions; it is not stored."""
        if self._pump is None:
            return
        task_id, _ = split_attempt_id(attempt_id)
        job_id = job_id_of_task(task_id)
        readers = [*self._by_job.get(job_id, ())]
        owner = self._owners.get(job_id)
        readers += [one for one in self._wide if one.client is None or one.client == owner]
        if readers:
            at = self._clock.now()
            news = Progress(
                at=at, job_id=job_id, task_id=task_id, attempt_id=attempt_id, progress=value, message=message
            )
            for reader in readers:
                reader.push(news)

    async def owner_of(self, entry: OutboxEntry) -> str:
        """The client that the entry's job belongs to."""
        if entry.summary is not None:
            found = entry.summary.client
        elif (known := self._owners.get(entry.job_id)) is not None:
            return known
        else:
            (job,), _ = await self._storage.load([entry.job_id])
            found = "" if job is None else job.client
        self._owners[entry.job_id] = found
        if len(self._owners) > _OWNERS_KEPT:
            self._owners.popitem(last=False)
        return found

    async def _run(self) -> None:
        while self._by_job or self._wide:
            try:
                async with asyncio.timeout(RECHECK_S):
                    await self._woken.wait()
                quiet = False
            except TimeoutError:
                quiet = True
            self._woken.clear()
            try:
                if quiet:
                    await self._look_behind()
                while await self._step():
                    pass
            except StorageUnavailable:
                await asyncio.sleep(
                    RECHECK_S
                )  # the store logs the outage; the gap in the numbers is read from the store
            except StorageError:
                self.close()  # the orchestrator stops
                break
            except Exception:
                log.exception(
                    "reading the outbox failed; the next wake tries again", extra={"action": "feed"}
                )
        self._pump = self._cursor = None

    async def _look_behind(self) -> None:
        """Entries whose hint was lost may be recorded and pruned by now (FENCES 4)."""
        recorded = await self._recorded()
        if self._cursor is not None and recorded is not None and recorded > self._cursor:
            self._cursor = recorded
            for reader in self._readers():
                reader.mark_missed()

    async def _step(self) -> bool:
        """Passes on one page of entries; True when there may be more."""
        cursor = self._cursor or 0
        entries = (await self._storage.outbox(cursor, _PAGE)).entries
        for entry in entries:
            if entry.number != cursor + 1:
                # Recorded and pruned already, or numbers skipped at a restart: readers look into the store.
                for reader in self._wide:
                    reader.mark_missed()
            cursor = entry.number
            await self._pass_on(entry)
        self._cursor = cursor
        return len(entries) == _PAGE

    async def _pass_on(self, entry: OutboxEntry) -> None:
        readers = [*self._by_job.get(entry.job_id, ()), *await self._wide_readers(entry)]
        if readers:
            for offset, event in enumerate(entry.numbered()):
                live = LiveEvent(event, entry.number, offset)
                for reader in readers:
                    reader.push(live)

    async def _wide_readers(self, entry: OutboxEntry) -> list[EventSubscription]:
        if not self._wide:
            return []
        owner = await self.owner_of(entry)
        return [reader for reader in self._wide if reader.client is None or reader.client == owner]
