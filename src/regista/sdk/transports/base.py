"""WorkerTransport: a way to speak with an orchestrator. The stream is one, long-poll is the other."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from ..slots import Slots
from ..task_runner import RunningTask, TaskRunner

if TYPE_CHECKING:
    from aiohttp import ClientSession


#: No lease is shorter: beats come three times as often, whatever an orchestrator says.
LEAST_LEASE_S = 0.1


class RegistrationRejected(Exception):
    """The orchestrator does not let us in: the token is missing or wrong, or the id is somebody else's."""

    def __init__(self, words: str, code: str = "") -> None:
        super().__init__(words)
        #: The code of the problem, where it said one.
        self.code = code


class StreamUnavailable(Exception):
    """The orchestrator answers, but a stream cannot be had."""


class SessionEnded(Exception):
    """The conversation is over; register again."""


class ProtocolError(SessionEnded):
    """The other side says what nobody can read."""


class WorkerIdTaken(SessionEnded):
    """Another worker has registered with our id; the words say which, as far as the orchestrator knows."""


class Purse(Protocol):
    """What a worker comes in with; see `wallet`."""

    @property
    def token(self) -> str: ...
    @property
    def headers(self) -> dict[str, str]: ...
    def sign_body(self, body: dict[str, Any]) -> dict[str, Any]: ...
    async def renew(self, http: "ClientSession", url: str, stale: str) -> bool: ...


class WorkerSession(Struct, frozen=True):
    """One registration."""

    url: str
    credentials: Purse
    worker_id: str
    cluster_id: str
    #: Names the registration; an older one loses by it.
    number: int
    lease_s: float
    #: The payload store of the orchestrator and its owner; None where it says nothing of it.
    payloads: tuple[str, str] | None = None

    @property
    def destination(self) -> str:
        """Where results of this registration's tasks may go: the same store, under the same id."""
        return f"{self.cluster_id}/{self.worker_id}"

    @property
    def headers(self) -> dict[str, str]:
        """Who we are, by what we have now: it may be renewed while we speak."""
        return self.credentials.headers


class WorkerRuntime(Struct, frozen=True):
    """What every conversation shares: who does the work, and how free slots are shared, if they are."""

    task_runner: TaskRunner
    slots: Slots | None
    #: What is loaded right now.
    hot: Callable[[], tuple[str, ...]]
    #: Names this process: another one with our id is another worker.
    incarnation: str = ""

    def held(self, destination: str) -> list[str]:
        """What this home gave, and has not acknowledged."""
        return [one.attempt_id for one in self.task_runner.running_tasks() if one.destination == destination]

    def cluster_of(self, worker_id: str) -> str:
        """The store that gave all that is held under this id; empty when there is none, or more than one."""
        homes = {
            one.destination
            for one in self.task_runner.running_tasks()
            if one.destination.endswith(f"/{worker_id}")
        }
        return homes.pop().removesuffix(f"/{worker_id}") if len(homes) == 1 else ""

    def results(self, destination: str) -> list[RunningTask]:
        """What this home gave and has ended."""
        running_tasks = self.task_runner.running_tasks()
        return [one for one in running_tasks if one.destination == destination and one.result is not None]


class WorkerTransport(Protocol):
    """One conversation, from its welcome to its end. Its methods never wait and never raise.

    It is what the slots lend credit to (`slots.Taker`): credit is lost together with the conversation it was given to.
    """

    weight: int

    def started(self, running_task: RunningTask) -> None: ...
    def progress(
        self, running_task: RunningTask, value: float | None, message: str, checkpoint: Any
    ) -> None: ...
    def finished(self, running_task: RunningTask) -> None: ...
    def grant(self, more: int) -> None: ...
    def ask_back(self, some: int) -> None: ...
    def drain(self, on: bool) -> None: ...
    async def leave(self) -> None: ...
