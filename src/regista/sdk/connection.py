"""OrchestratorConnection: a worker's tie to one orchestrator. Registers, speaks, and comes back; nothing is lost in between."""

import asyncio
import logging
import random
from collections.abc import Callable

import aiohttp

from .. import model
from ..config import WorkerConfig
from ..connection_errors import describe, is_refused
from .credentials import OrchestratorCredentials
from .profile import registration_body
from .registration import hint_for, register
from .targets import OrchestratorTarget
from .task_runner import RunningTask
from .transports.base import (
    RegistrationRejected,
    SessionEnded,
    StreamUnavailable,
    WorkerIdTaken,
    WorkerRuntime,
    WorkerSession,
    WorkerTransport,
)
from .transports.polling import PollingTransport
from .transports.stream import StreamTransport, open_stream, opening_s

log = logging.getLogger("regista.worker")

#: The pauses between tries: doubled from the first to the last, less up to a third by chance.
_FIRST_PAUSE_S = 0.05
_LAST_PAUSE_S = 30.0
#: Whoever holds something that was given out there tries at least so often within a lease: one lease after an outage of
#: the orchestrator, what it holds counts as lost.
_TRIES_PER_LEASE = 6
#: A worker that starts beside its orchestrator is there first, and should not be found asleep: for its first second it
#: looks again and again whether somebody listens by now. Whoever was connected before comes back more slowly: there may
#: be thousands.
_QUICK_PAUSE_S = 0.025
_QUICK_TRIES = 40
#: As many tries as lead to the last pause at once.
_SLOW = _QUICK_TRIES + 11
#: The pause of a second choice that is not needed right now.
_NOT_WANTED_PAUSE_S = 1.0
#: The pause after a conversation that went well until it was cut.
_BRIEF_PAUSE_S = 0.2
#: Whoever takes our id after a connection of so many seconds is news again.
_LONG_S = 600.0
#: What ends sooner than this was not worth having; after so many such streams in a row we poll, and after so many such
#: conversations we work for the next choice.
_SHORT_S = 2.0
_SHORT_STREAMS = 5
_SHORT_ENDS = 5


