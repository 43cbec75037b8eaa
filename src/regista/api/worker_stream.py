"""The stream's server end: tasks down, results up, over one WebSocket per worker. FENCES 9 to 12."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import WSCloseCode, WSMessage, WSMsgType, web
from msgspec import Struct
from msgspec.structs import replace

from ..config.rates import Context
from ..dispatch.connected import ConnectedWorker
from ..errors import OrchestratorStopped, StorageOutcomeUnknown, StorageUnavailable
from ..model import ResultVerdict, Task, TaskResult, Worker
from ..serialization import safe_text
from ..workers.protocol import frames
from ..workers.protocol.frame_sender import FrameSender
from .address import peer_of
from .doors import Guests
from .rivals import rival_of, warn_of_two
from .stage import STAGE, ApiContext
from .stream_socket import StreamSocket
from .worker_auth import SPEAKER, is_still_in

if TYPE_CHECKING:
    from .channel import Channels

log = logging.getLogger("regista.stream")

#: Frames that may wait for a worker that does not read, beyond what it has slots for.
_MOST_WAITING = 10_000
#: How long the first word may take, and a closing handshake.
_GREETING_S = 10.0
_CLOSING_S = 2.0
#: What reading a message may raise: not msgpack, not our frames, not UTF-8, numbers or nests that nobody can hold.
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError)
#: A message that came so long after we were through with the one before was waited for: nothing stood in line.
_WAITED_S = 0.001
#: Pause before a result is tried again that the store could not take.
_AGAIN_S = 0.5
#: What an idle worker says, time and again.
_IDLE = frames.encode([frames.HeartbeatFrame([])])
#: And what it is told.
_HEARD = frames.HeartbeatAckFrame([])
_HEARD_MESSAGE = frames.encode([_HEARD])
#: Found once: a member of an enum that is looked up on its class costs more than to use it.
_RESULT, _BINARY = Context.RESULT, WSMsgType.BINARY
_CLOSED = (WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED)


class Rest(Struct, frozen=True):
    """What is left of a message that was heard as far as that went without waiting for anything."""

    batch: Sequence[frames.FromWorker] = ()
    #: The first of them that was not heard yet.
    index: int = 0
    #: As `Channel._since` was when it came.
    since: float = 0.0
    #: For how long nothing more is heard afterwards.
    pause_s: float = 0.0
    #: What went wrong; it ends the stream.
    error: Exception | None = None


async def serve_stream(request: web.Request, worker_id: str, channels: "Channels") -> web.WebSocketResponse:
    """Speak the stream with one worker until either side closes. A closed socket changes nothing."""
    stage = request.app[STAGE]
    ws = StreamSocket(
        protocols=(frames.PROTOCOL,),
        compress=False,
        timeout=_CLOSING_S,
        max_msg_size=stage.config.max_body_bytes,
        writer_limit=0,  # whoever sends waits whenever the worker is behind
    )
    await ws.prepare(request)
    channel = Channel(ws, worker_id, stage, channels, request)
    await channel.serve()
    return ws


class Channel:
    """One worker's stream: its `WorkerConnection`, whose methods never block."""

    __slots__ = (
        "_acks",
        "_acks_in",
        "_channels",
        "_early",
        "_guests",
        "_limiter",
        "_loop",
        "_pipe",
        "_reports",
        "_request",
        "_since",
        "_stage",
        "_through_at",
        "_ws",
        "address",
        "drain_told",
        "heard_at",
        "seat",
        "session",
        "worker",
        "worker_id",
    )  # fmt: skip

    transport = "stream"

    def __init__(
        self,
        ws: StreamSocket,
        worker_id: str,
        stage: ApiContext,
        channels: "Channels",
        request: web.Request,
    ) -> None:
        self.worker_id = worker_id
        #: Where it comes from, with its port where no proxy stands between us.
        self.address = peer_of(request)
        self.session = 0
        #: Its record, and what the dispatcher knows of it, once it is connected.
        self.worker: Worker | None = None
        self.seat: ConnectedWorker | None = None
        self._loop = asyncio.get_running_loop()
        #: Loop time of the last message.
        self.heard_at = self._loop.time()
        #: The worker knows that it gets no more tasks.
        self.drain_told = False
        self._ws = ws
        self._stage = stage
        self._channels = channels
        self._request = request
        self._limiter = stage.limiter
        #: Who may come in, as it was when this one was found to be among them; None: ask each time.
        self._guests: Guests | None = None
        self._pipe = FrameSender(ws.send_bytes, self.abort, _MOST_WAITING, write=ws.say)
        #: Tasks that came before our welcome left; None afterwards.
        self._early: list[Task] | None = []
        self._acks = frames.AcksFrame([], {})
        self._acks_in: list[Any] = []
        #: What it has told, and is not written down yet.
        self._reports: set[asyncio.Future[ResultVerdict]] = set()
        #: No message that is read now was written before the first of these (by `elapsed`): then we had read all that
        #: there was. And when we were through with the last one.
        self._since = self._through_at = stage.clock.elapsed()

    # -- life ------------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Greet, take the seat, and listen. Returns when the socket is closed."""
        try:
            if await self._greet():
                while (message := await self._ws.next(self._hear_now)).type not in _CLOSED:
                    await self._hear(message)
        except (StorageOutcomeUnknown, OrchestratorStopped):
            pass  # the worker keeps what is not acknowledged, and comes back
        except Exception:
            log.exception("a stream failed; the worker comes back", extra={"worker_id": self.worker_id})
        finally:
            self._channels.leave(self)
            self._pipe.close()
        await self._ws.close()

    async def _greet(self) -> bool:
        """The first message says who comes back with what."""
        try:
            message = await self._ws.receive(timeout=_GREETING_S)
            batch = frames.decode_from_worker(message.data) if message.type is _BINARY else []
        except (TimeoutError, *_UNREADABLE):
            batch = []
        if not batch or not isinstance(batch[0], frames.HelloFrame):
            await self._refuse(WSCloseCode.POLICY_VIOLATION, "expected the frame hello first")
            return False
        if not await self._take_seat(batch[0]):
            return False
        await self._handle(batch, 1)
        return True

    async def _take_seat(self, hello: frames.HelloFrame) -> bool:
        stage, self.session = self._stage, hello.session
        lease_s = stage.config.lease_s
        stop = await stage.workers.attach(
            self, self.worker_id, hello.session, running=hello.running, lease_s=lease_s
        )
        if stop is None:
            await self.end(frames.RegisterAgainFrame())
            return False
        connected = stage.dispatcher.find(self.worker_id)
        if connected is not None:
            self.worker = connected.worker
            self.seat = connected if connected.connection is self else None
            self._pipe.most = _MOST_WAITING + connected.worker.capacity
        self._channels.enter(self)
        self._pipe.put(frames.WelcomeFrame(list(stop), lease_s, stage.config.max_body_bytes))
        early, self._early = self._early or [], None
        self.send(early)
        if self.seat is not None:
            self.set_draining(self.seat.draining)
        return True

    def has_seat(self) -> bool:
        """The worker is connected by this stream. It may poll by now, or have a newer stream, under the same session."""
        return self.seat is not None and self.seat.is_connected

    def is_left(self) -> bool:
        """The worker goes on elsewhere, under the same session."""
        if self.has_seat():
            return False
        connected = self._stage.dispatcher.find(self.worker_id)
        return (
            connected is not None
            and connected.worker.session == self.session
            and connected.connection is not self
        )

    async def end(self, frame: frames.Frame, code: int = WSCloseCode.OK) -> None:
        """Say a last word, and close."""
        self._pipe.put(frame)
        await self._pipe.flush()
        await self._ws.close(code=code)

    async def _refuse(self, code: int, why: str) -> None:
        await self._ws.close(code=code, message=safe_text(why).encode()[:120])

    def is_silent(self, now: float, lease_s: float) -> bool:
        """Nothing was heard from it for a lease, or it has not read for so long."""
        sending = self._pipe.since
        return now - self.heard_at > lease_s or (sending is not None and now - sending > lease_s)

    async def shut(self, code: int) -> None:
        """Close; the worker comes back when it can."""
        await self._ws.close(code=code)

    def abort(self) -> None:
        """Drop the connection: the worker does not read, or has been silent for too long."""
        told = {"action": "stream_dropped", "worker_id": self.worker_id}
        log.warning("worker %s does not listen; its stream is dropped", self.worker_id, extra=told)
        if self._request.transport is not None:
            self._request.transport.abort()

    # -- down ------------------------------------------------------------------------------------

    def send(self, tasks: Sequence[Task]) -> None:
        """Hand over tasks; only what is flushed comes here."""
        if self._early is not None:
            self._early.extend(tasks)
            return
        for task in tasks:
            self._pipe.put(frames.task_frame(task))

    def cancel(self, attempt_ids: Sequence[str]) -> None:
        """Tell the worker to stop these."""
        if self._early is None:
            self._pipe.put(frames.CancelFrame(list(attempt_ids)))

    def set_draining(self, on: bool) -> None:
        """The worker gets no more tasks, or gets them again: it is told, unless it said so itself."""
        if self._early is None and on != self.drain_told:
            self.drain_told = on
            self._pipe.put(frames.DrainFrame(on))

    def close(self, code: int, reason: str) -> None:
        """The worker has another connection. One that still reads here would wait in vain."""
        self._channels.end(self, code)

    # -- up --------------------------------------------------------------------------------------

    def _hear_now(self, message: WSMessage) -> WSMessage | None:
        """Hear a message where it is read. What has to be waited for is left to the task of the stream, as a message."""
        if message.type is not _BINARY:
            return message
        self._came()
        data = message.data
        if data == _IDLE and self._note_idle():
            pause_s = self._limiter.pause_s(_RESULT, self.worker_id, 1)
            return WSMessage(_BINARY, Rest(since=self._since, pause_s=pause_s), "") if pause_s else None
        try:
            batch = frames.decode_from_worker(data)
        except _UNREADABLE:
            return message
        rest = self._begin(batch)
        return None if rest is None else WSMessage(_BINARY, rest, "")

    def _begin(self, batch: Sequence[frames.FromWorker]) -> Rest | None:
        """Handle these as far as that goes at once."""
        try:
            pause_s = self._limiter.pause_s(_RESULT, self.worker_id, len(batch))
            index = self._handle_now(batch)
        except Exception as error:  # noqa: BLE001  # the stream's task raises it
            return Rest(error=error)
        self._through_at = self._stage.clock.elapsed()
        is_all = index == len(batch) and not pause_s
        return None if is_all else Rest(batch, index, self._since, pause_s)

    def _came(self) -> None:
        """A message is here."""
        self.heard_at = self._loop.time()
        began = self._stage.clock.elapsed()
        if began - self._through_at > _WAITED_S:
            self._since = began
        self._through_at = began

    async def _hear(self, message: WSMessage) -> None:
        """Hear one that stood in line."""
        if message.type is not _BINARY:
            await self._refuse(WSCloseCode.UNSUPPORTED_DATA, "expected binary messages")
            return
        rest = message.data
        if type(rest) is not Rest:
            self._came()
            try:
                batch = frames.decode_from_worker(rest)
            except _UNREADABLE as error:
                await self._refuse(WSCloseCode.INVALID_TEXT, f"expected a msgpack list of frames: {error}")
                return
            rest = Rest(batch, 0, self._since, self._limiter.pause_s(_RESULT, self.worker_id, len(batch)))
        if rest.error is not None:
            raise rest.error
        self._since = rest.since
        await self._handle(rest.batch, rest.index)
        if rest.pause_s:
            await asyncio.sleep(rest.pause_s)
        self._through_at = self._stage.clock.elapsed()

    def hear_later(self, since: float) -> None:
        """There is more to say to a beat of an idle worker than `answer` does. `since` is of the moment it came."""
        self._ws.hear_later(Rest([frames.HeartbeatFrame([])], since=since))

    async def _handle(self, batch: Sequence[frames.FromWorker], index: int) -> None:
        while (index := self._handle_now(batch, index)) < len(batch):
            await _SLOW[type(batch[index])](self, batch[index])
            index += 1

    def _handle_now(self, batch: Sequence[frames.FromWorker], index: int = 0) -> int:
        """In their order, but results that stand side by side go on together.

        Returns where the first one stands that has to be waited for; mostly that is the end.
        """
        results: list[TaskResult] = []
        while index < len(batch):
            frame = batch[index]
            if type(frame) is frames.ResultFrame:
                results.append(self._own(frame.result))
            else:
                if results:
                    self._report(results)
                    results = []
                if type(frame) in _SLOW:
                    break
                handler = _QUICK.get(type(frame))
                if handler is not None:
                    handler(self, frame)
            index += 1
        if results:
            self._report(results)
        return index

    def _own(self, result: TaskResult) -> TaskResult:
        """Nobody speaks for another."""
        return result if result.worker_id == self.worker_id else replace(result, worker_id=self.worker_id)

    def _report(self, results: Sequence[TaskResult]) -> None:
        report = self._stage.workers.report
        told = [(result, report(result)) for result in results]
        self._reports.update(future for _, future in told)
        self._acknowledge_later(told)

    def _acknowledge_later(self, told: "list[tuple[TaskResult, asyncio.Future[ResultVerdict]]]") -> None:
        """Mostly one turn writes them all, and answers the last one last: one callback serves all of them."""
        told[-1][1].add_done_callback(partial(self._acknowledge_all, told))

    def _acknowledge_all(
        self, told: "list[tuple[TaskResult, asyncio.Future[ResultVerdict]]]", _: object
    ) -> None:
        still_open = []
        for result, future in told:
            if future.done():
                self._acknowledge(result, future)
            else:
                still_open.append((result, future))
        if still_open:
            self._acknowledge_later(still_open)

    def _acknowledge(self, result: TaskResult, told: "asyncio.Future[ResultVerdict]") -> None:
        """The commit is done. Acknowledgements of one turn share a frame."""
        self._reports.discard(told)
        error = None if told.cancelled() else told.exception()
        if isinstance(error, StorageUnavailable) and not self._ws.closed:
            asyncio.get_running_loop().call_later(_AGAIN_S, self._report, [result])
        if told.cancelled() or error is not None:
            return  # the worker keeps the result, and sends it again
        if self._acks_in is not self._pipe.batch:
            self._acks, self._acks_in = frames.AcksFrame([], {}), self._pipe.batch
            self._pipe.put(self._acks)
        verdict = told.result()
        if verdict.accepted:
            self._acks.accepted.append(result.task_id)
        else:
            self._acks.refused[result.task_id] = str(verdict)

    def _holds(self, attempt_id: str) -> bool:
        connected = self._stage.dispatcher.find(self.worker_id)
        return connected is not None and attempt_id in connected.attempts

    def _started(self, frame: frames.StartedFrame) -> None:
        for attempt_id in frame.attempts:
            if self._holds(attempt_id):
                self._stage.workers.started(attempt_id)

    def _progress(self, frame: frames.ProgressFrame) -> None:
        message = safe_text(frame.message)
        self._stage.workers.progress(frame.attempt_id, frame.value, message, frame.checkpoint, self.worker_id)

    async def check(self) -> bool:
        """Hang up on a worker whose token has been taken back or changed; True: it may stay."""
        guests = self._stage.doors.guests
        if await is_still_in(self._request, self.worker_id):
            # A login may end at any moment; what is configured is good until it is read anew.
            self._guests = None if self._request[SPEAKER].by == "login" else guests
            return True
        await self._refuse(WSCloseCode.POLICY_VIOLATION, "the token is not good any more")
        return False

    def _note_idle(self) -> bool:
        """Let the lease be renewed together with those of others. False where there may be more to it than that."""
        roll, connected = self._channels.roll, self.seat
        if roll is None or connected is None or not connected.is_connected or self._pipe.since is not None:
            return False
        if self._guests is not self._stage.doors.guests:
            return False
        roll.note(self, connected, self._since)
        return True

    def answer(self) -> None:
        """Its lease is renewed, and there is nothing to stop."""
        self._pipe.put_now(_HEARD, _HEARD_MESSAGE)

    async def _beat(self, frame: frames.HeartbeatFrame) -> None:
        if self.is_left():
            return  # an old word: it cannot know what the worker has got elsewhere since
        # While it has not read what we sent it cannot list it: such a beat renews the lease, and says nothing.
        running = None if self._pipe.is_blocked else frame.running
        try:
            if not await self.check():
                return
            # It may have stood in line while the store was away: what was offered since it cannot know.
            beat = await self._stage.workers.heartbeat(
                self.worker_id, self.session, running, began=self._since
            )
        except StorageUnavailable:
            self._pipe.put(_HEARD)  # nothing expires while the store is away, or soon after
            return
        if not beat.known:
            await self.end(self.farewell(await self._stage.workers.recall(self.worker_id)))
            return
        connected = self._stage.dispatcher.find(self.worker_id)
        if frame.hot is not None and connected is not None:
            profile = replace(connected.worker.profile, hot=tuple(frame.hot))
            self._stage.dispatcher.update(replace(connected.worker, profile=profile))
        self._pipe.put(frames.HeartbeatAckFrame(list(beat.cancel)))

    def farewell(self, newer: Worker | None, address: str = "") -> frames.RegisterAgainFrame:
        """What it is told when its session is over. Another process that has its id is warned of, here and there."""
        incarnation = "" if self.worker is None else self.worker.incarnation
        rival = rival_of(newer, self.session, incarnation, self._stage.config.instance_id, address)
        if rival:
            warn_of_two(self.worker_id, rival, self.address)
        return frames.RegisterAgainFrame(displaced=bool(rival), by=rival)

    def _drain(self, frame: frames.DrainFrame) -> None:
        if self.has_seat():
            self.drain_told = frame.on
            self._stage.workers.drain(self.worker_id, frame.on)

    async def _bye(self, frame: frames.LeaveFrame) -> None:
        self._drain(frames.DrainFrame())  # nothing more for it, while what it told before is written down
        if self._reports:
            await asyncio.wait(self._reports, timeout=_CLOSING_S)
            await self._pipe.flush()
        await self._stage.workers.leave(self.worker_id, self.session)
        await self._ws.close()


#: Frame → what hears it, at once or in its turn. One table for all channels: there may be ten thousand of them.
_QUICK: dict[type[frames.Frame], Callable[[Channel, Any], None]] = {
    frames.StartedFrame: Channel._started,
    frames.ProgressFrame: Channel._progress,
    frames.DrainFrame: Channel._drain,
}
_SLOW: dict[type[frames.Frame], Callable[[Channel, Any], Awaitable[None]]] = {
    frames.HeartbeatFrame: Channel._beat,
    frames.LeaveFrame: Channel._bye,
}
