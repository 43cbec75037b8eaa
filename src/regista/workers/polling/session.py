"""PollingSession: what is known of a worker that speaks HTTP, between one request of its own and the next."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from msgspec import Struct

from ...model import Task
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
    """What is known of one polling worker from one request to the next; the connection to it, once it is connected."""

    __slots__ = (
        "_credit_changed", "_ended", "_handed", "_withdraw", "asked_at", "leaving", "mailbox", "number", "provisional",
        "reported_draining", "skills", "socket", "worker_id",
    )  # fmt: skip

    transport = "poll"

    def __init__(
        self,
        worker_id: str,
        credit_changed: Callable[["PollingSession"], None],
        withdraw: Callable[["PollingSession", Sequence[str]], None],
    ) -> None:
        """`credit_changed` is called when tasks came in, `withdraw` with attempts that the worker should stop."""
        self.worker_id = worker_id
        self._credit_changed = credit_changed
        self._withdraw = withdraw
        self.mailbox = TaskMailbox()
        #: The epoch of its registration; 0 before.
        self.number = 0
        #: Everything that it can do; `worker.skills` is what it can start right now.
        self.skills: tuple[str, ...] = ()
        #: Known by a poll or a heartbeat only: a registration would say more.
        self.provisional = False
        #: Since when it is asked to register again, on a clock that never jumps.
        self.asked_at: float | None = None
        #: Its last heartbeat said that it wants no more tasks.
        self.reported_draining = False
        #: It has said that it leaves, and may still bring results.
        self.leaving = False
        self.socket: CommandSocket | None = None
        #: Attempt → what has left, the latest last.
        self._handed: dict[str, DeliveredTask] = {}
        #: Attempt → when its result came.
        self._ended: dict[str, float] = {}

    # -- WorkerConnection ------------------------------------------------------------------------

    def send(self, tasks: Sequence[Task]) -> None:
        """Put the tasks into the mailbox; they leave with the next poll."""
        self.mailbox.put(tasks)
        self._credit_changed(self)

    def cancel(self, attempt_ids: Sequence[str]) -> None:
        """Stop these. Those that have not left yet are taken out of the mailbox."""
        self._withdraw(self, attempt_ids)

    def set_draining(self, on: bool) -> None:
        """Nothing to do: the worker only gets what is in its mailbox."""

    def close(self, code: int, reason: str) -> None:
        """Answer its polls now, and close its command socket."""
        self.mailbox.wake_all()
        if self.socket is not None:
            self.socket.close(code, reason)

    # -- what has left, and what has ended -------------------------------------------------------

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

    def registered(self, session: int, skills: tuple[str, ...], provisional: bool) -> None:
        """The worker is connected under this session."""
        self.number = session
        self.skills = skills
        self.provisional = provisional
        self.leaving = self.reported_draining = False
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

    def __init__(
        self, create: Callable[[str], PollingSession], is_connected: Callable[[str, int], bool]
    ) -> None:
        self._create = create
        self._is_connected = is_connected
        self._sessions: dict[str, PollingSession] = {}
        #: The older SDK connects with its token alone: every command is sent to all of these.
        self.nameless: dict[CommandSocket, None] = {}
        self._sweep_at = 64

    def __iter__(self) -> Iterator[PollingSession]:
        return iter(list(self._sessions.values()))

    def find(self, worker_id: str) -> PollingSession | None:
        return self._sessions.get(worker_id)

    def find_connected(self, worker_id: str) -> PollingSession | None:
        """The session of a worker that is connected here under it; None when it must be connected (again)."""
        session = self._sessions.get(worker_id)
        if session is None or not session.number:
            return None
        return session if self._is_connected(worker_id, session.number) else None

    def open(self, worker_id: str) -> PollingSession:
        """The session of a worker, known or not."""
        session = self._sessions.get(worker_id)
        if session is None:
            self._sweep()
            session = self._sessions[worker_id] = self._create(worker_id)
        return session

    def sockets_of(self, worker_id: str) -> list[CommandSocket]:
        """The sockets on which a command for this worker is sent."""
        session = self._sessions.get(worker_id)
        if session is not None and session.socket is not None:
            return [session.socket]
        return list(self.nameless)

    def _sweep(self) -> None:
        """Forget workers that are gone, now and then: each pays for its own place in the list."""
        if len(self._sessions) < self._sweep_at:
            return
        for worker_id, session in list(self._sessions.items()):
            idle = session.socket is None and not session.mailbox.wanted
            if idle and self.find_connected(worker_id) is None:
                del self._sessions[worker_id]
        self._sweep_at = 2 * len(self._sessions) + 64
