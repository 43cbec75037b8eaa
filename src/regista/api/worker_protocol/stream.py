"""The server's end of a worker's stream: tasks go down, results come up, over one WebSocket. FENCES 9 to 12."""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import WSCloseCode, WSMessage, WSMsgType, web
from msgspec.structs import replace

from ...config.credentials import ConfiguredTokens
from ...config.rates import Context
from ...dispatch.connected import ConnectedWorker
from ...errors import OrchestratorStopped, StorageOutcomeUnknown, StorageUnavailable
from ...model import ResultVerdict, Task, TaskResult, Worker
from ...serialization import safe_text
from ...workers.protocol import frames
from ...workers.protocol.frame_sender import FrameSender
from ..network import peer_address
from ..stage import STAGE, ApiContext
from .auth import WORKER_IDENTITY, is_still_valid
from .duplicates import duplicate_worker, warn_duplicate_worker

if TYPE_CHECKING:
    from .streams import WorkerStreams

log = logging.getLogger("regista.stream")

#: Frames that may wait for a worker that does not read, beyond what it has slots for.
MAX_WAITING_FRAMES = 10_000
#: Seconds for the first frame, and for a closing handshake.
HANDSHAKE_TIMEOUT_S = 10.0
CLOSE_TIMEOUT_S = 2.0
#: Seconds before a result is tried again that the store could not take.
RETRY_RESULT_S = 0.5
#: A message that came so long after the one before was handled did not wait in the queue.
_QUEUE_WAS_EMPTY_S = 0.001
#: What decoding a message may raise: not msgpack, not a frame, not UTF-8, too large numbers, too deep data.
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError)


async def serve_stream(
    request: web.Request, worker_id: str, streams: "WorkerStreams"
) -> web.WebSocketResponse:
    """Serve the stream of one worker until either side closes it. A closed socket changes nothing."""
    context = request.app[STAGE]
    ws = web.WebSocketResponse(
        protocols=(frames.PROTOCOL,),
        compress=False,
        timeout=CLOSE_TIMEOUT_S,
        max_msg_size=context.config.max_body_bytes,
        writer_limit=0,  # sending waits whenever the worker is behind with reading
    )
    await ws.prepare(request)
    await WorkerStream(ws, worker_id, context, streams, request).serve()
    return ws


