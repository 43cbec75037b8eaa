"""OrchestratorConnection: keeps a worker registered with one orchestrator, and reconnects."""

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Coroutine
from typing import Any

import aiohttp

from .. import model
from ..aio import Backoff
from ..config import WorkerConfig
from ..connection_errors import describe
from .credentials import OrchestratorCredentials
from .http import OrchestratorHttp
from .profile import registration_body
from .registration import WorkerSession, hint_for, register
from .running_task import RunningTask
from .targets import OrchestratorTarget
from .transports.base import (
    RegistrationRejected,
    SessionEnded,
    StreamUnavailable,
    WorkerIdTaken,
    WorkerRuntime,
    WorkerTransport,
)
from .transports.polling import PollingTransport
from .transports.stream import StreamTransport, open_stream, opening_s

log = logging.getLogger("regista.worker")

#: The pauses between tries.
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.05, 30.0
#: While tasks are held, so many tries fit into a lease: one lease after an outage of the orchestrator they count as lost.
_TRIES_PER_LEASE = 6
#: A session or a stream that lasted so long was a success.
_STABLE_S = 2.0
#: After so many failures in a row the orchestrator counts as failing, though it answers; after so many short streams, the
#: worker polls.
_MAX_SHORT_SESSIONS = 5
#: After a connection of this length, it is worth a warning again that another process has the worker id.
_WARN_AGAIN_S = 600.0


