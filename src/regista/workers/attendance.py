"""Attendance: what a worker's heartbeats say about the attempts that it should have. FENCES 10."""

import asyncio
from typing import Any

from ..model import AttemptState, EventType, Task

#: Two heartbeats that lack an offered attempt say that it never arrived, when the second comes so much later: those of a
#: worker that beats all the time may all have left it before the offer was there.
_APART_S = 2.0
#: Reports that are answered are looked for when there are so many.
_SWEEP_AT = 1000


class Attendance:
    """Counts the heartbeats that lack an attempt. Says when that is enough, and acts on nothing."""

    def __init__(self) -> None:
        #: Offered attempt → since when heartbeats lack it.
        self._missed: dict[str, float] = {}
        #: Started attempt of a poll worker → since when its heartbeats lack it.
        self._absent: dict[str, float] = {}
        #: Attempt → its newest report, answered or not. A callback for each would cost more than all the rest here.
        self._reports: dict[str, asyncio.Future[Any]] = {}
        self._sweep_at = _SWEEP_AT

    def reported(self, attempt_id: str, answer: "asyncio.Future[Any]") -> None:
        """The worker has told how the attempt went: until the answer is there it is neither missed nor lost."""
        self._reports[attempt_id] = answer
        if len(self._reports) >= self._sweep_at:
            self._reports = {name: one for name, one in self._reports.items() if not one.done()}
            self._sweep_at = max(_SWEEP_AT, 2 * len(self._reports))

    def is_reported(self, attempt_id: str) -> bool:
        """A report of it is on its way to the store."""
        answer = self._reports.get(attempt_id)
        return answer is not None and not answer.done()

    def present(self, attempt_id: str) -> None:
        """A heartbeat lists the attempt: that makes up for those that did not."""
        self.forget(attempt_id)

    def forget(self, attempt_id: str) -> None:
        """The attempt is over."""
        if self._missed:
            self._missed.pop(attempt_id, None)
        if self._absent:
            self._absent.pop(attempt_id, None)

    def missing(self, task: Task, begun: bool, elapsed: float, patience_s: float | None) -> EventType | None:
        """A heartbeat lacks the attempt. Returns what it is closed as, if that is enough; None: wait.

        `begun` is evidence of a start that the store does not have yet. `patience_s` is how long a started
        attempt may be missing; None is for ever, since this worker says itself what it has lost.
        """
        if self.is_reported(task.attempt_id):
            return None  # not in its hands any more, since it has done it
        if task.state is AttemptState.OFFERED and not begun:
            since = self._missed.setdefault(task.attempt_id, elapsed)
            return EventType.TASK_UNDELIVERED if elapsed - since >= _APART_S else None
        return None if patience_s is None else self._lost(task.attempt_id, elapsed, patience_s)

    def _lost(self, attempt_id: str, elapsed: float, patience_s: float) -> EventType | None:
        """What had started and is missing for so long is gone, though its worker is there."""
        since = self._absent.setdefault(attempt_id, elapsed)
        return EventType.TASK_LOST if elapsed - since >= patience_s else None