class WorkerStream:
    """One worker's stream: its `WorkerConnection`, whose methods never block."""

    __slots__ = (
        "_acks", "_acks_batch", "_context", "_early_tasks", "_idle_at", "_queue_empty_at", "_reports", "_request",
        "_sender", "_streams", "_tokens_checked", "_ws", "address", "connected", "drain_sent", "last_message_at",
        "session", "worker", "worker_id",
    )  # fmt: skip

    transport = "stream"

    def __init__(
        self,
        ws: web.WebSocketResponse,
        worker_id: str,
        context: ApiContext,
        streams: "WorkerStreams",
        request: web.Request,
    ) -> None:
        self.worker_id = worker_id
        #: Where it comes from, with its port where no proxy stands between.
        self.address = peer_address(request)
        self.session = 0
        self.worker: Worker | None = None
        #: Its entry among the connected workers, once attached.
        self.connected: ConnectedWorker | None = None
        #: Loop time of the last message.
        self.last_message_at = asyncio.get_running_loop().time()
        #: The worker knows that it gets no more tasks.
        self.drain_sent = False
        self._ws = ws
        self._context = context
        self._streams = streams
        self._request = request
        #: The configured tokens with which this worker was last found valid; None: check with each heartbeat.
        self._tokens_checked: ConfiguredTokens | None = None
        self._sender = FrameSender(ws.send_bytes, self.abort, MAX_WAITING_FRAMES)
        #: Tasks that came before the welcome was sent; None afterwards.
        self._early_tasks: list[Task] | None = []
        self._acks = frames.AcksFrame([], {})
        #: The batch of outgoing frames that contains `_acks`.
        self._acks_batch: list[Any] = []
        #: Results that are not stored yet.
        self._reports: set[asyncio.Future[ResultVerdict]] = set()
        #: By `clock.elapsed`: when the queue of messages was last empty, so that no message that is read now was
        #: sent long before; and when the last message was handled.
        self._queue_empty_at = self._idle_at = context.clock.elapsed()

    # -- life ------------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Do the handshake, attach the worker, and handle its frames. Returns when the socket is closed."""
        try:
            if await self._handshake():
                async for message in self._ws:
                    await self._handle_message(message)
        except (StorageOutcomeUnknown, OrchestratorStopped):
            pass  # the worker keeps what is not acknowledged, and comes back
        except Exception:
            log.exception("a stream failed; the worker comes back", extra={"worker_id": self.worker_id})
        finally:
            self._streams.remove(self)
            self._sender.close()
        await self._ws.close()

    async def _handshake(self) -> bool:
        """The first message says which session comes back, and what it runs."""
        try:
            message = await self._ws.receive(timeout=HANDSHAKE_TIMEOUT_S)
            batch = frames.decode_from_worker(message.data) if message.type is WSMsgType.BINARY else []
        except (TimeoutError, *_UNREADABLE):
            batch = []
        if not batch or not isinstance(batch[0], frames.HelloFrame):
            await self._refuse(WSCloseCode.POLICY_VIOLATION, "expected the frame hello first")
            return False
        if not await self._attach(batch[0]):
            return False
        await self._handle_frames(batch[1:])
        return True

    async def _attach(self, hello: frames.HelloFrame) -> bool:
        context, self.session = self._context, hello.session
        lease_s = context.config.lease_s
        cancelled = await context.workers.attach(
            self, self.worker_id, hello.session, running=hello.running, lease_s=lease_s
        )
        if cancelled is None:
            await self.end(frames.RegisterAgainFrame())
            return False
        connected = context.dispatcher.find(self.worker_id)
        if connected is not None:
            self.worker = connected.worker
            self.connected = connected if connected.connection is self else None
            self._sender.most = MAX_WAITING_FRAMES + connected.worker.capacity
        self._streams.add(self)
        self._sender.put(frames.WelcomeFrame(list(cancelled), lease_s, context.config.max_body_bytes))
        early, self._early_tasks = self._early_tasks or [], None
        self.send(early)
        if self.connected is not None:
            self.set_draining(self.connected.draining)
        return True

    def is_attached(self) -> bool:
        """The worker gets its tasks here. It may poll by now, or have a newer stream, in the same session."""
        return self.connected is not None and self.connected.is_connected

    def has_moved(self) -> bool:
        """The worker goes on over another connection, in the same session."""
        if self.is_attached():
            return False
        connected = self._context.dispatcher.find(self.worker_id)
        return (
            connected is not None
            and connected.worker.session == self.session
            and connected.connection is not self
        )

    async def end(self, frame: frames.Frame, code: int = WSCloseCode.OK) -> None:
        """Send a last frame, and close."""
        self._sender.put(frame)
        await self._sender.flush()
        await self._ws.close(code=code)

    async def _refuse(self, code: int, why: str) -> None:
        await self._ws.close(code=code, message=safe_text(why).encode()[:120])

    def is_silent(self, now: float, lease_s: float) -> bool:
        """Nothing has come for a lease, or the worker has not read for so long."""
        sending = self._sender.since
        return now - self.last_message_at > lease_s or (sending is not None and now - sending > lease_s)

    async def close_socket(self, code: int) -> None:
        """Close; the worker comes back when it can."""
        await self._ws.close(code=code)

    def abort(self) -> None:
        """Drop the connection: the worker does not read, or has been silent for too long."""
        fields = {"action": "stream_dropped", "worker_id": self.worker_id}
        log.warning("worker %s does not read; its stream is dropped", self.worker_id, extra=fields)
        if self._request.transport is not None:
            self._request.transport.abort()

    # -- to the worker ---------------------------------------------------------------------------

    def send(self, tasks: Sequence[Task]) -> None:
        """Send tasks. They are stored already."""
        if self._early_tasks is not None:
            self._early_tasks.extend(tasks)
            return
        for task in tasks:
            self._sender.put(frames.task_frame(task))

    def cancel(self, attempt_ids: Sequence[str]) -> None:
        """Tell the worker to stop these."""
        if self._early_tasks is None:
            self._sender.put(frames.CancelFrame(list(attempt_ids)))

    def set_draining(self, on: bool) -> None:
        """Tell the worker that it gets no more tasks, or gets them again, unless it said so itself."""
        if self._early_tasks is None and on != self.drain_sent:
            self.drain_sent = on
            self._sender.put(frames.DrainFrame(on))

    def close(self, code: int, reason: str) -> None:
        """The worker has another connection. One that still reads here would wait in vain."""
        self._streams.end(self, code)

    # -- from the worker -------------------------------------------------------------------------

    async def _handle_message(self, message: WSMessage) -> None:
        self._note_arrival()
        if message.type is not WSMsgType.BINARY:
            await self._refuse(WSCloseCode.UNSUPPORTED_DATA, "expected binary messages")
            return
        try:
            batch = frames.decode_from_worker(message.data)
        except _UNREADABLE as error:
            await self._refuse(WSCloseCode.INVALID_TEXT, f"expected a msgpack list of frames: {error}")
            return
        pause_s = self._context.limiter.pause_s(Context.RESULT, self.worker_id, len(batch))
        await self._handle_frames(batch)
        if pause_s:
            await asyncio.sleep(pause_s)
        self._idle_at = self._context.clock.elapsed()

    def _note_arrival(self) -> None:
        self.last_message_at = asyncio.get_running_loop().time()
        now = self._context.clock.elapsed()
        if now - self._idle_at > _QUEUE_WAS_EMPTY_S:
            self._queue_empty_at = now
        self._idle_at = now

    async def _handle_frames(self, batch: Sequence[frames.FromWorker]) -> None:
        """Handle frames in their order; results that follow each other are reported together."""
        results: list[TaskResult] = []
        for frame in batch:
            if isinstance(frame, frames.ResultFrame):
                results.append(self._own(frame.result))
                continue
            if results:
                self._report(results)
                results = []
            await self._handle_frame(frame)
        if results:
            self._report(results)

    async def _handle_frame(self, frame: frames.FromWorker) -> None:
        match frame:
            case frames.StartedFrame():
                self._started(frame)
            case frames.ProgressFrame():
                self._progress(frame)
            case frames.HeartbeatFrame():
                await self._heartbeat(frame)
            case frames.DrainFrame():
                self._drain(frame)
            case frames.LeaveFrame():
                await self._leave()
            case _:
                pass  # hello again means nothing

    def _own(self, result: TaskResult) -> TaskResult:
        """A worker reports only for itself."""
        return result if result.worker_id == self.worker_id else replace(result, worker_id=self.worker_id)

    def _report(self, results: Sequence[TaskResult]) -> None:
        report = self._context.workers.report
        reported = [(result, report(result)) for result in results]
        self._reports.update(future for _, future in reported)
        self._acknowledge_later(reported)

    def _acknowledge_later(self, reported: "list[tuple[TaskResult, asyncio.Future[ResultVerdict]]]") -> None:
        """Mostly one turn writes them all, and answers the last one last: one callback serves all of them."""
        reported[-1][1].add_done_callback(partial(self._acknowledge_all, reported))

    def _acknowledge_all(
        self, reported: "list[tuple[TaskResult, asyncio.Future[ResultVerdict]]]", _: object
    ) -> None:
        still_open = []
        for result, future in reported:
            if future.done():
                self._acknowledge(result, future)
            else:
                still_open.append((result, future))
        if still_open:
            self._acknowledge_later(still_open)

    def _acknowledge(self, result: TaskResult, reported: "asyncio.Future[ResultVerdict]") -> None:
        """The commit is done. Acknowledgements of one turn share a frame."""
        self._reports.discard(reported)
        error = None if reported.cancelled() else reported.exception()
        if isinstance(error, StorageUnavailable) and not self._ws.closed:
            asyncio.get_running_loop().call_later(RETRY_RESULT_S, self._report, [result])
        if reported.cancelled() or error is not None:
            return  # the worker keeps the result, and sends it again
        if self._acks_batch is not self._sender.batch:
            self._acks, self._acks_batch = frames.AcksFrame([], {}), self._sender.batch
            self._sender.put(self._acks)
        verdict = reported.result()
        if verdict.accepted:
            self._acks.accepted.append(result.task_id)
        else:
            self._acks.refused[result.task_id] = str(verdict)

    def _holds(self, attempt_id: str) -> bool:
        connected = self._context.dispatcher.find(self.worker_id)
        return connected is not None and attempt_id in connected.attempts

    def _started(self, frame: frames.StartedFrame) -> None:
        for attempt_id in frame.attempts:
            if self._holds(attempt_id):
                self._context.workers.started(attempt_id)

    def _progress(self, frame: frames.ProgressFrame) -> None:
        message = safe_text(frame.message)
        self._context.workers.progress(
            frame.attempt_id, frame.value, message, frame.checkpoint, self.worker_id
        )

    async def check_credentials(self) -> bool:
        """Close the stream of a worker whose token was revoked or changed. True: it may stay."""
        tokens = self._context.authenticator.tokens
        if await is_still_valid(self._request, self.worker_id):
            # A short-lived token may end at any moment; configured ones are valid until they are read again.
            self._tokens_checked = None if self._request[WORKER_IDENTITY].by == "login" else tokens
            return True
        await self._refuse(WSCloseCode.POLICY_VIOLATION, "the token is not good any more")
        return False

    async def _heartbeat(self, frame: frames.HeartbeatFrame) -> None:
        if self.has_moved():
            return  # it cannot know what the worker has got over its other connection
        if await self._renew_in_batch(frame):
            self._sender.put(frames.HeartbeatAckFrame([]))
            return
        # While the worker has not read what was sent it cannot list it: such a heartbeat only renews the lease.
        running = None if self._sender.is_blocked else frame.running
        try:
            if not await self.check_credentials():
                return
            # It may have waited in the queue: the worker cannot know what was offered since the queue was empty.
            answer = await self._context.workers.heartbeat(
                self.worker_id, self.session, running, began=self._queue_empty_at
            )
        except StorageUnavailable:
            self._sender.put(frames.HeartbeatAckFrame([]))  # nothing expires during an outage, or soon after
            return
        if not answer.known:
            await self.end(self.register_again(await self._context.workers.records.find(self.worker_id)))
            return
        self._update_hot_skills(frame)
        self._sender.put(frames.HeartbeatAckFrame(list(answer.cancel)))

    async def _renew_in_batch(self, frame: frames.HeartbeatFrame) -> bool:
        """Renew the lease together with those of other idle workers. False where there may be more to do."""
        batcher, connected = self._streams.heartbeats, self.connected
        if frame.running or frame.hot is not None or batcher is None:
            return False
        if connected is None or not connected.is_connected or self._sender.is_blocked:
            return False
        if self._tokens_checked is not self._context.authenticator.tokens:
            return False
        return await batcher.renew(connected)

    def _update_hot_skills(self, frame: frames.HeartbeatFrame) -> None:
        connected = self._context.dispatcher.find(self.worker_id)
        if frame.hot is not None and connected is not None:
            profile = replace(connected.worker.profile, hot=tuple(frame.hot))
            self._context.dispatcher.update(replace(connected.worker, profile=profile))

    def register_again(self, newer: Worker | None, address: str = "") -> frames.RegisterAgainFrame:
        """The last frame when the session is over. Warns if another process has the worker's id."""
        incarnation = "" if self.worker is None else self.worker.incarnation
        instance = self._context.config.instance_id
        duplicate = duplicate_worker(newer, self.session, incarnation, instance, address)
        if duplicate:
            warn_duplicate_worker(self.worker_id, duplicate, self.address)
        return frames.RegisterAgainFrame(displaced=bool(duplicate), by=duplicate)

    def _drain(self, frame: frames.DrainFrame) -> None:
        if self.is_attached():
            self.drain_sent = frame.on
            self._context.workers.drain(self.worker_id, frame.on)

    async def _leave(self) -> None:
        self._drain(frames.DrainFrame())  # no more tasks while the last results are stored
        if self._reports:
            await asyncio.wait(self._reports, timeout=CLOSE_TIMEOUT_S)
        await self._sender.flush()
        await self._context.workers.leave(self.worker_id, self.session)
        await self._ws.close()
