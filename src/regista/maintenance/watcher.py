"""Watcher: acts on deadlines. Timers, retries, timeouts, and the grace of a cancel."""

import logging
from datetime import datetime

from ..engines.native.engine import NativeEngine
from ..errors import JobNotFound, StorageOutcomeUnknown
from ..machine import signals, task_results
from ..machine.step import DecisionContext, Step
from ..machine.task_results import TaskStep
from ..model import AttemptState, AwaitRetry, AwaitTimer, Job, Task
from ..storage.base import Due, DueKind, JobStorage
from .chore import ChoreResult
from .loop import ExpiryGrace

log = logging.getLogger("regista.watcher")


class Watcher:
    """Looks at what is due and lets the machine say what that means.

    `due` never pops, so a crash between looking and acting changes nothing; and the commit is fenced,
    so two watchers at once fire every deadline once. Alarms (a timer, a retry) ring at once; expiries
    (a timeout) of what began before an outage wait for the grace, since the answer may be on its way to us.
    """

    name = "watcher"
    #: Every instance watches: a deadline that waits for a leader is a late one, and twice is harmless.
    needs_leader = False

    def __init__(
        self,
        deadlines: JobStorage,
        engine: NativeEngine,
        grace: ExpiryGrace,
        interval_s: float = 1.0,
        limit: int = 500,
    ) -> None:
        self.interval_s = interval_s
        self._deadlines = deadlines
        self._engine = engine
        self._grace = grace
        self._limit = limit
        #: Expiries that the grace covers. Looked at once in each grace.
        self._postponed: set[Due] = set()

    async def run_once(self, now: datetime) -> ChoreResult:
        """Act on everything that is due."""
        due = await self._unseen(now)
        postponed, acted = len(self._postponed), 0
        for entry in due:
            if entry.kind is DueKind.JOB:
                acted += await self._act(entry)
        tasks = {entry.id: entry for entry in due if entry.kind is DueKind.TASK}
        acted += await self._engine.signal_tasks(
            list(tasks), lambda job, task, context: self._task_due(tasks[task.id], job, task, context)
        )
        if len(due) == self._limit and (acted or len(self._postponed) > postponed):
            return ChoreResult(done=acted, run_again_in_s=0.0)
        nearest = await self._deadlines.next_due()
        # What stays due in spite of us waits for the grace: no reason to spin.
        run_again_in_s = (nearest - now).total_seconds() if nearest is not None and nearest > now else None
        return ChoreResult(done=acted, run_again_in_s=run_again_in_s)

    async def _unseen(self, now: datetime) -> list[Due]:
        """What is due, without the expiries that wait for the grace: they must not hide the alarms behind them."""
        if self._grace.over:
            self._postponed.clear()
        due = await self._deadlines.due(now, self._limit + len(self._postponed))
        return [entry for entry in due if entry not in self._postponed][: self._limit]

    async def _act(self, entry: Due) -> int:
        acted = False

        def decide(job: Job, tasks: list[Task], context: DecisionContext) -> Step | None:
            nonlocal acted
            step = self._job_due(entry, job, tasks, context)
            acted = step is not None
            return step

        try:
            await self._engine.signal(entry.job_id, decide)
        except JobNotFound:
            return 0
        except StorageOutcomeUnknown:
            raise
        except Exception:  # one record that nobody can read must not keep all other timers from ringing
            told = {"action": "watcher", "job_id": entry.job_id}
            log.exception("job %s is due and cannot be acted on", entry.job_id, extra=told)
            return 0
        return int(acted)

    def _job_due(self, entry: Due, job: Job, tasks: list[Task], context: DecisionContext) -> Step | None:
        is_alarm = isinstance(job.wait, AwaitTimer | AwaitRetry)
        if not is_alarm and self._grace.covers(job.entered_at):
            self._postponed.add(entry)
            return None
        return signals.due(job, tasks, context)

    def _task_due(self, entry: Due, job: Job, task: Task, context: DecisionContext) -> Step | TaskStep | None:
        if not _is_alarm(task, context.now) and self._grace.covers(task.queued_at):
            self._postponed.add(entry)
            return None
        return task_results.attempt_due(job, task, context)


def _is_alarm(task: Task, now: datetime) -> bool:
    """The pause before its retry is over, and none of its timeouts has passed."""
    if task.state is not AttemptState.QUEUED or task.not_before is None:
        return False
    return all(deadline is None or deadline > now for deadline in (task.result_by, task.dispatch_by))
