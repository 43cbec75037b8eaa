"""OutboxKeeper: sees to it that what happened reaches history, and says so when it does not."""

import logging
from collections.abc import Callable
from datetime import datetime

from ..errors import HistoryUnavailable
from ..history.base import HistoryStorage
from ..storage.base import Outbox
from .loop import Report

log = logging.getLogger("regista.upkeep")


class OutboxKeeper:
    """The recorder carries entries over by itself, and prunes behind what is safe. This looks whether it does.

    An entry that is still the next one at the second look is a recorder that missed its hint, or one that fails: it is woken,
    and people are told, once for each entry.
    """

    name = "outbox"
    needs_leader = True

    def __init__(
        self,
        outbox: Outbox,
        history: HistoryStorage,
        wake: Callable[[], None],
        recorded: Callable[[], int],
        interval_s: float = 10.0,
    ) -> None:
        """`recorded` is how many entries the recorder of this process has carried over: their numbers are no counts."""
        self.interval_s = interval_s
        self._outbox = outbox
        self._history = history
        self._wake = wake
        self._recorded = recorded
        #: How many had been carried over at the last look.
        self._counted = 0
        #: The entry that waited then, and the one that people know of.
        self._next = self._told = 0

    async def run_once(self, now: datetime) -> Report:
        """Look; `done` is how many entries were carried over from here since the last time."""
        try:
            cursor = await self._history.cursor()
        except HistoryUnavailable:  # it says so itself, and the outbox keeps everything
            return Report()
        waiting = await self._outbox.outbox(cursor, 1)
        number = waiting[0].number if waiting else 0
        if number and number == self._next:
            self._stuck(number)
        self._next = number
        before, self._counted = self._counted, self._recorded()
        return Report(done=self._counted - before)

    def _stuck(self, number: int) -> None:
        self._wake()
        if number != self._told:
            self._told = number
            told = {"action": "outbox_waits", "entry": number}
            log.warning(
                "history has not moved: entry %d still waits; the recorder is woken", number, extra=told
            )
