"""RemoteWorker: runs a worker's tasks for orchestrators in other processes."""

import asyncio
import logging
import uuid
from collections.abc import Callable
from datetime import datetime
from typing import Any

import aiohttp
from msgspec.structs import replace

from .. import model
from ..clock import Clock, SystemClock
from ..config import WorkerConfig
from ..payloads.task_files import TaskFilesProvider
from ..tls import TlsFiles, client_context
from .connection import OrchestratorConnection
from .credentials import OrchestratorCredentials
from .profile import build_worker_record, choose_worker_id
from .targets import OrchestratorTarget, load_targets
from .task_runner import LAST_WORDS_S, RunningTask, TaskRunner
from .tasks import Worker
from .transports.base import WorkerRuntime, WorkerTransport
from .transports.polling import PollingTransport, RoundRobinPoller

log = logging.getLogger("regista.worker")

#: How often the choice of an orchestrator is checked.
_WATCH_S = 1.0
#: How long closing TLS may take. The library does not wait for it, and a loop that ends first cuts it off.
_TLS_CLOSE_S = 0.25
#: Results that no connection can take are kept so long.
_KEEP_S = 3600.0


class RemoteWorker:
    """One worker, connected to one or more orchestrators.

    It is registered with all of them under one id. `FAILOVER` takes tasks from the first (by priority) that can be
    reached, and goes back to it when it returns; `ROUND_ROBIN` polls all of them in turn, by weight. Results go to the
    store that gave the task and to no other, and are kept until it has acknowledged them.
    """

    def __init__(
        self,
        worker: Worker,
        config: WorkerConfig | None = None,
        *,
        clock: Clock | None = None,
        worker_id: str = "",
        files: TaskFilesProvider | None = None,
    ) -> None:
        self.config = config if config is not None else WorkerConfig.from_env()
        self.id = worker_id or choose_worker_id(worker, self.config)
        self._incarnation = uuid.uuid4().hex
        self._worker = worker
        self._targets = load_targets(self.config)
        self._shares = len(self._targets) > 1 and self.config.multi_orchestrator_mode == "ROUND_ROBIN"
        self._clock = clock or SystemClock()
        capacity = self.config.max_concurrent_tasks or worker.concurrency
        self._task_runner = TaskRunner(worker, self.id, capacity, self._clock, self, files)
        self._runtime = WorkerRuntime(self._task_runner, lambda: worker.hot, self._incarnation)
        self._client: aiohttp.ClientSession | None = None
        self._login: OrchestratorCredentials | None = None
        if self.config.one_time_password:
            # It is valid once, so all orchestrators of the list must be of one store, and share the login.
            self._login = OrchestratorCredentials(self.id, self.config, self.config.one_time_password)
        self._connections: list[OrchestratorConnection] = []
        self._poller: RoundRobinPoller | None = None
        #: What runs from start to stop.
        self._tasks: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()
        self._stopped = asyncio.Event()
        #: The stop that is under way.
        self._stopping: asyncio.Task[None] | None = None
        #: Attempt → since when no connection can take its result.
        self._unclaimed: dict[str, datetime] = {}

    # -- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to connect; returns at once, and retries for ever. Waits for a stop that is under way."""
        if self._stopping is not None:
            await asyncio.wait([self._stopping])
        if self._client is not None:
            return
        self._changed, self._stopped = asyncio.Event(), asyncio.Event()
        self._task_runner.resume()
        # No limit on connections: a poll that is open must not keep a result from being sent.
        tls = client_context(
            TlsFiles(self.config.tls_cert_path, self.config.tls_key_path, self.config.tls_ca_path)
        )
        self._client = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, ssl=tls or True))
        self._connections = [self._connection(target, self._client) for target in self._targets]
        if self._shares:
            self._poller = RoundRobinPoller(self._polling_transports, lambda: self._task_runner.free)
        self._choose()
        loops = [("worker", self._watch()), *((c.target.url, c.run()) for c in self._connections)]
        if self._poller is not None:
            loops.append(("round-robin", self._poller.run()))
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(each, name=f"{name}-{self.id}") for name, each in loops]

    def _connection(
        self, target: OrchestratorTarget, client: aiohttp.ClientSession
    ) -> OrchestratorConnection:
        return OrchestratorConnection(
            target,
            self.id,
            self.config,
            client,
            self._login or OrchestratorCredentials(self.id, self.config),
            self._runtime,
            self._record,
            self._on_change,
            polls_in_turn=self._shares,
        )

    def _polling_transports(self) -> list[tuple[PollingTransport, int]]:
        """The connected transports, each with the weight of its orchestrator."""
        pairs = [(each.transport, each.target.weight) for each in self._connections]
        return [(one, weight) for one, weight in pairs if isinstance(one, PollingTransport)]

    def _record(self, worker_id: str) -> model.Worker:
        return replace(
            build_worker_record(self._worker, worker_id, self.config), incarnation=self._incarnation
        )

    async def stop(self, grace_s: float | None = None) -> None:
        """Drain: take nothing new, let what runs finish within the grace, deliver, hand back the rest.

        A second one waits for the first, and cuts its grace to its own; whoever waits may be cancelled, the stop goes on.
        """
        grace_s = self.config.shutdown_timeout_s if grace_s is None else grace_s
        loop = asyncio.get_running_loop()
        if self._stopping is not None:
            loop.call_later(grace_s, self._hurry_up, self._stopping)
        elif self._client is not None:
            self._stopping = loop.create_task(self._stop(grace_s), name=f"stop-{self.id}")
        if self._stopping is not None:
            await asyncio.shield(self._stopping)

    def _hurry_up(self, stopping: "asyncio.Task[None]") -> None:
        if stopping is self._stopping:
            self.skip_grace()

    async def _stop(self, grace_s: float) -> None:
        try:
            await self._leave(grace_s)
        finally:
            self._stopping = None

    async def _leave(self, grace_s: float) -> None:
        for connection in self._connections:
            connection.drain()
        await self._task_runner.wait_idle(grace_s)
        await self._task_runner.cancel_all()
        await self._wait_for_acknowledgements(min(LAST_WORDS_S, max(1.0, grace_s)))
        # First where the tasks came from: on a shared store, the first to leave ends the session.
        for takes_tasks in (True, False):
            leaving = [each.leave() for each in self._connections if each.takes_tasks is takes_tasks]
            await asyncio.gather(*leaving, return_exceptions=True)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        http, self._client = self._client, None
        if http is not None:
            await http.close()
        if any(target.url.startswith("https:") for target in self._targets):
            await asyncio.sleep(_TLS_CLOSE_S)
        self._task_runner.close()
        self._stopped.set()

    def held(self) -> list[str]:
        """The attempts in its hands: waiting, running, or with a result that nobody has acknowledged."""
        return self._task_runner.held()

    def load(self) -> int:
        """How many tasks run here, or wait for a slot."""
        return self._task_runner.load

    def transports(self) -> dict[str, str]:
        """URL of an orchestrator → how it is connected: stream, poll, standby or nothing."""
        return {each.target.url: each.transport_name for each in self._connections}

    def skip_grace(self) -> None:
        """End the grace of a stop that is under way: running tasks are handed back now."""
        self._task_runner.skip_grace()

    async def wait(self) -> None:
        """Return when it has stopped."""
        await self._stopped.wait()

    async def wait_connected(self, timeout_s: float | None = None) -> bool:
        """True as soon as tasks can come from an orchestrator; False when the time is up."""
        return await _wait_until(
            lambda: any(each.takes_tasks and each.transport is not None for each in self._connections),
            timeout_s,
        )

    async def _wait_for_acknowledgements(self, timeout_s: float) -> None:
        def delivered() -> bool:
            sessions = [each.session for each in self._connections if each.session is not None]
            return not any(self._runtime.results(session.destination) for session in sessions)

        await _wait_until(delivered, timeout_s)

    # -- choosing --------------------------------------------------------------------------------

    def _on_change(self) -> None:
        self._changed.set()

    async def _watch(self) -> None:
        """Every second, and when a connection comes or goes, choose where tasks come from."""
        loop = asyncio.get_running_loop()
        while True:
            self._changed.clear()
            try:
                self._choose()
                self._drop_unclaimed()
            except Exception:
                log.exception("looking after the connections failed; the next turn tries again")
            began = loop.time()
            try:
                async with asyncio.timeout(_WATCH_S):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._warn_of_delay(loop.time() - began - _WATCH_S)

    def _warn_of_delay(self, late_s: float) -> None:
        """A worker that wakes up so late has sent no heartbeat, and its tasks may be lost by now."""
        leases = [each.session.lease_s for each in self._connections if each.session is not None]
        if leases and late_s > min(leases) / 3:
            log.warning(
                "event loop blocked for %.1f s, no heartbeat was sent: an async task that blocks "
                "(make it a plain function, which runs in a thread), or a suspended machine",
                late_s,
                extra={"action": "held_up", "worker_id": self.id},
            )

    def _choose(self) -> None:
        """Decide which connections take tasks. ROUND_ROBIN: all. FAILOVER: the first that is not failing, and those before
        it, which go on trying.
        """
        served, destinations = False, set[str]()
        for connection in self._connections:
            connection.take_tasks(not served, destinations)
            if connection.takes_tasks and connection.transport is not None and connection.session is not None:
                destinations.add(connection.session.destination)
            served = served or not (self._shares or connection.is_failing)
        if self._poller is not None:
            self._poller.wake()

    def _drop_unclaimed(self) -> None:
        """Results for a store that never comes back must not fill the memory."""
        now = self._clock.now()
        ended = [one for one in self._task_runner.running_tasks() if one.result is not None]
        unclaimed = [one.attempt_id for one in ended if self._transport_for(one) is None]
        self._unclaimed = {attempt_id: self._unclaimed.get(attempt_id, now) for attempt_id in unclaimed}
        for attempt_id, since in self._unclaimed.items():
            if (now - since).total_seconds() > _KEEP_S:
                log.warning("dropping the result of %s: not acknowledged for 1 h", attempt_id)
                self._task_runner.release(attempt_id)

    # -- TaskListener ----------------------------------------------------------------------------

    def _transport_for(self, running_task: RunningTask) -> WorkerTransport | None:
        """Where reports of this task go: to the store that gave it, if possible where tasks come from."""
        able = [each for each in self._connections if each.gave(running_task)]
        chosen = min(able, key=lambda each: not each.takes_tasks, default=None)
        return None if chosen is None else chosen.transport

    def started(self, running_task: RunningTask) -> None:
        if (transport := self._transport_for(running_task)) is not None:
            transport.started(running_task)

    def progress(self, running_task: RunningTask, value: float | None, message: str, checkpoint: Any) -> None:
        if (transport := self._transport_for(running_task)) is not None:
            transport.progress(running_task, value, message, checkpoint)

    def finished(self, running_task: RunningTask) -> None:
        """Send the result to the store that gave the task. While it cannot be reached the result is kept."""
        if (transport := self._transport_for(running_task)) is not None:
            transport.finished(running_task)
        if self._poller is not None:
            self._poller.wake()


async def _wait_until(holds: Callable[[], bool], timeout_s: float | None) -> bool:
    try:
        async with asyncio.timeout(timeout_s):
            while not holds():  # noqa: ASYNC110  # what it waits for comes about in too many ways
                await asyncio.sleep(0.01)
    except TimeoutError:
        return False
    return True
