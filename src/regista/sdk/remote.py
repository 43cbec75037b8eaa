"""RemoteWorker: performs a worker's tasks for orchestrators in other processes."""

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
from ..payloads.task_files import FilesRoom
from ..tls import TlsFiles, client_context
from .connection import OrchestratorConnection
from .credentials import OrchestratorCredentials
from .profile import build_worker_record, choose_worker_id
from .slots import Slots
from .targets import load_targets
from .task_runner import LAST_WORDS_S, RunningTask, TaskRunner
from .tasks import Worker
from .transports.base import WorkerRuntime

log = logging.getLogger("regista.worker")

#: How often unused credit is moved, and the choice of an orchestrator is thought over.
_TICK_S = 1.0
#: How long the last words of TLS may take. The library does not wait for them, and a loop that ends first cuts them off.
_TLS_GOODBYE_S = 0.25
#: Results that no orchestrator came back for are kept so long.
_KEEP_S = 3600.0


class RemoteWorker:
    """One worker, connected to one or more orchestrators.

    `FAILOVER` works for the first (by priority) that can be reached, and goes back to it when it returns;
    `ROUND_ROBIN` works for all at once and shares its free slots among them by weight. Results go to the
    store that gave the task and to no other, and are kept until it has acknowledged them.
    """

    def __init__(
        self,
        worker: Worker,
        config: WorkerConfig | None = None,
        *,
        clock: Clock | None = None,
        worker_id: str = "",
        files: FilesRoom | None = None,
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
        self._slots = Slots(capacity, lambda: self._task_runner.load) if self._shares else None
        self._runtime = WorkerRuntime(self._task_runner, self._slots, lambda: worker.hot, self._incarnation)
        self._http: aiohttp.ClientSession | None = None
        self._shared_wallet: OrchestratorCredentials | None = None
        self._links: list[OrchestratorConnection] = []
        self._tasks: dict[OrchestratorConnection, asyncio.Task[None]] = {}
        self._ticking: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._stopped = asyncio.Event()
        #: The stop that is under way.
        self._stopping: asyncio.Task[None] | None = None
        #: Attempt → since when nobody comes for its result.
        self._unclaimed: dict[str, datetime] = {}

    # -- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to look for orchestrators; returns at once, and never gives up. A stop that is under way comes first."""
        if self._stopping is not None:
            await asyncio.wait([self._stopping])
        if self._http is not None:
            return
        self._changed, self._stopped = asyncio.Event(), asyncio.Event()
        self._task_runner.resume()
        # No limit on connections: a poll that is open must not keep a result from being sent.
        tls = client_context(
            TlsFiles(self.config.tls_cert_path, self.config.tls_key_path, self.config.tls_ca_path)
        )
        self._http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, ssl=tls or True))
        self._links = [self._link(number) for number in range(len(self._targets))]
        loop = asyncio.get_running_loop()
        self._choose()
        self._ticking = loop.create_task(self._tick_on(), name=f"worker-{self.id}")

    def _link(self, number: int) -> OrchestratorConnection:
        assert self._http is not None
        # Two orchestrators may share one store, where an id has one connection.
        worker_id = self.id if not (self._shares and number) else f"{self.id}-{number + 1}"
        return OrchestratorConnection(
            self._targets[number],
            worker_id,
            self.config,
            self._http,
            self._wallet_of(worker_id),
            self._runtime,
            self._record,
            self._on_change,
            self._covers,
        )

    def _wallet_of(self, worker_id: str) -> OrchestratorCredentials:
        """A password is good once, so whoever shares the id shares what it was traded for: its orchestrators share a store."""
        if worker_id != self.id or not self.config.one_time_password:
            return OrchestratorCredentials(worker_id, self.config)
        if self._shared_wallet is None:
            self._shared_wallet = OrchestratorCredentials(
                worker_id, self.config, self.config.one_time_password
            )
        return self._shared_wallet

    def _covers(self, link: OrchestratorConnection) -> bool:
        """Another orchestrator of the same store is our choice: there we have the one session that we can have.

        Two links with one id and one store would take it from each other again and again.
        """
        destination = None if link.session is None else link.session.destination
        others = (
            other for other in self._links if other is not link and other.takes_tasks and not other.is_failing
        )
        return any(other.session is not None and other.session.destination == destination for other in others)

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
        elif self._http is not None:
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
        for link in self._links:
            link.drain()
        await self._task_runner.wait_idle(grace_s)
        await self._task_runner.cancel_all()
        await self._deliver_within(min(LAST_WORDS_S, max(1.0, grace_s)))
        await asyncio.gather(*(link.leave() for link in self._links), return_exceptions=True)
        running = [task for task in (self._ticking, *self._tasks.values()) if task is not None]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self._tasks, self._ticking = {}, None
        http, self._http = self._http, None
        if http is not None:
            await http.close()
        if any(target.url.startswith("https:") for target in self._targets):
            await asyncio.sleep(_TLS_GOODBYE_S)
        self._task_runner.close()
        self._stopped.set()

    def held(self) -> list[str]:
        """The attempts in its hands: waiting, running, or with a result that nobody has acknowledged."""
        return self._task_runner.held()

    def load(self) -> int:
        """How many tasks run here, or wait for a slot."""
        return self._task_runner.load

    def transports(self) -> dict[str, str]:
        """URL of an orchestrator → how it is connected: stream, poll or nothing."""
        return {link.target.url: link.transport for link in self._links}

    def skip_grace(self) -> None:
        """Cut the grace of a stop that is under way: what runs is handed back now."""
        self._task_runner.skip_grace()

    async def wait(self) -> None:
        """Return when it has stopped."""
        await self._stopped.wait()

    async def wait_connected(self, timeout_s: float | None = None) -> bool:
        """True as soon as some orchestrator has welcomed us; False when the time is up."""
        return await self._wait_until(lambda: any(link.voice is not None for link in self._links), timeout_s)

    async def _deliver_within(self, seconds: float) -> None:
        """Wait for acknowledgements by those that we were last connected to."""

        def delivered() -> bool:
            homes = [link.session.destination for link in self._links if link.session is not None]
            return not any(self._runtime.results(destination) for destination in homes)

        await self._wait_until(delivered, seconds)

    async def _wait_until(self, holds: Callable[[], bool], timeout_s: float | None) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                while not holds():  # noqa: ASYNC110  # what it waits for comes about in too many ways
                    await asyncio.sleep(0.01)
        except TimeoutError:
            return False
        return True

    # -- choosing --------------------------------------------------------------------------------

    def _on_change(self) -> None:
        self._changed.set()

    async def _tick_on(self) -> None:
        """Every second, and whenever a link comes or goes."""
        while True:
            self._changed.clear()
            try:
                self._choose()
                if self._slots is not None:
                    self._slots.rebalance()
                self._drop_unclaimed()
            except Exception:
                log.exception("looking after the connections failed; the next turn tries again")
            began = asyncio.get_running_loop().time()
            try:
                async with asyncio.timeout(_TICK_S):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._warn_of_delay(asyncio.get_running_loop().time() - began - _TICK_S)

    def _warn_of_delay(self, late_s: float) -> None:
        """Who wakes up so late has not spoken with anybody, and what it holds may be lost by now."""
        if late_s > min((link.session.lease_s / 3 for link in self._links if link.session), default=_KEEP_S):
            log.warning(
                "this worker was held up for %.1f s, and nobody heard from it meanwhile: an async task that blocks "
                "(make it a plain function, which runs in a thread), or a machine that was asleep",
                late_s,
                extra={"action": "held_up", "worker_id": self.id},
            )

    def _choose(self) -> None:
        """Which orchestrators to work for. FAILOVER: all up to the first that answers; the better ones go
        on trying, and when one of them answers, it is the first.
        """
        served = False
        for link in self._links:
            link.want(not served)
            if not self._shares and not served:
                served = not link.is_failing
            task = self._tasks.get(link)
            if task is not None and not link.takes_tasks and link.voice is not None and link.is_covered:
                task.cancel()
            if (task is None or task.done()) and (link.takes_tasks or link.owes):
                self._tasks[link] = asyncio.get_running_loop().create_task(
                    link.run(), name=f"link-{link.target.url}"
                )

    def _drop_unclaimed(self) -> None:
        """A store that never comes back must not fill our memory."""
        now = self._clock.now()
        waiting = [one for one in self._task_runner.running_tasks() if one.result is not None]
        alone = [one.attempt_id for one in waiting if not any(link.owns(one) for link in self._links)]
        self._unclaimed = {attempt_id: self._unclaimed.get(attempt_id, now) for attempt_id in alone}
        for attempt_id, since in self._unclaimed.items():
            if (now - since).total_seconds() > _KEEP_S:
                log.warning("nobody came for the result of %s; it is dropped", attempt_id)
                self._task_runner.release(attempt_id)

    # -- what the performer says -----------------------------------------------------------------

    def started(self, running_task: RunningTask) -> None:
        for link in self._links:
            if link.owns(running_task) and link.voice is not None:
                link.voice.started(running_task)

    def progress(self, running_task: RunningTask, value: float | None, message: str, checkpoint: Any) -> None:
        for link in self._links:
            if link.owns(running_task) and link.voice is not None:
                link.voice.progress(running_task, value, message, checkpoint)

    def finished(self, running_task: RunningTask) -> None:
        """Say it to whoever gave the task; while nobody is there it is kept, and said at the next welcome."""
        for link in self._links:
            if link.owns(running_task) and link.voice is not None:
                link.voice.finished(running_task)
                break
        if self._slots is not None:
            self._slots.share_out()
