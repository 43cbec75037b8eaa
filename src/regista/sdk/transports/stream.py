"""Streaming: the worker's end of the stream. docs/reference/stream.md tells what the frames mean."""

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
from ..task_runner import RunningTask
from .base import (
    LEAST_LEASE_S,
    ProtocolError,
    RegistrationRejected,
    SessionEnded,
    StreamUnavailable,
    WorkerIdTaken,
    WorkerRuntime,
    WorkerSession,
)
from .results import catch_up, encode_result, readable

log = logging.getLogger("regista.worker")

#: How long the socket may take, and then its welcome; and where the lease of what we hold is short, at least.
_OPENING_S, _LEAST_OPENING_S = 10.0, 0.5
#: Largest message that we take; a task's params are bounded by the orchestrator's own limit.
_MAX_MESSAGE = 128 * 1024 * 1024
#: A task that still runs after this is worth telling about.
_SAY_STARTED_S = 0.25
#: Progress that is told so soon after other progress is told together with it.
_SAY_PROGRESS_S = 0.05
#: How long the orchestrator may take to hear our goodbye.
_GOODBYE_S = 3.0
#: So many bytes may take a slow line longer than a lease.
_MUCH = 256 * 1024
#: What reading a message may raise: not msgpack, not our frames, not even bytes.
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError, TypeError)


def opening_s(session: WorkerSession, runtime: WorkerRuntime) -> float:
    """How long to wait for the socket, and then for a welcome.

    Whoever holds something must have spoken before its lease is over, if need be in another way.
    """
    if not runtime.held(session.destination):
        return _OPENING_S
    return min(_OPENING_S, max(_LEAST_OPENING_S, session.lease_s / 3))


