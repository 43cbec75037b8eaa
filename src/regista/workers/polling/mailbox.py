"""TaskMailbox: tasks on their way to a worker that asks for them."""

import asyncio
from collections.abc import Container, Iterable, Sequence

from ...aio import resolve, wait_or_timeout
from ...model import Task


class OpenPoll:
    """A worker that waits for up to `limit` tasks."""

    __slots__ = ("limit", "tasks", "woken")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        #: What it was given. Still ours until the answer has left.
        self.tasks: list[Task] = []
        #: Done when there is an answer; empty-handed, when nobody should wait any longer.
        self.woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake(self) -> None:
        """Answer now, with whatever is there."""
        resolve(self.woken)

    async def wait(self, timeout_s: float) -> None:
        """Return when there is an answer, or the time is up; after that nothing is given to it any more."""
        if not self.woken.done() and timeout_s > 0:
            await wait_or_timeout(self.woken, timeout_s)
        self.wake()


class TaskMailbox:
    """Brings tasks and polls together.

    A task that comes when no poll is open waits here for the next one; so does a task whose poll went away
    with it in hand. Nothing here counts as delivered: only a worker's own word does (FENCES 10).
    """

    def __init__(self) -> None:
        #: What waits, by attempt, in the order in which it came. Written here only.
        self.waiting: dict[str, Task] = {}
        self._polls: dict[OpenPoll, None] = {}

    def __len__(self) -> int:
        """How many tasks wait."""
        return len(self.waiting)

    @property
    def leaving(self) -> list[str]:
        """The attempts in the hands of polls that are just being answered."""
        return [task.attempt_id for poll in self._polls for task in poll.tasks]

    @property
    def wanted(self) -> int:
        """How many tasks the open polls would take."""
        wanted = 0
        for poll in self._polls:
            if not poll.woken.done():
                wanted += poll.limit
        return wanted

    # -- tasks -----------------------------------------------------------------------------------

    def put(self, tasks: Iterable[Task]) -> None:
        """Tasks for the worker: to the polls that are open, the oldest first, else into the box."""
        for task in tasks:
            self.waiting[task.attempt_id] = task
        self._serve()

    def take(self, attempt_ids: Iterable[str]) -> list[Task]:
        """Take these out, if they still wait; returns those that did."""
        found = (self.waiting.pop(attempt_id, None) for attempt_id in attempt_ids)
        return [task for task in found if task is not None]

    def keep(self, attempt_ids: Container[str]) -> None:
        """Drop what waits and is none of these."""
        self.waiting = {name: task for name, task in self.waiting.items() if name in attempt_ids}

    def empty(self) -> list[Task]:
        """Take everything out that waits."""
        tasks, self.waiting = list(self.waiting.values()), {}
        return tasks

    # -- polls -----------------------------------------------------------------------------------

    def open(self, limit: int) -> OpenPoll:
        """A poll comes in. What waits is its own at once."""
        poll = OpenPoll(limit)
        self._polls[poll] = None
        if self.waiting:
            self._serve()
        return poll

    def close(self, poll: OpenPoll, delivered: bool) -> list[Task]:
        """A poll is over; returns what left with it. Undelivered, its tasks wait for the next one."""
        self._polls.pop(poll, None)
        poll.wake()
        tasks, poll.tasks = poll.tasks, []
        if delivered:
            return tasks
        # To the front: they are older than whatever has come since.
        self.waiting = {**{task.attempt_id: task for task in tasks}, **self.waiting}
        self._serve()
        return []

    def wake_all(self) -> None:
        """Let every poll be answered now: the worker has a newer session, or we stop."""
        for poll in self._polls:
            poll.wake()

    def _serve(self) -> None:
        for poll in self._polls:
            if not self.waiting:
                return
            if not poll.woken.done():
                poll.tasks = self._first(poll.limit)
                poll.wake()

    def _first(self, limit: int) -> list[Task]:
        if limit >= len(self.waiting):
            return self.empty()
        attempts: Sequence[str] = list(self.waiting)[:limit]
        return [self.waiting.pop(attempt_id) for attempt_id in attempts]
