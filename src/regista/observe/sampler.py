"""StoreSampler: looks at the store now and then, so that a scrape and a status need not."""

import asyncio
from datetime import datetime
from typing import Protocol

from ..errors import StorageUnavailable
from ..history.base import HistoryStorage
from ..maintenance.chore import ChoreResult
from ..storage.base import StorageBackend

#: Unrecorded entries that are counted at most: how far history is behind is better told in seconds.
LAG_COUNTED = 1000
#: A history that takes longer than this to say where it is counts as away.
_HISTORY_S = 2.0


class Take(Protocol):
    """Who is told what a look has found; `Telemetry.sampled` is it."""

    def __call__(
        self,
        *,
        store_up: bool,
        workers: int = 0,
        queues: dict[str, tuple[int, float]] | None = None,
        history_up: bool | None = None,
        history_entries: int = 0,
        history_lag_s: float = 0.0,
    ) -> None: ...


class StoreSampler:
    """Samples what only the store knows, at every instance. A store that is away is a finding, not a failure."""

    name = "store_sampler"
    needs_leader = False

    def __init__(
        self, storage: StorageBackend, history: HistoryStorage | None, take: Take, interval_s: float = 5.0
    ) -> None:
        self.interval_s = interval_s
        self._storage = storage
        self._history = history
        self._take = take
        #: The last that history is known to have: it may be away when we ask.
        self._cursor = 0

    async def run_once(self, now: datetime) -> ChoreResult:
        """Look, and hand over what was found."""
        try:
            silent = {worker.id for worker in await self._storage.workers(lapsed_only=True)}
            known = [worker for worker in await self._storage.workers() if worker.id not in silent]
            queues = await self._queues(now)
            history_up, entries, lag_s = await self._lag(now)
        except StorageUnavailable:
            self._take(store_up=False)
            return ChoreResult()
        self._take(
            store_up=True,
            workers=len(known),
            queues=queues,
            history_up=history_up,
            history_entries=entries,
            history_lag_s=lag_s,
        )
        return ChoreResult(done=1)

    async def _queues(self, now: datetime) -> dict[str, tuple[int, float]]:
        """How many wait in each, and for how many seconds the first of them has."""
        lines: dict[str, tuple[int, float]] = {}
        for status in await self._storage.queue_status():
            waiting, age_s = lines.get(status.queue_key.queue, (0, 0.0))
            if status.oldest is not None:
                age_s = max(age_s, (now - status.oldest).total_seconds())
            lines[status.queue_key.queue] = (waiting + status.waiting, age_s)
        return lines

    async def _lag(self, now: datetime) -> tuple[bool | None, int, float]:
        """Whether history answers, how many entries it lacks, and the age of the first of them."""
        if self._history is None:
            return None, 0, 0.0
        up = await self._ask(self._history)
        entries = (await self._storage.outbox(self._cursor, LAG_COUNTED)).entries
        moments = [event.at for entry in entries[:1] for event in entry.events]
        return up, len(entries), max([0.0, *((now - at).total_seconds() for at in moments)])

    async def _ask(self, history: HistoryStorage) -> bool:
        try:
            async with asyncio.timeout(_HISTORY_S):
                self._cursor = await history.cursor()
        except Exception:  # noqa: BLE001  # whatever its library raises: it is away, and the recorder says why
            return False
        return True