class OrchestratorConnection:
    """One orchestrator. `run` never ends by itself; whoever started it cancels it.

    It says once that it waits, and once that it is connected. While `wanted` is False it connects only for
    what it still owes: results of tasks that this orchestrator gave.
    """

    #: A long-polling worker looks so often whether a stream can be had after all.
    stream_again_s = 30.0

    def __init__(
        self,
        target: OrchestratorTarget,
        worker_id: str,
        config: WorkerConfig,
        http: aiohttp.ClientSession,
        credentials: OrchestratorCredentials,
        runtime: WorkerRuntime,
        describe: Callable[[str], model.Worker],
        on_change: Callable[[], None],
        covers: Callable[["OrchestratorConnection"], bool] = lambda link: False,
    ) -> None:
        self.target = target
        self.worker_id = worker_id
        self.takes_tasks = True
        self.voice: WorkerTransport | None = None
        self.session: WorkerSession | None = None
        self._config = config
        self._http = http
        self._credentials = credentials
        self._runtime = runtime
        self._describe = describe
        self._on_change = on_change
        #: Whether another link brings what this one owes.
        self._covers = covers
        self._tries = 0
        self._failed = False
        self._nobody = False
        self._told = ""
        self._short_streams = 0
        self._drained = False
        self._was_connected = False
        self._displaced = False
        self._gone = False
        self._began = 0.0
        #: When the last conversation began, and how many in a row have ended at once.
        self._spoke_at = 0.0
        self._short_ends = 0
        self._leaving: asyncio.Task[None] | None = None

    @property
    def owes(self) -> bool:
        """It has something in its hands that this orchestrator gave, and that no other link brings back."""
        held = self.session is not None and bool(self._runtime.held(self.session.destination))
        return held and not self._covers(self)

    @property
    def is_covered(self) -> bool:
        """Another link has the session that this one has: it must not be ended here."""
        return self._covers(self)

    @property
    def is_failing(self) -> bool:
        """The last try failed; or it did not, but the conversations before it ended at once, and this one is too young."""
        young = asyncio.get_running_loop().time() - self._spoke_at < _SHORT_S
        return self._failed or (self._short_ends >= _SHORT_ENDS and (young or self.voice is None))

    @property
    def transport(self) -> str:
        """How it is connected: stream, poll or nothing."""
        return {StreamTransport: "stream", PollingTransport: "poll"}.get(type(self.voice), "")

    # -- life ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Be connected; after every end, begin again."""
        while not self._gone:
            if not (self.takes_tasks or self.owes):
                self._tries = 0
                await asyncio.sleep(_NOT_WANTED_PAUSE_S)
                continue
            self._began = asyncio.get_running_loop().time()
            try:
                self.target = self.target.now(self._config)
                self.session = await self._register()
                await self._run_session(self.session)
            except RegistrationRejected as error:
                self._log_unavailable(f"refuses us ({error}); {hint_for(error.code)}", slow=True)
            except WorkerIdTaken as error:
                self._displaced_by(str(error))
            except SessionEnded as error:
                self._cut(error)
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                self._nobody = is_refused(error)
                self._log_unavailable(
                    f"cannot be reached: {describe(error, '' if self._was_connected else self.target.url)}"
                )
            except Exception:
                log.exception("speaking with %s failed; it is tried again", self.target.url)
                self._log_unavailable("failed")
            await asyncio.sleep(self._pause_s())

    def _displaced_by(self, rival: str) -> None:
        """Another worker has our id. Two would take it from each other for ever: we come back slowly, and say why once."""
        if asyncio.get_running_loop().time() - self._began > _LONG_S:
            self._displaced = False
        level = logging.DEBUG if self._displaced else logging.WARNING
        self._displaced = True
        named = f"has another worker named {self.worker_id!r} now ({rival or 'nobody knows from where'})"
        self._log_unavailable(f"{named}; give each its own WORKER_ID", slow=True, level=level)

    def _log_unavailable(self, reason: str, slow: bool = False, level: int | None = None) -> None:
        """Say once that we wait, and the reason."""
        self._tries = _SLOW if slow else min(max(self._tries, self._short_ends) + 1, _SLOW - 1)
        if reason != self._told:
            self._told = reason
            level = level or (logging.ERROR if slow else logging.WARNING)
            log.log(level, "%s %s; trying again", self.target.url, reason, extra=self._extra("waiting"))
        self._failed = True
        self._on_change()

    def _cut(self, error: SessionEnded) -> None:
        """The conversation went well until it ended. One that ends at once each time is begun less often."""
        if self._short_ends >= _SHORT_ENDS:
            self._log_unavailable(f"ends every conversation at once: {error}")
        elif self.takes_tasks and not self._drained:
            log.info("%s: %s; connecting again", self.target.url, error, extra=self._extra("reconnecting"))

    def _pause_s(self) -> float:
        if not self._tries:
            return _BRIEF_PAUSE_S * 2.0 ** min(self._short_ends, 7) * random.random()
        lease_s = self.session.lease_s if self.session is not None and self.owes else None
        quick = _QUICK_TRIES if self._nobody and not self._was_connected else 0
        return pause_s(self._tries, lease_s, quick) * (1.0 - random.random() / 3)

    def _extra(self, action: str) -> dict[str, str]:
        return {"action": action, "worker_id": self.worker_id, "url": self.target.url}

    def want(self, wanted: bool) -> None:
        """Take tasks from here, or no more. What runs goes on; when nothing is left we say goodbye."""
        if wanted != self.takes_tasks:
            self.takes_tasks = wanted
            if self.voice is not None:
                self.voice.drain(not wanted or self._drained)
        may_leave = self.voice is not None and not self.owes and not self.is_covered
        if not wanted and may_leave and self._leaving is None:
            self._leaving = asyncio.get_running_loop().create_task(self._leave(), name="link-leave")

    async def _leave(self) -> None:
        try:
            if self.voice is not None:
                await self.voice.leave()
        finally:
            self._leaving = None

    def drain(self) -> None:
        """Take nothing new, for good."""
        self._drained = True
        if self.voice is not None:
            self.voice.drain(True)

    async def leave(self) -> None:
        """Hand back what we hold, if anybody listens, and do not come back."""
        self._gone = True
        if self.voice is not None:
            await self.voice.leave()

    # -- registering -----------------------------------------------------------------------------

    async def _register(self) -> WorkerSession:
        # Where we never were we may still be known: another orchestrator of the same store gave what we hold.
        last = self.session
        cluster = self._runtime.cluster_of(self.worker_id) if last is None else last.cluster_id
        held = self._runtime.held(f"{cluster}/{self.worker_id}") if cluster else []
        body = registration_body(self._describe(self.worker_id), held, cluster, self._may_stream)
        token = self.target.token_now(self._config)
        session, stop = await register(
            self._http, self.target.url, self._credentials, token, self.worker_id, body
        )
        self._runtime.task_runner.cancel(stop)
        if session.payloads is not None:
            await self._runtime.task_runner.compare_files(session.destination, *session.payloads)
        return session

    @property
    def _may_stream(self) -> bool:
        return self._config.enable_websockets is not False

    # -- speaking --------------------------------------------------------------------------------

    async def _run_session(self, session: WorkerSession) -> None:
        """One conversation; ends by raising what happened. Meanwhile what we came in with is renewed."""
        loop, credentials = asyncio.get_running_loop(), self._credentials
        self._spoke_at = loop.time()
        fresh = (
            loop.create_task(credentials.refresh_forever(self._http, session.url))
            if credentials.is_short_lived
            else None
        )
        try:
            socket = await self._find_stream(session)
            if socket is not None:
                await self._stream(socket, session)
            else:
                await self._poll(session)
        finally:
            if fresh is not None:
                fresh.cancel()
            # One that is not wanted has its end from us, and ends soon when all is well.
            short = self.takes_tasks and loop.time() - self._spoke_at < _SHORT_S
            self._short_ends = self._short_ends + 1 if short else 0
            self.voice = None
            self._on_change()

    async def _find_stream(self, session: WorkerSession) -> aiohttp.ClientWebSocketResponse | None:
        if not self._may_stream or self._short_streams >= _SHORT_STREAMS:
            return None
        try:
            return await open_stream(self._http, session, opening_s(session, self._runtime))
        except StreamUnavailable as error:
            log.info("%s: no stream (%s); polling", self.target.url, error, extra=self._extra("polling"))
            return None

    async def _stream(self, socket: aiohttp.ClientWebSocketResponse, session: WorkerSession) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            await StreamTransport(socket, session, self._runtime, self.target.weight).run(self._on_connected)
        except StreamUnavailable as why:
            # Something in between swallows frames. The seat hangs on the socket: register again, and poll.
            self._short_streams = _SHORT_STREAMS
            raise SessionEnded(f"no stream ({why})") from None
        finally:
            if self._short_streams < _SHORT_STREAMS:
                short = loop.time() - began < _SHORT_S
                self._short_streams = self._short_streams + 1 if short else 0

    async def _poll(self, session: WorkerSession) -> None:
        """Long-poll; and look now and then for a stream, which is better."""
        loop = asyncio.get_running_loop()
        polling = PollingTransport(self._http, session, self._runtime, self.target.weight, self._config)
        talking = loop.create_task(polling.run(self._on_connected), name="polling")
        looking = loop.create_task(self._look_for_stream(session, polling), name="looking-for-stream")
        try:
            await asyncio.wait([talking, looking], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (talking, looking):
                task.cancel()
            _, found = await asyncio.gather(talking, looking, return_exceptions=True)
            if isinstance(found, aiohttp.ClientWebSocketResponse) and not talking.cancelled():
                await found.close()
        if not talking.cancelled():
            await talking
        elif isinstance(found, BaseException):
            raise found
        else:
            # The poll is over before the stream greets: what was on its way is offered again there.
            await self._stream(found, session)

    async def _look_for_stream(
        self, session: WorkerSession, polling: PollingTransport
    ) -> aiohttp.ClientWebSocketResponse:
        while True:
            await asyncio.sleep(self.stream_again_s)
            if self._may_stream and not polling.sends_much:
                self._short_streams = 0
                try:
                    return await open_stream(self._http, session)
                except (StreamUnavailable, RegistrationRejected):
                    continue

    def _on_connected(self, voice: WorkerTransport) -> None:
        self.voice = voice
        self._tries = 0
        self._failed = False
        if self._drained or not self.takes_tasks:
            voice.drain(True)
        if self._told or not self._was_connected:
            self._told = ""
            log.info("connected to %s by %s", self.target.url, self.transport, extra=self._extra("connected"))
        self._was_connected = True
        self._on_change()

    def owns(self, running_task: RunningTask) -> bool:
        """Its result goes through here, and somebody listens."""
        return (
            self.voice is not None
            and self.session is not None
            and self.session.destination == running_task.destination
        )


def pause_s(tries: int, lease_s: float | None, quick: int = 0) -> float:
    """Seconds before the next try, at most. `lease_s` where we hold something of theirs; the first `quick` are short."""
    if tries <= quick:
        return _QUICK_PAUSE_S
    longest = _LAST_PAUSE_S if lease_s is None or tries >= _SLOW else lease_s / _TRIES_PER_LEASE
    return min(longest, _FIRST_PAUSE_S * 2.0 ** (tries - quick - 1))
