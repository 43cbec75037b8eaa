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
| tell a webhook                | an item on the shelf `webhooks`     | its due time; a lease that lapses          |
| remove an ended job's files   | the job's status; its folder        | a look over all folders, every minute      |
| tell whoever watches live     | outbox entries, then history        | a gap in seq; a look every 2 s (feed.py)   |
"""

import asyncio
from collections.abc import Callable, Iterable

from ...aio import resolve, wait_or_timeout
from ...dispatch.dispatcher import Dispatcher
from ...model import parse_queue_key
from ...storage.base import Hint, HintKind
from .executor import JobExecutor

#: Kinds that every job brings along: to find a member through its class costs more than to act on it.
_OUTBOX, _CHANGED, _ITEM, _TASK = HintKind.OUTBOX, HintKind.CHANGED, HintKind.ITEM, HintKind.TASK
_READY, _DEADLINE, _PROGRESS = HintKind.READY, HintKind.DEADLINE, HintKind.PROGRESS


class Watch:
    """Somebody who waits for the first of many jobs."""

    __slots__ = ("_enough", "_error", "_news", "_waiter", "job_ids")

    def __init__(self, job_ids: Iterable[str]) -> None:
        self.job_ids = tuple(dict.fromkeys(job_ids))
        self._news: dict[str, None] = {}
        self._enough = 1
        self._waiter: asyncio.Future[None] | None = None
        self._error: Exception | None = None

    async def news(self, timeout_s: float, enough: int = 1) -> tuple[str, ...]:
        """The jobs that may have settled since the last call: `enough` of them, or fewer when the time is up."""
        self._enough = enough
        if len(self._news) < enough and self._error is None:
            self._waiter = asyncio.get_running_loop().create_future()
            await wait_or_timeout(self._waiter, timeout_s)
            self._waiter = None
        if self._error is not None:
            raise self._error
        news, self._news = self._news, {}
        return tuple(news)

    def hear(self, job_id: str) -> None:
        """A job may have settled."""
        self._news[job_id] = None
        if len(self._news) >= self._enough:
            self._wake()

    def fail(self, error: Exception) -> None:
        """Nothing more will be heard."""
        self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None:
            resolve(self._waiter)


class Effects:
    """Hears what the store has flushed and nudges whoever is concerned. A nudge may be lost."""

    def __init__(self, executor: JobExecutor, dispatcher: Dispatcher, instance: str) -> None:
        self._executor = executor
        self._instance = instance
        self._dispatcher = dispatcher
        self._waiters: dict[str, list[asyncio.Future[None]]] = {}
        self._watches: dict[str, tuple[Watch, ...]] = {}
        #: Called when a message for a job, a cancel for a worker, an outbox entry or a deadline was flushed.
        self.on_message: Callable[[], None] = _nothing
        self.on_cancel: Callable[[str], None] = _nothing
        self.on_entries: Callable[[], None] = _nothing
        self.on_deadline: Callable[[], None] = _nothing
        #: Called with the id of a worker whose record was written again.
        self.on_worker: Callable[[str], None] = _nothing
        #: Called with what somebody, maybe we, told of an attempt's progress.
        self.on_progress: Callable[[str], None] = _nothing
        #: Called when another instance told of its free slots.
        self.on_slots: Callable[[], None] = _nothing
        #: Called with the name of a shelf on which something was written or removed.
        self.on_item: Callable[[str], None] = _nothing
        #: Called with the id of every job that settled.
        self.on_settled: Callable[[str], None] = _nothing

    def hear(self, hint: Hint) -> None:
        """Called by the store after each flush."""
        kind, about, to = hint
        # What every job brings along comes first.
        if kind is _OUTBOX:
            self.on_entries()
        elif kind is _CHANGED:
            if self._waiters or self._watches:
                self.wake_waiters(about)
            self.on_settled(about)
        elif kind is _ITEM:
            self.on_item(about)
        elif kind is _TASK:
            if to in ("", self._instance):
                self._dispatcher.task_queued(parse_queue_key(about))
        elif kind is _READY:
            self._executor.wake()
        elif kind is _DEADLINE:
            self.on_deadline()
        elif kind is _PROGRESS:
            self.on_progress(about)
        else:
            self._hear_seldom(kind, about)

    def _hear_seldom(self, kind: HintKind, about: str) -> None:
        match kind:
            case HintKind.MESSAGE:
                self.on_message()
            case HintKind.CANCEL:
                self.on_cancel(about)
            case HintKind.WORKER:
                self.on_worker(about)
            case HintKind.SLOTS if about != self._instance:
                self.on_slots()

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

    def watch(self, job_ids: Iterable[str]) -> Watch:
        """Hear of each of these jobs that settles, until `unwatch`."""
        watch = Watch(job_ids)
        alone = (watch,)  # mostly one asks for a job; so it costs nothing for each of them
        for job_id in watch.job_ids:
            others = self._watches.get(job_id)
            self._watches[job_id] = alone if others is None else (*others, watch)
        return watch

    def unwatch(self, watch: Watch) -> None:
        """Hear no more of them."""
        for job_id in watch.job_ids:
            watches = self._watches.get(job_id, ())
            if watches == (watch,):
                del self._watches[job_id]
            elif watch in watches:
                self._watches[job_id] = tuple(one for one in watches if one is not watch)

    def give_up(self, error: Exception) -> None:
        """Nothing will be heard any more: whoever waits is told so."""
        waiters, self._waiters = self._waiters, {}
        for waiter in (waiter for group in waiters.values() for waiter in group):
            if not waiter.done():
                waiter.set_exception(error)
                waiter.exception()  # heard, even if its owner has just gone away
        for watch in [watch for group in self._watches.values() for watch in group]:
            watch.fail(error)

    def wake_all(self) -> None:
        """Hints may be lost: let everybody look again. Called every two seconds (FENCES 4)."""
        for job_id in [*self._waiters, *self._watches]:
            self.wake_waiters(job_id)

    def wake_waiters(self, job_id: str) -> None:
        """Let everybody who waits for this job look again."""
        for waiter in self._waiters.pop(job_id, ()):
            resolve(waiter)
        for watch in self._watches.get(job_id, ()):
            watch.hear(job_id)


def _nothing(*_: object) -> None:
    return None
