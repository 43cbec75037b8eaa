"""StreamTransport: tasks, results and heartbeats over one WebSocket. docs/reference/stream.md explains the frames."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import aiohttp
import msgspec
from aiohttp import ClientWebSocketResponse, WSCloseCode, WSMsgType

from ...serialization import safe_text
from ...workers.protocol import frames
from ...workers.protocol.frame_sender import FrameSender
from ..http import LARGE_BYTES
from ..registration import WorkerSession
from ..running_task import RunningTask
from .base import (
    MIN_LEASE_S,
    ProtocolError,
    RegistrationRejected,
    SessionEnded,
    StreamUnavailable,
    WorkerIdTaken,
    WorkerRuntime,
)
from .results import encode_result, readable

log = logging.getLogger("regista.worker")

#: How long the socket may take to open, and then the welcome to come; the shortest time while the worker holds tasks.
_OPENING_S, _MIN_OPENING_S = 10.0, 0.5
#: The largest message that is read; the orchestrator's own limit bounds the params of a task.
_MAX_MESSAGE = 128 * 1024 * 1024
#: A task that still runs after this is reported as started.
_REPORT_STARTED_S = 0.25
#: Progress within this time is sent together.
_REPORT_PROGRESS_S = 0.05
#: How long the orchestrator may take to close the socket after the worker has left.
_LEAVE_S = 3.0
#: What decoding a message may raise: not msgpack, not our frames, not even bytes.
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError, TypeError)


def opening_s(session: WorkerSession, runtime: WorkerRuntime) -> float:
    """How long to wait for the socket, and then for a welcome.

    A worker that holds tasks must have sent a heartbeat before its lease is over, if need be by polling.
    """
    if not runtime.held(session.destination):
        return _OPENING_S
    return min(_OPENING_S, max(_MIN_OPENING_S, session.lease_s / 3))


async def open_stream(session: WorkerSession, timeout_s: float = _OPENING_S) -> ClientWebSocketResponse:
    """The socket of the stream. StreamUnavailable when a proxy or the orchestrator does not accept the upgrade."""
    url = f"{session.url}/_worker/ws/{session.worker_id}"
    try:
        async with asyncio.timeout(timeout_s):
            socket = await session.http.client.ws_connect(
                url,
                protocols=(frames.PROTOCOL,),
                headers=session.http.headers,
                max_msg_size=_MAX_MESSAGE,
                timeout=aiohttp.ClientWSTimeout(ws_close=min(_LEAVE_S, session.lease_s / 10)),
            )
    except aiohttp.WSServerHandshakeError as error:
        if error.status in (401, 403):
            raise RegistrationRejected(f"HTTP {error.status} for the stream") from None
        raise StreamUnavailable(f"HTTP {error.status} instead of a WebSocket") from None
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise StreamUnavailable(f"{type(error).__name__}: {safe_text(error)}") from None
    if socket.protocol != frames.PROTOCOL:
        await socket.close()
        raise StreamUnavailable(f"the other side does not speak {frames.PROTOCOL}")
    return socket


class StreamTransport:
    """Everything that is exchanged over one socket."""

    def __init__(
        self, socket: ClientWebSocketResponse, session: WorkerSession, runtime: WorkerRuntime
    ) -> None:
        self._socket = socket
        self._session = session
        self._runtime = runtime
        self._sender = FrameSender(socket.send_bytes, self._on_blocked)
        self._loop = asyncio.get_running_loop()
        self._lease_s = session.lease_s
        self._max_bytes = 0
        self._received_at = self._loop.time()
        #: Attempt → when its result was sent.
        self._sent: dict[str, float] = {}
        self._unreported: dict[str, RunningTask] = {}
        self._unsent_progress: dict[str, frames.ProgressFrame] = {}
        self._reported_hot = runtime.hot()
        #: Bytes of results since anything was received; and whether they take so long that no heartbeat gets through.
        self._unanswered_bytes = 0
        self._is_too_slow = False
        self._ended = asyncio.Event()

    async def run(self, on_connected: Callable[["StreamTransport"], None]) -> None:
        """Send the hello, and go on until the socket closes. StreamUnavailable when there was no welcome."""
        heartbeats: asyncio.Task[None] | None = None
        try:
            await self._shake_hands()
            on_connected(self)
            self._runtime.resend(self._session.destination, self)
            heartbeats = self._loop.create_task(self._send_heartbeats(), name="stream-heartbeats")
            async for message in self._socket:
                self._receive(message.data)
        finally:
            if heartbeats is not None:
                heartbeats.cancel()
            self._sender.close()
            self._sent.clear()
            await self._socket.close()
            self._ended.set()
        if self._socket.close_code == WSCloseCode.INVALID_TEXT:
            self._replace_unreadable_results()
        if self._is_too_slow:
            raise StreamUnavailable("the connection is too slow for the results")
        raise SessionEnded(f"the stream was closed ({self._socket.close_code})")

    async def _shake_hands(self) -> None:
        hello = frames.HelloFrame(self._session.number, self._runtime.held(self._session.destination))
        try:
            await self._socket.send_bytes(frames.encode([hello]))
            message = await self._socket.receive(timeout=opening_s(self._session, self._runtime))
        except (ConnectionError, TimeoutError) as error:
            raise StreamUnavailable(f"no welcome: {type(error).__name__}") from None
        if message.type is not WSMsgType.BINARY:
            raise StreamUnavailable(f"no welcome: the socket was closed ({self._socket.close_code})")
        try:
            self._receive(message.data)
        except ProtocolError as error:
            raise StreamUnavailable(f"no welcome: {error}") from None
        if not self._max_bytes:
            raise StreamUnavailable("the first frame was not a welcome")

    def _replace_unreadable_results(self) -> None:
        """The orchestrator could not decode a message. A result that caused this would be sent again for ever."""
        for running_task in self._runtime.results(self._session.destination):
            assert running_task.result is not None
            running_task.result = readable(running_task.result)

    async def leave(self) -> None:
        """Hand back what the worker still holds; returns when the orchestrator has closed the socket, or does not answer."""
        self._sender.put(frames.LeaveFrame())
        try:
            async with asyncio.timeout(_LEAVE_S):
                await self._ended.wait()
        except TimeoutError:
            pass  # the lease will expire

    def _on_blocked(self) -> None:
        """The orchestrator does not read: close the socket, so that another one is opened."""
        self._closing = self._loop.create_task(self._socket.close(), name="stream-blocked")

    # -- heartbeats ------------------------------------------------------------------------------

    async def _send_heartbeats(self) -> None:
        while True:
            now = await self._wait_for_heartbeat()
            if now - self._received_at > self._lease_s:
                log.warning("the orchestrator is silent; connecting again", extra={"action": "stream_silent"})
                await self._socket.close()
                return
            hot = self._runtime.hot()
            changed = None if hot == self._reported_hot else list(hot)
            self._reported_hot = hot
            self._sender.put(frames.HeartbeatFrame(self._runtime.held(self._session.destination), changed))
            if self._blocks_heartbeats(now):
                self._is_too_slow = True
                await self._socket.close()
                return
            self._resend_results(now)

    def _blocks_heartbeats(self, now: float) -> bool:
        """Results keep heartbeats back. After half a lease the rest of it is needed to come back by polling."""
        much = self._sender.is_blocked or self._unanswered_bytes > LARGE_BYTES
        return much and now - self._received_at > self._lease_s / 2

    async def _wait_for_heartbeat(self) -> float:
        """Returns the time. After a delay of this process, messages that have arrived are not read yet: count from now."""
        every_s, began = self._lease_s / 3, self._loop.time()
        await asyncio.sleep(every_s)
        now = self._loop.time()
        if now - began > 2 * every_s:
            self._received_at = now
        return now

    def _resend_results(self, now: float) -> None:
        """A result without an acknowledgement for a whole lease was not stored."""
        for attempt_id in [a for a, at in self._sent.items() if now - at > self._lease_s]:
            running_task = self._runtime.task_runner.find(attempt_id)
            if running_task is not None:
                self.finished(running_task)

    # -- received --------------------------------------------------------------------------------

    def _receive(self, data: Any) -> None:
        """Handle the frames of one message; all its tasks begin together."""
        self._received_at = self._loop.time()
        self._unanswered_bytes = 0
        offers: list[frames.TaskFrame] = []
        for frame in _decode(data):
            if type(frame) is frames.TaskFrame:
                offers.append(frame)
            else:
                self._handle(frame)
        if offers:
            self._runtime.task_runner.accept(offers, self._session.destination)

    def _handle(self, frame: frames.ToWorker) -> None:
        match frame:
            case frames.AcksFrame(accepted, refused):
                for attempt_id in accepted:
                    self._release(attempt_id)
                for attempt_id, why in refused.items():
                    log.info("the orchestrator does not want the result of %s: %s", attempt_id, why)
                    self._release(attempt_id)
            case frames.HeartbeatAckFrame(stop) | frames.CancelFrame(stop):
                self._runtime.task_runner.cancel(stop)
            case frames.WelcomeFrame(stop, lease_s, max_bytes):
                self._lease_s = max(MIN_LEASE_S, lease_s)
                self._max_bytes = self._sender.max_bytes = max_bytes
                self._runtime.task_runner.cancel(stop)
            case frames.DrainFrame(on):
                log.info("the orchestrator %s", "sends no more tasks" if on else "sends tasks again")
            case frames.RegisterAgainFrame(displaced, by):
                if displaced:
                    raise WorkerIdTaken(safe_text(by))
                raise SessionEnded("the orchestrator asks for a new registration")

    def _release(self, attempt_id: str) -> None:
        self._sent.pop(attempt_id, None)
        self._runtime.task_runner.release(attempt_id)

    # -- WorkerTransport -------------------------------------------------------------------------

    def started(self, running_task: RunningTask) -> None:
        """Reported a little later, and only if it still runs then: most tasks are over before."""
        if not self._unreported:
            self._loop.call_later(_REPORT_STARTED_S, self._report_started)
        self._unreported[running_task.attempt_id] = running_task

    def _report_started(self) -> None:
        attempts = [attempt for attempt, one in self._unreported.items() if one.result is None]
        self._unreported.clear()
        if attempts:
            self._sender.put(frames.StartedFrame(attempts))

    def progress(self, running_task: RunningTask, value: float | None, message: str, checkpoint: Any) -> None:
        """Of several reports within a short time the last one is sent, with the last checkpoint."""
        if not self._unsent_progress:
            self._loop.call_later(_REPORT_PROGRESS_S, self._send_progress)
        old = self._unsent_progress.get(running_task.attempt_id)
        if checkpoint is None and old is not None:
            checkpoint = old.checkpoint
        frame = frames.ProgressFrame(running_task.attempt_id, value, message, checkpoint)
        self._unsent_progress[running_task.attempt_id] = frame

    def _send_progress(self) -> None:
        unsent, self._unsent_progress = self._unsent_progress, {}
        for frame in unsent.values():
            self._sender.put(frame)

    def finished(self, running_task: RunningTask) -> None:
        """Send the result; the worker keeps it until the acknowledgement comes."""
        assert running_task.result is not None
        self._unreported.pop(running_task.attempt_id, None)
        if (progress := self._unsent_progress.pop(running_task.attempt_id, None)) is not None:
            self._sender.put(progress)
        self._sent[running_task.attempt_id] = self._loop.time()
        frame = encode_result(running_task.result, self._max_bytes)
        self._unanswered_bytes += len(frame)
        self._sender.put(frame)

    def drain(self, on: bool) -> None:
        self._sender.put(frames.DrainFrame(on))


def _decode(data: Any) -> list[frames.ToWorker]:
    try:
        return frames.decode_to_worker(data)
    except _UNREADABLE as error:
        # What is too large for us, or no WebSocket at all, comes as an exception.
        reason = data if isinstance(data, Exception) else error
        raise ProtocolError(f"invalid message from the orchestrator: {safe_text(reason)}") from None