async def open_stream(
    http: aiohttp.ClientSession, session: WorkerSession, within_s: float = _OPENING_S
) -> ClientWebSocketResponse:
    """The socket of the stream; StreamUnavailable when whatever is in between does not let it through."""
    url = f"{session.url}/_worker/ws/{session.worker_id}"
    try:
        async with asyncio.timeout(within_s):
            socket = await http.ws_connect(
                url,
                protocols=(frames.PROTOCOL,),
                headers=session.headers,
                max_msg_size=_MAX_MESSAGE,
                timeout=aiohttp.ClientWSTimeout(ws_close=min(_GOODBYE_S, session.lease_s / 10)),
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
    """One conversation over the socket. `run` ends it by raising what happened."""

    def __init__(
        self, socket: ClientWebSocketResponse, session: WorkerSession, runtime: WorkerRuntime, weight: int = 1
    ) -> None:
        self._socket = socket
        self._session = session
        self._runtime = runtime
        #: Its share of the free slots.
        self.weight = weight
        self._pipe = FrameSender(socket.send_bytes, self._give_up)
        self._loop = asyncio.get_running_loop()
        self._lease_s = session.lease_s
        self._max_bytes = 0
        self._heard_at = self._loop.time()
        #: Attempt → when its result left.
        self._sent: dict[str, float] = {}
        self._unsaid: dict[str, RunningTask] = {}
        self._unsaid_progress: dict[str, frames.ProgressFrame] = {}
        self._told_hot = runtime.hot()
        self._more = 0
        self._leaving = False
        #: Bytes of results since anything was heard; and whether they take so long that nothing else of us is heard.
        self._unheard = 0
        self._overlong = False
        self._ended = asyncio.Event()

    # -- life ------------------------------------------------------------------------------------

    async def run(self, on_welcome: Callable[["StreamTransport"], None]) -> None:
        """Greet, and go on until the socket closes. StreamUnavailable when there was no welcome."""
        beating: asyncio.Task[None] | None = None
        try:
            await self._greet()
            on_welcome(self)
            catch_up(self._runtime, self._session.destination, self)
            beating = self._loop.create_task(self._beat_on(), name="stream-beat")
            async for message in self._socket:
                self._hear(message.data)
        finally:
            if beating is not None:
                beating.cancel()
            self._pipe.close()
            if self._runtime.slots is not None:
                self._runtime.slots.leave(self)
            self._sent.clear()
            await self._socket.close()
            self._ended.set()
        if self._socket.close_code == WSCloseCode.INVALID_TEXT:
            self._mend_results()
        if self._overlong:
            raise StreamUnavailable("the line is too slow for what we have to say")
        raise SessionEnded(f"the stream was closed ({self._socket.close_code})")

    def _mend_results(self) -> None:
        """It could not read what we said. A result that is to blame for that would be said, and not read, for ever."""
        for running_task in self._runtime.results(self._session.destination):
            assert running_task.result is not None
            running_task.result = readable(running_task.result)

    async def _greet(self) -> None:
        slots = self._runtime.slots
        credit = slots.join(self) if slots is not None else None
        running = self._runtime.held(self._session.destination)
        hello = frames.HelloFrame(self._session.number, running, credit)
        try:
            await self._socket.send_bytes(frames.encode([hello]))
            message = await self._socket.receive(timeout=opening_s(self._session, self._runtime))
        except (ConnectionError, TimeoutError) as error:
            raise StreamUnavailable(f"no welcome: {type(error).__name__}") from None
        if message.type is not WSMsgType.BINARY:
            raise StreamUnavailable(f"no welcome: the socket was closed ({self._socket.close_code})")
        try:
            self._hear(message.data)
        except ProtocolError as error:
            raise StreamUnavailable(f"no welcome: {error}") from None
        if not self._max_bytes:
            raise StreamUnavailable("the first word was not a welcome")

    async def leave(self) -> None:
        """Hand back what we hold; returns when the orchestrator has heard it, or does not answer."""
        self._leaving = True
        self._pipe.put(frames.LeaveFrame())
        try:
            async with asyncio.timeout(_GOODBYE_S):
                await self._ended.wait()
        except TimeoutError:
            pass  # the lease will tell

    def _give_up(self) -> None:
        """The orchestrator does not read: begin again with another connection."""
        self._closing = self._loop.create_task(self._socket.close(), name="stream-stuck")

    async def _beat_on(self) -> None:
        while True:
            now = await self._pause()
            if now - self._heard_at > self._lease_s:
                log.warning("the orchestrator is silent; connecting again", extra={"action": "stream_silent"})
                await self._socket.close()
                return
            hot = self._runtime.hot()
            told = None if hot == self._told_hot else list(hot)
            self._told_hot = hot
            self._pipe.put(frames.HeartbeatFrame(self._runtime.held(self._session.destination), told))
            if self._is_overlong(now):
                self._overlong = True
                await self._socket.close()
                return
            self._say_again(now)

    def _is_overlong(self, now: float) -> bool:
        """No beat gets past what we say: half a lease has gone, and the rest is needed to come back in another way."""
        much = self._pipe.is_blocked or self._unheard > _MUCH
        return much and now - self._heard_at > self._lease_s / 2

    async def _pause(self) -> float:
        """Until the next beat; returns when that is. Whoever was held up has not read what came meanwhile."""
        every_s, began = self._lease_s / 3, self._loop.time()
        await asyncio.sleep(every_s)
        now = self._loop.time()
        if now - began > 2 * every_s:
            self._heard_at = now
        return now

    def _say_again(self, now: float) -> None:
        """A result that nobody acknowledged for a lease was not written down."""
        for attempt_id in [a for a, at in self._sent.items() if now - at > self._lease_s]:
            running_task = self._runtime.task_runner.find(attempt_id)
            if running_task is not None:
                self.finished(running_task)

    # -- down ------------------------------------------------------------------------------------

    def _hear(self, data: Any) -> None:
        """Everything of one message; all tasks of it begin together."""
        self._heard_at = self._loop.time()
        self._unheard = 0
        offers: list[frames.TaskFrame] = []
        for frame in _frames_in(data):
            if type(frame) is frames.TaskFrame:
                offers.append(frame)
            else:
                self._obey(frame)
        if offers:
            if self._runtime.slots is not None:
                self._runtime.slots.spent(self, len(offers))
            self._runtime.task_runner.accept(offers, self._session.destination)

    def _obey(self, frame: frames.ToWorker) -> None:
        match frame:
            case frames.AcksFrame(accepted, refused):
                for attempt_id in accepted:
                    self._acknowledged(attempt_id)
                for attempt_id, why in refused.items():
                    log.info("the result of %s is not wanted: %s", attempt_id, why)
                    self._acknowledged(attempt_id)
            case frames.HeartbeatAckFrame(stop) | frames.CancelFrame(stop):
                self._runtime.task_runner.cancel(stop)
            case frames.WelcomeFrame(stop, lease_s, max_bytes):
                self._lease_s = max(LEAST_LEASE_S, lease_s)
                self._max_bytes = self._pipe.max_bytes = max_bytes
                self._runtime.task_runner.cancel(stop)
            case frames.CreditFrame(more) if self._runtime.slots is not None:
                self._runtime.slots.returned(self, more)
            case frames.DrainFrame(on):
                log.info("the orchestrator %s", "sends no more tasks" if on else "sends tasks again")
            case frames.RegisterAgainFrame(displaced, by):
                if displaced:
                    raise WorkerIdTaken(safe_text(by))
                raise SessionEnded("the orchestrator asks us to register again")

    def _acknowledged(self, attempt_id: str) -> None:
        self._sent.pop(attempt_id, None)
        self._runtime.task_runner.release(attempt_id)

    # -- up --------------------------------------------------------------------------------------

    def started(self, running_task: RunningTask) -> None:
        """Told a little later, and only if it still runs then: most tasks are over before."""
        if not self._unsaid:
            self._loop.call_later(_SAY_STARTED_S, self._say_started)
        self._unsaid[running_task.attempt_id] = running_task

    def _say_started(self) -> None:
        attempts = [attempt for attempt, one in self._unsaid.items() if one.result is None]
        self._unsaid.clear()
        if attempts:
            self._pipe.put(frames.StartedFrame(attempts))

    def progress(self, running_task: RunningTask, value: float | None, message: str, checkpoint: Any) -> None:
        """How far it is. Of many words in a short time the last one is said, with the last checkpoint."""
        if not self._unsaid_progress:
            self._loop.call_later(_SAY_PROGRESS_S, self._say_progress)
        old = self._unsaid_progress.get(running_task.attempt_id)
        if checkpoint is None and old is not None:
            checkpoint = old.checkpoint
        word = frames.ProgressFrame(running_task.attempt_id, value, message, checkpoint)
        self._unsaid_progress[running_task.attempt_id] = word

    def _say_progress(self) -> None:
        safe_text, self._unsaid_progress = self._unsaid_progress, {}
        for word in safe_text.values():
            self._pipe.put(word)

    def finished(self, running_task: RunningTask) -> None:
        """Send the result; it is kept until the acknowledgement comes."""
        assert running_task.result is not None
        self._unsaid.pop(running_task.attempt_id, None)
        if (word := self._unsaid_progress.pop(running_task.attempt_id, None)) is not None:
            self._pipe.put(word)
        self._sent[running_task.attempt_id] = self._loop.time()
        frame = encode_result(running_task.result, self._max_bytes)
        self._unheard += len(frame)
        self._pipe.put(frame)

    def grant(self, more: int) -> None:
        """The orchestrator may offer so many more; what is granted in one turn is one frame."""
        if not self._more:
            self._loop.call_soon(self._say_credit)
        self._more += more

    def _say_credit(self) -> None:
        more, self._more = self._more, 0
        if more and not self._leaving:
            self._pipe.put(frames.CreditFrame(more))

    def ask_back(self, some: int) -> None:
        """Ask for unused credit."""
        self._pipe.put(frames.CreditFrame(-some))

    def drain(self, on: bool) -> None:
        """No more tasks, please; or some again."""
        self._leaving = on
        self._pipe.put(frames.DrainFrame(on))


def _frames_in(data: Any) -> list[frames.ToWorker]:
    try:
        return frames.decode_to_worker(data)
    except _UNREADABLE as error:
        # What is too large for us, or no WebSocket at all, comes as an exception.
        told = data if isinstance(data, Exception) else error
        raise ProtocolError(f"it says what nobody can read: {safe_text(told)}") from None