class OrchestratorConnection:
    """One orchestrator. `run` never ends by itself; the caller cancels it.

    The worker stays registered and sends heartbeats also while the connection does not take tasks (`takes_tasks`):
    then results and lost connections of other orchestrators have a place to go at once.
    """

    #: A polling worker tries after so many seconds whether a stream can be opened.
    stream_retry_s = 30.0

    def __init__(
        self,
        target: OrchestratorTarget,
        worker_id: str,
        config: WorkerConfig,
        client: aiohttp.ClientSession,
        credentials: OrchestratorCredentials,
        runtime: WorkerRuntime,
        describe: Callable[[str], model.Worker],
        on_change: Callable[[], None],
        *,
        polls_in_turn: bool = False,
    ) -> None:
        self.target = target
        self.worker_id = worker_id
        self.takes_tasks = True
        self.transport: WorkerTransport | None = None
        self.session: WorkerSession | None = None
        self._config = config
        self._client = client
        self._credentials = credentials
        self._runtime = runtime
        self._describe = describe
        self._on_change = on_change
        #: RoundRobinPoller polls for all connections; there are no streams.
        self._polls_in_turn = polls_in_turn
        self._backoff = Backoff(_FIRST_PAUSE_S, _LAST_PAUSE_S)
        self._last_try_failed = False
        self._rejected = False
        #: The last reason for being unavailable that was logged; empty while connected.
        self._logged = ""
        self._was_connected = False
        self._id_taken = False
        #: Sessions, and streams, in a row that ended at once.
        self._short_sessions = self._short_streams = 0
        self._connected_at = 0.0
        self._is_draining = False
        self._left = False
        self._mode_changed = asyncio.Event()

    @property
    def is_failing(self) -> bool:
        """The last try failed; or several sessions in a row ended at once, and this one is too young to tell."""
        if self._last_try_failed or self._short_sessions < _MAX_SHORT_SESSIONS:
            return self._last_try_failed
        return self.transport is None or self._age_s() < _STABLE_S

    def _age_s(self) -> float:
        return asyncio.get_running_loop().time() - self._connected_at

    @property
    def transport_name(self) -> str:
        """How it is connected: stream, poll, standby, or nothing."""
        if isinstance(self.transport, PollingTransport):
            return "poll" if self.transport.takes_tasks or self._polls_in_turn else "standby"
        return "" if self.transport is None else "stream"

    # -- life ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Be connected; after every end, connect again."""
        loop = asyncio.get_running_loop()
        while not self._left:
            began = loop.time()
            try:
                await self._connect()
            except RegistrationRejected as error:
                self._log_unavailable(
                    f"rejected the registration: {error}; {hint_for(error.code)}", logging.ERROR
                )
                self._rejected = True
            except WorkerIdTaken as error:
                self._on_id_taken(str(error), loop.time() - began)
            except SessionEnded as error:
                self._on_session_ended(error, loop.time() - began)
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                never_answered = "" if self._was_connected else self.target.url
                self._log_unavailable(f"cannot be reached: {describe(error, never_answered)}")
            except Exception:
                log.exception("the connection to %s failed; it is tried again", self.target.url)
                self._log_unavailable("failed")
            await asyncio.sleep(self._pause_s())

    def _on_session_ended(self, error: SessionEnded, lasted_s: float) -> None:
        if lasted_s > _STABLE_S:
            self._backoff.reset()
        self._short_sessions = 0 if lasted_s > _STABLE_S else self._short_sessions + 1
        if self._short_sessions >= _MAX_SHORT_SESSIONS:
            self._log_unavailable(f"ends every session at once: {error}")
        elif self.takes_tasks and not self._is_draining:
            log.info("%s: %s; connecting again", self.target.url, error, extra=self._extra("reconnecting"))

    def _on_id_taken(self, other: str, lasted_s: float) -> None:
        """Two processes would take the id from each other for ever: this one comes back slowly, and warns once."""
        level = logging.DEBUG if self._id_taken and lasted_s < _WARN_AGAIN_S else logging.WARNING
        self._id_taken = self._rejected = True
        where = other or "from an unknown address"
        self._log_unavailable(
            f"has another worker named {self.worker_id!r} now ({where}); give each its own WORKER_ID", level
        )

    def _log_unavailable(self, reason: str, level: int = logging.WARNING) -> None:
        """Log once that the worker waits, and why."""
        if reason != self._logged:
            self._logged = reason
            log.log(level, "%s %s; trying again", self.target.url, reason, extra=self._extra("waiting"))
        self._last_try_failed = True
        self._on_change()

    def _pause_s(self) -> float:
        pause_s = self._backoff.next_s()
        if self._rejected:
            self._rejected = False
            return _LAST_PAUSE_S
        if self.session is not None and self._runtime.held(self.session.destination):
            pause_s = min(pause_s, self.session.lease_s / _TRIES_PER_LEASE)
        return pause_s * (1.0 - random.random() / 3)

    def _extra(self, action: str) -> dict[str, str]:
        return {"action": action, "worker_id": self.worker_id, "url": self.target.url}

    # -- what the worker asks of it --------------------------------------------------------------

    def take_tasks(self, on: bool, elsewhere: Collection[str] = ()) -> None:
        """Take tasks from here, or stand by: stay registered, and finish what runs.

        `elsewhere` are the destinations that other connections take tasks from.
        """
        if on != self.takes_tasks:
            self.takes_tasks = on
            if self.transport is not None:
                self._drain_if_needed(self.transport)
        if self._wants_other_transport(elsewhere):
            self._mode_changed.set()

    def _wants_other_transport(self, elsewhere: Collection[str]) -> bool:
        if self.transport is None or self._polls_in_turn:
            return False
        if isinstance(self.transport, PollingTransport):
            return self.transport.takes_tasks != self.takes_tasks
        # A stream is kept until all that came over it is done, unless another one leads to the same store.
        destination = "" if self.session is None else self.session.destination
        is_needed = destination not in elsewhere and bool(self._runtime.held(destination))
        return not self.takes_tasks and not is_needed

    def drain(self) -> None:
        """Take no more tasks, for good."""
        self._is_draining = True
        if self.transport is not None:
            self._drain_if_needed(self.transport)

    def _drain_if_needed(self, transport: WorkerTransport) -> None:
        """A polling worker that stands by just does not poll; a stream must say that it takes no tasks."""
        stands_by = not self.takes_tasks and not isinstance(transport, PollingTransport)
        transport.drain(self._is_draining or stands_by)

    async def leave(self) -> None:
        """Hand back what the worker holds, if it is connected, and do not reconnect."""
        self._left = True
        if self.transport is not None:
            await self.transport.leave()

    def gave(self, running_task: RunningTask) -> bool:
        """The task came from here, or from another orchestrator of the same store, and this one is connected."""
        if self.transport is None or self.session is None:
            return False
        return self.session.destination == running_task.destination

    # -- sessions --------------------------------------------------------------------------------

    async def _connect(self) -> None:
        """One session. Raises what ended it."""
        self.target = self.target.now(self._config)
        session = self.session = await self._register()
        loop, credentials = asyncio.get_running_loop(), self._credentials
        renewal = (
            loop.create_task(credentials.refresh_forever(self._client, session.url))
            if credentials.is_short_lived
            else None
        )
        try:
            while True:
                self._mode_changed.clear()
                await _first_of(self._exchange(session), self._mode_changed.wait())
                self.transport = None
        finally:
            if renewal is not None:
                renewal.cancel()
            self.transport = None
            self._on_change()

    async def _register(self) -> WorkerSession:
        # Before the first session here, what is held may still be of this store, by way of another orchestrator.
        last = self.session
        cluster = self._runtime.cluster_of(self.worker_id) if last is None else last.cluster_id
        held = self._runtime.held(f"{cluster}/{self.worker_id}") if cluster else []
        body = registration_body(self._describe(self.worker_id), held, cluster, self._may_stream)
        http = OrchestratorHttp(self._client, self.target.url, self._credentials)
        token = self.target.token_now(self._config)
        await self._credentials.prepare(self._client, self.target.url, token)
        session, stop = await register(http, self.worker_id, body)
        self._runtime.task_runner.cancel(stop)
        if session.payloads is not None:
            await self._runtime.task_runner.compare_files(session.destination, *session.payloads)
        return session

    @property
    def _may_stream(self) -> bool:
        return self._config.enable_websockets is not False and not self._polls_in_turn

    async def _exchange(self, session: WorkerSession) -> None:
        """Exchange tasks and results by the best transport there is."""
        if not self.takes_tasks or self._polls_in_turn:
            await self._polling(session, takes_tasks=False).run(self._on_connected)
            return
        socket = await self._find_stream(session)
        if socket is None:
            socket = await self._poll_until_stream(session)
        await self._stream(socket, session)

    def _polling(self, session: WorkerSession, *, takes_tasks: bool) -> PollingTransport:
        return PollingTransport(session, self._runtime, self._config, takes_tasks=takes_tasks)

    async def _find_stream(self, session: WorkerSession) -> aiohttp.ClientWebSocketResponse | None:
        if not self._may_stream or self._short_streams >= _MAX_SHORT_SESSIONS:
            return None
        try:
            return await open_stream(session, opening_s(session, self._runtime))
        except StreamUnavailable as reason:
            log.info("%s: no stream (%s); polling", self.target.url, reason, extra=self._extra("polling"))
            return None

    async def _stream(self, socket: aiohttp.ClientWebSocketResponse, session: WorkerSession) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            await StreamTransport(socket, session, self._runtime).run(self._on_connected)
        except StreamUnavailable as reason:
            # Something in between drops frames. The server has a seat for the socket: register again, and poll.
            self._short_streams = _MAX_SHORT_SESSIONS
            raise SessionEnded(f"no stream ({reason})") from None
        finally:
            if self._short_streams < _MAX_SHORT_SESSIONS:
                short = loop.time() - began < _STABLE_S
                self._short_streams = self._short_streams + 1 if short else 0

    async def _poll_until_stream(self, session: WorkerSession) -> aiohttp.ClientWebSocketResponse:
        """Poll; returns when a stream could be opened. What a poll was about to bring is offered again there."""
        polling = self._polling(session, takes_tasks=True)
        socket = await _first_of(self._look_for_stream(session, polling), polling.run(self._on_connected))
        assert isinstance(socket, aiohttp.ClientWebSocketResponse)
        return socket

    async def _look_for_stream(
        self, session: WorkerSession, polling: PollingTransport
    ) -> aiohttp.ClientWebSocketResponse:
        while True:
            await asyncio.sleep(self.stream_retry_s)
            if self._may_stream and not polling.sends_large_result:
                self._short_streams = 0
                try:
                    return await open_stream(session)
                except (StreamUnavailable, RegistrationRejected):
                    continue

    def _on_connected(self, transport: WorkerTransport) -> None:
        self.transport = transport
        self._last_try_failed = False
        self._connected_at = asyncio.get_running_loop().time()
        if self._is_draining or not self.takes_tasks:
            self._drain_if_needed(transport)
        if self._logged or not self._was_connected:
            self._logged = ""
            name = self.transport_name
            log.info("connected to %s by %s", self.target.url, name, extra=self._extra("connected"))
        self._was_connected = True
        self._on_change()


async def _first_of(one: Coroutine[Any, Any, Any], other: Coroutine[Any, Any, Any]) -> Any:
    """The result of the one that ends first, or its exception. The other one is cancelled, and has ended then."""
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(one, name="connection"), loop.create_task(other, name="connection-watch")]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(task.result() for task in tasks if task in done)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
