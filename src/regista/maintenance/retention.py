"""Retention: forgets what history need not keep any longer."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta

from ..config import Config
from ..history.base import HistoryStorage
from ..storage.base import JobStorage
from .chore import Chore, ChoreResult

log = logging.getLogger("regista.maintenance")

#: Jobs forgotten in one bite: a database that deletes for long keeps the recorder waiting.
BITE = 500
#: Bites of one run. What is left then is for the next one, soon.
BITES = 10
#: Seconds between two runs, and until the next one where there is more to do.
INTERVAL_S, AGAIN_S = 60.0, 1.0


class Retention:
    """Forgets ended jobs by age and by number, oldest first, a bite at a time. Jobs that live are never touched.

    Two leaders at once only find less to do each: a job that is gone cannot be forgotten again.
    """

    name = "retention"
    needs_leader = True

    def __init__(
        self,
        history: HistoryStorage,
        max_age_s: float = 0.0,
        max_jobs: int = 0,
        *,
        interval_s: float = INTERVAL_S,
        bite: int = BITE,
        forget_jobs: Callable[[Sequence[str]], Awaitable[None]] | None = None,
    ) -> None:
        self.interval_s = interval_s
        self._history = history
        self._max_age_s = max_age_s
        self._max_jobs = max_jobs
        self._bite = bite
        #: Lets the store forget the same jobs, where it keeps them for good.
        self._forget_jobs = forget_jobs

    async def run_once(self, now: datetime) -> ChoreResult:
        """Forget up to so many bites of what is too old, or too many."""
        before = _long_ago(now, self._max_age_s) if self._max_age_s else None
        if before is None and not self._max_jobs:
            return ChoreResult()
        done = 0
        for _ in range(BITES):
            gone = await self._history.expired(before, self._max_jobs or None, self._bite)
            if not gone:
                break
            if self._forget_jobs is not None:
                await self._forget_jobs(gone)  # first: what history has forgotten nobody could name again
            await self._history.delete_jobs(gone)
            done += len(gone)
        if done:
            log.info("forgot %d ended jobs", done, extra={"action": "retention", "done": done})
        return ChoreResult(done=done, run_again_in_s=AGAIN_S if done >= BITES * self._bite else None)


def _long_ago(now: datetime, age_s: float) -> datetime | None:
    """So long ago; None where there was no such time."""
    try:
        return now - timedelta(seconds=age_s)
    except OverflowError:
        return None


def retention_of(config: Config, history: HistoryStorage, storage: JobStorage) -> list[Chore]:
    """The chore that the settings ask for, if they do."""
    if not config.history_max_age_s and not config.history_max_jobs:
        return []
    return [
        Retention(history, config.history_max_age_s, config.history_max_jobs, forget_jobs=storage.forget_jobs)
    ]
