"""Effects: what must happen outside the store after a commit, and what makes up for a lost one.

Every effect follows from stored state, so a crash between the commit and the effect loses nothing:

| effect                        | follows from                        | recovered by                               |
|-------------------------------|-------------------------------------|--------------------------------------------|
| run the next handler          | a runnable job (`Job.runnable`)     | ready queue; lapsed lease; start-up        |
| hand a task to a worker       | an attempt that is `offered`        | heartbeat (undelivered), lapsed lease      |
| offer a waiting task          | an attempt that is `queued`         | lanes; every free slot asks; start-up      |
| act on a timer or a timeout   | `Job.deadline`, `Task.deadline`     | `due` never pops; the Watcher asks again   |
| start a child                 | its row, born in the parent's write | ready queue                                |
| tell the parent, cancel down  | a stored message                    | `messages`; gone with the acting commit    |
| tell a worker to stop         | `Task.cancel_requested`             | said again at every heartbeat; deadline    |
| free a worker's slot          | attempts that it holds              | counted from them, never stored apart      |
| record history                | outbox entries                      | the cursor in the history database         |
| answer a submitter or worker  | the job; its accepted attempts      | they ask again and get the same answer     |
| wake whoever waits for a job  | the job's status                    | every waiter looks again every 2 s         |
"""

import asyncio
from collections.abc import Callable

from ...dispatch.dispatcher import Dispatcher
from ...storage.base import Hint, HintKind, lane_of
from .executor import JobExecutor


class Effects:
    """Hears what the store has flushed and nudges whoever is concerned. A nudge may be lost."""

    def __init__(self, executor: JobExecutor, dispatcher: Dispatcher) -> None:
        self._executor = executor
        self._dispatcher = dispatcher
        self._waiters: dict[str, list[asyncio.Future[None]]] = {}
        #: Called when a message for a job, a cancel for a worker, an outbox entry or a deadline was flushed.
        self.on_message: Callable[[], None] = _nothing
        self.on_cancel: Callable[[str], None] = _nothing
        self.on_entries: Callable[[], None] = _nothing
        self.on_deadline: Callable[[], None] = _nothing
        #: Called with the id of every job that settled.
        self.on_settled: Callable[[str], None] = _nothing

    def hear(self, hint: Hint) -> None:
        """Called by the store after each flush."""
        match hint.kind:
            case HintKind.CHANGED:
                self.wake_waiters(hint.id)
                self.on_settled(hint.id)
            case HintKind.READY:
                self._executor.wake()
            case HintKind.TASK:
                self._dispatcher.tasks_wait(lane_of(hint.id))
            case HintKind.MESSAGE:
                self.on_message()
            case HintKind.CANCEL:
                self.on_cancel(hint.id)
            case HintKind.OUTBOX:
                self.on_entries()
            case HintKind.DEADLINE:
                self.on_deadline()

    def changed(self, job_id: str) -> "asyncio.Future[None]":
        """Done when the job has settled, or somebody thinks that all should look again."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(job_id, []).append(waiter)
        return waiter

    def leave(self, job_id: str, waiter: "asyncio.Future[None]") -> None:
        """Wait no longer."""
        waiters = self._waiters.get(job_id)
        if waiters is not None and waiter in waiters:
            waiters.remove(waiter)
            if not waiters:
                del self._waiters[job_id]

    def give_up(self, error: Exception) -> None:
        """Nothing will be heard any more: whoever waits is told so."""
        waiters, self._waiters = self._waiters, {}
        for waiter in (waiter for group in waiters.values() for waiter in group):
            if not waiter.done():
                waiter.set_exception(error)
                waiter.exception()  # heard, even if its owner has just gone away

    def wake_all(self) -> None:
        """Hints may be lost: let everybody look again. Called every two seconds (FENCES 4)."""
        for job_id in list(self._waiters):
            self.wake_waiters(job_id)

    def wake_waiters(self, job_id: str) -> None:
        """Let everybody who waits for this job look again."""
        for waiter in self._waiters.pop(job_id, ()):
            if not waiter.done():
                waiter.set_result(None)


def _nothing(*_: object) -> None:
    return None
