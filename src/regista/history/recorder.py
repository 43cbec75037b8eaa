"""HistoryRecorder: carries events from the store's outbox to history, behind the jobs and never in their way."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from ..aio import wait_for_event
from ..clock import Clock, SystemClock
from ..errors import StorageUnavailable
from ..model import OutboxEntry
from ..storage.base import Outbox
from .base import HistoryStorage

logger = logging.getLogger("regista.history")

#: Entries recorded in one go. One batch of many is far cheaper than many of a few.
BATCH_LIMIT = 2000
#: How long a wake waits for company, so that small commits pool: a batch costs a third of a
#: millisecond before its first row. Readers do not wait for it: they see the outbox too.
POOL_S = 0.05
#: The same while much is going on: by then most jobs have come and gone, and their rows are written once.
BUSY_POOL_S = 0.25
#: What "much" is: entries of the batch before, so about three hundred jobs a second.
BUSY = 32
#: A hint may get lost, so the outbox is looked at this often anyway.
RECHECK_S = 2.0
#: How long a recorder that leads stays the only one without another word. Shorter than the longest wait after a
#: failure: one that cannot reach history gives way to one that can.
LEAD_S = 2 * RECHECK_S
#: Entries behind which a sync is worth its fsync while there is more to record.
SYNC_EVERY = 2000
#: Never sooner than this after the last sync.
SYNC_INTERVAL_S = 1.0
#: Waiting after the first failure in a row, and at most.
BACKOFF_S, MAX_BACKOFF_S = 0.1, 5.0


class HistoryRecorder:
    """Moves entries in batches, and prunes the outbox only behind what history has synced.

    Whatever fails is tried again from the cursor that history itself reports, so a crash anywhere
    between `record` and `prune` costs a repeated write that changes nothing. Two recorders at once
    are correct too, only wasteful: on a shared store `lead` says whether it is this one's turn (None: always).
    Both storages are started before and stopped after the recorder.
    """

    def __init__(
        self,
        storage: Outbox,
        history: HistoryStorage,
        *,
        clock: Clock | None = None,
        limit: int = BATCH_LIMIT,
        lead: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        self._lead = lead
        self._storage = storage
        self._history = history
        self._clock = clock if clock is not None else SystemClock()
        self._limit = limit
        self._turn = asyncio.Lock()
        #: The last entry that is surely recorded. None: ask history.
        self._cursor: int | None = None
        #: Entries recorded since the last sync, at least.
        self._unsynced = 0
        #: Entries that it has carried over since the start.
        self.recorded = 0
        #: Entries of the last batch.
        self._last = 0
        self._synced_at = float("-inf")
        #: Entries that the store tells anew, with numbers of ours.
        self._anew: list[OutboxEntry] = []
        self._pruned = 0
        self._woken = asyncio.Event()
        self._stopping = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to record in the background. Twice is fine."""
        if self._loop is None:
            self._stopping.clear()
            self._woken.set()  # there may be a backlog
            self._loop = asyncio.create_task(self._run(), name="history-recorder")

    async def stop(self) -> None:
        """Record what is flushed, then end. Twice is fine, and so is before `start`.

        When history cannot take it now, the outbox keeps it for the next start.
        """
        loop = self._loop
        if loop is None:
            return
        self._stopping.set()
        self._woken.set()
        await asyncio.wait({loop})  # not `await loop`: a cancelled stop must not cancel the drain
        self._loop = None

    def wake(self) -> None:
        """There may be something to record. Cheap; call it, on the loop, as often as you like."""
        self._woken.set()

    async def run_once(self) -> int:
        """Record one batch, and sync and prune if that is due; returns how many entries there were."""
        return await self._step()

    async def drain(self) -> None:
        """Record until the outbox is empty, then sync and prune. Raises what the backend raises."""
        while await self._step():
            pass
        await self._step(settle=True)

    async def _step(self, *, settle: bool = False) -> int:
        async with self._turn:
            # Forgotten until all went well: after a failure only history knows how far it came.
            after, self._cursor = await self._position(), None
            entries = self._anew or (await self._storage.outbox(after, self._limit)).entries
            if not entries:
                # Kept until they are recorded: the store would not tell them again.
                entries = self._anew = await self._retold(after)
            if entries:
                await self._history.record(entries)
                self._unsynced += len(entries)
                self.recorded += len(entries)
            self._anew = []
            cursor = entries[-1].number if entries else after
            if settle or self._sync_due_in(caught_up=len(entries) < self._limit) <= 0:
                await self._prune(cursor)
            self._cursor = cursor
            self._last = len(entries)
            return self._last

    async def _retold(self, after: int) -> list[OutboxEntry]:
        """What a store tells anew that has lost its last moments, and with them the numbers that history knows.

        Its numbers are behind our cursor, and would not be looked at. So it goes on counting from above, and what it
        has told since it came back gets higher numbers too: the newer word counts. Without that there is nothing.
        """
        if not after or (await self._storage.outbox(after, 1)).newest >= after:
            return []
        last = await self._storage.skip_outbox_numbers(after)
        told: list[OutboxEntry] = []
        while page := (await self._storage.outbox(told[-1].number if told else 0, self._limit)).entries:
            told += (entry for entry in page if entry.number <= last)
            if page[-1].number >= last:
                break
        logger.warning(
            "the store has lost what it told last (its numbers end at %d, history's at %d): %d entries are told anew",
            last,
            after,
            len(told),
            extra={"action": "history_retold"},
        )
        return [replace(entry, number=entry.number + after) for entry in told]

    async def _position(self) -> int:
        if self._cursor is not None:
            return self._cursor
        # What somebody recorded before us may be neither synced nor pruned.
        self._unsynced = max(self._unsynced, 1)
        return await self._history.cursor()

    def _sync_due_in(self, *, caught_up: bool) -> float:
        """Seconds until a sync is due; infinite while it is not worth it."""
        if self._unsynced >= SYNC_EVERY or (caught_up and self._unsynced):
            return self._synced_at + SYNC_INTERVAL_S - self._clock.elapsed()
        return float("inf")

    async def _prune(self, cursor: int) -> None:
        # Only what survives a power cut in history may leave the store; the order is the promise.
        if self._unsynced:
            safe = await self._history.sync()
            self._synced_at = self._clock.elapsed()
            if safe > self._pruned:
                await self._storage.prune(safe)
                self._pruned = safe
            if safe >= cursor:
                self._unsynced = 0

    async def _run(self) -> None:
        backoff_s = BACKOFF_S
        while True:
            stopping = self._stopping.is_set()
            try:
                if stopping:
                    return await self.drain()
                await self._next_batches()
                backoff_s = BACKOFF_S
            except StorageUnavailable:
                if stopping:
                    return  # the store keeps the rest for whoever comes next
                await wait_for_event(self._stopping, MAX_BACKOFF_S)  # the store says itself that it is away
            except Exception:  # the loop's outermost turn: history never breaks a job
                logger.exception(
                    "recording history failed; %s",
                    "the outbox keeps the rest" if stopping else f"next try in {backoff_s:.1f} s",
                    extra={"action": "history_retry", "retry_in_s": None if stopping else backoff_s},
                )
                if stopping:
                    return
                await wait_for_event(self._stopping, backoff_s)
                backoff_s = min(backoff_s * 2, MAX_BACKOFF_S)

    async def _next_batches(self) -> None:
        """Wait for something to record, let it gather, and record all of it."""
        due_in_s = max(0.0, self._sync_due_in(caught_up=True))
        if await wait_for_event(self._woken, min(RECHECK_S, due_in_s)):
            await wait_for_event(self._stopping, BUSY_POOL_S if self._last >= BUSY else POOL_S)
        # Cleared before the look into the outbox: what comes later wakes again.
        self._woken.clear()
        if self._lead is not None and not await self._lead():
            # Whoever leads syncs and prunes, too. When it is our turn, history knows how far that came.
            self._cursor, self._unsynced = None, 0
            return
        while await self._step() == self._limit:
            if self._stopping.is_set():
                return
            await asyncio.sleep(0)  # histories that never suspend must not hold the loop
