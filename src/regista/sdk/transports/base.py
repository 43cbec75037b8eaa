"""WorkerTransport: the contract of the ways to exchange tasks and results with an orchestrator, and what they share."""

from collections.abc import Callable
from typing import Any, Protocol

from msgspec import Struct

from ..running_task import RunningTask
from ..task_runner import TaskRunner

#: No lease is shorter, whatever an orchestrator says: heartbeats come three times as often.
MIN_LEASE_S = 0.1


class RegistrationRejected(Exception):
    """The orchestrator does not accept the worker: its token is missing or wrong, or the id belongs to another worker."""

    def __init__(self, message: str, code: str = "") -> None:
        super().__init__(message)
        #: The code of the problem, where the orchestrator named one.
        self.code = code


class StreamUnavailable(Exception):
    """The orchestrator answers, but a stream cannot be opened."""


class SessionEnded(Exception):
    """The session is over; register again."""


class ProtocolError(SessionEnded):
    """The orchestrator sent something that cannot be decoded."""


class WorkerIdTaken(SessionEnded):
    """Another process has registered with this worker id; the message says from where, as far as known."""


class WorkerTransport(Protocol):
    """One way to exchange tasks and results, from its connect to its end. Its methods never wait and never raise."""

    def started(self, running_task: RunningTask) -> None: ...
    def progress(
        self, running_task: RunningTask, value: float | None, message: str, checkpoint: Any
    ) -> None: ...
    def finished(self, running_task: RunningTask) -> None: ...
    def drain(self, on: bool) -> None:
        """Ask for no more tasks, or for tasks again."""
        ...

    async def leave(self) -> None:
        """Hand back what the worker still holds, and end the session."""
        ...


class WorkerRuntime(Struct, frozen=True):
    """What all connections of a worker share."""

    task_runner: TaskRunner
    #: Skills and models that are loaded right now.
    hot: Callable[[], tuple[str, ...]]
    #: Names this process: another process with the same worker id is another worker.
    incarnation: str = ""

    def held(self, destination: str) -> list[str]:
        """The attempts that this destination gave and has not acknowledged."""
        return [one.attempt_id for one in self._of(destination)]

    def results(self, destination: str) -> list[RunningTask]:
        """Those of them that have ended."""
        return [one for one in self._of(destination) if one.result is not None]

    def _of(self, destination: str) -> list[RunningTask]:
        return [one for one in self.task_runner.running_tasks() if one.destination == destination]

    def cluster_of(self, worker_id: str) -> str:
        """The store that gave everything held under this id; empty when there is none, or more than one."""
        running = self.task_runner.running_tasks()
        found = {one.destination for one in running if one.destination.endswith(f"/{worker_id}")}
        return found.pop().removesuffix(f"/{worker_id}") if len(found) == 1 else ""

    def resend(self, destination: str, transport: WorkerTransport) -> None:
        """Send what may not have arrived over an earlier transport: progress, and results without acknowledgement."""
        for one in self._of(destination):
            if one.last_progress is not None:
                transport.progress(one, *one.last_progress)
            if one.result is not None:
                transport.finished(one)
