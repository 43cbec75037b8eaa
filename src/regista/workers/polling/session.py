"""PollingSessions: what we know of the workers that speak HTTP, between one request of theirs and the next."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from msgspec import Struct

from ...model import Task, Worker
from .mailbox import TaskMailbox

#: Attempts are remembered for this long after their worker told of their end, or got them.
_MEMORY_S = 60.0


class CommandSocket(Protocol):
    """A command socket of a stock worker."""

    def stop(self, attempt_ids: Sequence[str]) -> None:
        """Say `cancel_task` for these, soon. Never waits; what is lost is said with the next heartbeat."""
        ...

    def close(self, code: int, reason: str) -> None:
        """Hang up, soon."""
        ...


class DeliveredTask(Struct, frozen=True, gc=False):
    """A task that has left for a worker, as far as the answer to its result depends on it."""

    attempt: int
    worker_id: str | None
    branch: bool
    transitions: dict[str, str]
    #: When it left, on a clock that never jumps, like all times here.
    at: float = 0.0


def delivered_task(task: Task, at: float = 0.0) -> DeliveredTask:
    """What there is to know of a task in a worker's hands."""
    return DeliveredTask(task.attempt, task.worker_id, task.branch, task.transitions, at)


class PollingSession:
    """One worker. Its record is None while it only polls and we do not know what it can do."""

    __slots__ = (
        "_ended", "_handed", "asked_at", "draining", "leaving", "line", "mailbox", "number", "provisional",
        "renewed_at", "skills", "worker",
    )  # fmt: skip

    def __init__(self, mailbox: TaskMailbox | None = None) -> None:
        self.mailbox = mailbox or TaskMailbox()
        self.worker: Worker | None = None
        #: The epoch of its registration; 0 before.
        self.number = 0
        #: Everything that it can do; `worker.skills` is what it can start right now.
        self.skills: tuple[str, ...] = ()
        #: Known by a poll or a heartbeat only: a registration would say more.
        self.provisional = False
        #: Since when it is asked to register again, on a clock that never jumps.
        self.asked_at: float | None = None
        #: When its lease was renewed last, on that clock.
        self.renewed_at: float | None = None
        #: It wants no more tasks, by its own word.
        self.draining = False
        #: It has said goodbye, and may still bring results.
        self.leaving = False
        self.line: CommandSocket | None = None
        #: Attempt → what has left, the latest last.
        self._handed: dict[str, DeliveredTask] = {}
        #: Attempt → when its result came.
        self._ended: dict[str, float] = {}

    def handed(self, tasks: Iterable[Task], now: float) -> None:
        """These have left for the worker."""
        memory = self._handed
        for task in tasks:
            attempt_id = task.attempt_id
            memory.pop(attempt_id, None)
            memory[attempt_id] = delivered_task(task, now)
        while memory:
            oldest = next(iter(memory))
            if now - memory[oldest].at <= _MEMORY_S:
                return
            del memory[oldest]

    def recall(self, attempt_id: str) -> DeliveredTask | None:
        """What has left under this id, if that was not too long ago, and its result has not come."""
        return self._handed.get(attempt_id)

    def fresh(self, began: float) -> frozenset[str]:
        """What has left since, or is leaving: a heartbeat that began before cannot know it."""
        left = [attempt for attempt, one in self._handed.items() if one.at >= began]
        return frozenset([*left, *self.mailbox.leaving])

    def arrived(self, worker: Worker, skills: tuple[str, ...], provisional: bool) -> None:
        """The worker has its seat, under the session that its record names."""
        self.worker = worker
        self.number = worker.session
        self.skills = skills
        self.provisional = provisional
        self.leaving = self.draining = False
        self.renewed_at = None
        if not provisional:
            self.asked_at = None

    def ended(self, attempt_id: str, now: float) -> None:
        """The worker has told how this one ended."""
        self._handed.pop(attempt_id, None)
        memory = self._ended
        memory.pop(attempt_id, None)
        memory[attempt_id] = now
        while now - memory[oldest := next(iter(memory))] > _MEMORY_S:
            del memory[oldest]

    def not_ended(self, attempt_id: str) -> None:
        """Nobody could write down how it ended: it is still the worker's."""
        self._ended.pop(attempt_id, None)

    def has_ended(self, attempt_id: str) -> bool:
        """Its result has come: whoever still lists it need not be told to stop.

        The stock SDK (1.0b7) would lose a slot for good by that, since it lists a task until its result is
        acknowledged, and a cancel then hits the sending of the result.
        """
        return attempt_id in self._ended


class PollingSessions:
    """All of them, by worker; and the sockets that do not say whose they are."""

    def __init__(self, is_connected: Callable[[str, int], bool]) -> None:
        self._sessions: dict[str, PollingSession] = {}
        #: The older SDK connects with its token alone: whatever is said is said to all of these.
        self.nameless: dict[CommandSocket, None] = {}
        self._is_connected = is_connected
        self._sweep_at = 64

    def __iter__(self) -> Iterator[PollingSession]:
        return iter(list(self._sessions.values()))

    def find(self, worker_id: str) -> PollingSession | None:
        return self._sessions.get(worker_id)

    def known(self, worker_id: str) -> PollingSession | None:
        """The session of a worker that has its seat; None when it must be taken in (again)."""
        session = self._sessions.get(worker_id)
        if session is None or session.worker is None:
            return None
        return session if self._is_connected(worker_id, session.number) else None

    def open(self, worker_id: str) -> PollingSession:
        """The session of a worker, known or not."""
        session = self._sessions.get(worker_id)
        if session is None:
            self._sweep()
            session = self._sessions[worker_id] = PollingSession()
        return session

    def lines_to(self, worker_id: str) -> list[CommandSocket]:
        """The sockets on which a word for this worker goes out."""
        session = self._sessions.get(worker_id)
        if session is not None and session.line is not None:
            return [session.line]
        return list(self.nameless)

    def _sweep(self) -> None:
        """Forget those who are gone, now and then: each pays for its own place in the list."""
        if len(self._sessions) < self._sweep_at:
            return
        for worker_id, session in list(self._sessions.items()):
            idle = session.line is None and not session.mailbox.wanted
            if idle and self.known(worker_id) is None:
                del self._sessions[worker_id]
        self._sweep_at = 2 * len(self._sessions) + 64
