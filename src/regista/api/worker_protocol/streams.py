"""All streams of an application: the door to them, who is connected, and who has gone silent."""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from aiohttp import WSCloseCode, web

from ...workers.protocol import frames
from ...workers.service import WorkerService
from ..problems import Problem
from ..routes import RouteTable
from ..stage import STAGE
from .auth import authenticate_worker
from .command_socket import serve_stock_socket
from .heartbeats import HeartbeatBatcher
from .stream import WorkerStream, serve_stream

log = logging.getLogger("regista.stream")

#: Seconds between two checks of all streams.
SWEEP_EVERY_S = 1.0

#: The headers of a WebSocket's handshake.
_HANDSHAKE = (
    "Upgrade",
    "Connection",
    "Sec-WebSocket-Version",
    "Sec-WebSocket-Key",
    "Sec-WebSocket-Protocol",
    "Sec-WebSocket-Extensions",
)

routes = RouteTable("stream", kind="worker")


@routes.get("/_worker/ws/{worker_id}")
@routes.get("/_worker/ws")
async def connect(request: web.Request) -> web.StreamResponse:
    """Our own workers ask for the stream by its subprotocol; anybody else gets the command socket."""
    worker_id = request.match_info.get("worker_id")
    speaker = await authenticate_worker(request, worker_id)
    _check_handshake(request)
    offered = request.headers.get("Sec-WebSocket-Protocol", "")
    if worker_id and frames.PROTOCOL in [name.strip() for name in offered.split(",")]:
        return await serve_stream(request, worker_id, request.app[STAGE].streams)
    # The older SDK does not say who it is; where its credential does, that is who it is.
    owner = speaker.worker_id or request.app[STAGE].authenticator.owner_of(speaker.token)
    return await serve_stock_socket(request, worker_id or owner)


def _check_handshake(request: web.Request) -> None:
    """Bytes that are no text in what a handshake says are refused here: those who read it further on stumble over them."""
    for name in _HANDSHAKE:
        if not request.headers.get(name, "").isascii():
            raise Problem(400, "malformed_request", f"expected ASCII in the header {name}")


class WorkerStreams:
    """The open streams, by worker. The newest connection of a worker is the one that counts."""

    def __init__(
        self,
        workers: WorkerService,
        lease_s: float,
        heartbeats: HeartbeatBatcher | None = None,
    ) -> None:
        self._workers = workers
        self._lease_s = lease_s
        #: Renews the leases of idle workers together; None: each heartbeat goes to the store.
        self.heartbeats = heartbeats
        self._open: dict[str, WorkerStream] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def add(self, stream: WorkerStream) -> None:
        """The worker's stream is this one now. An older one is told to register again, and closed."""
        old = self._open.get(stream.worker_id)
        self._open[stream.worker_id] = stream
        if old is not None:
            self._run_to_end(old.end(old.register_again(stream.worker, stream.address)))

    def remove(self, stream: WorkerStream) -> None:
        """The socket is closed. The worker is offered nothing until it is back; its lease decides about it."""
        if self._open.get(stream.worker_id) is stream:
            del self._open[stream.worker_id]
            if stream.is_attached():  # else it polls by now, and this stream is of no concern
                self._workers.disconnected(stream.worker_id, stream.session)

    async def check_credentials(self, worker_id: str) -> None:
        """Close the stream of a worker whose credentials are not valid any more."""
        stream = self._open.get(worker_id)
        if stream is not None:
            await stream.check_credentials()

    def _run_to_end(self, closing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(closing, name="stream-displaced")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _watch(self) -> None:
        """Drop streams that are silent for a lease."""
        loop = asyncio.get_running_loop()
        while True:
            before = loop.time()
            await asyncio.sleep(SWEEP_EVERY_S)
            now = loop.time()
            try:
                # A loop that woke up late has not read what was sent meanwhile: no worker was silent.
                late = now - before > 2 * SWEEP_EVERY_S
                for stream in list(self._open.values()):
                    if late:
                        stream.last_message_at = now
                    elif stream.is_silent(now, self._lease_s):
                        stream.abort()
            except Exception:
                log.exception("checking the streams failed; the next turn tries again")

    def end(self, stream: WorkerStream, code: int) -> None:
        """Close a stream soon: its worker goes on over another connection."""
        if self._open.get(stream.worker_id) is stream:
            del self._open[stream.worker_id]
            self._run_to_end(stream.close_socket(code))

    async def run(self, _: web.Application) -> AsyncIterator[None]:
        """A cleanup context of the application: watches the streams while it serves."""
        watching = asyncio.get_running_loop().create_task(self._watch(), name="streams")
        yield
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        if self.heartbeats is not None:
            await self.heartbeats.stop()

    async def close(self, _: web.Application) -> None:
        """The orchestrator stops: every worker is told, and looks for another one."""
        closing = [stream.close_socket(WSCloseCode.GOING_AWAY) for stream in self._open.values()]
        await asyncio.gather(*closing, return_exceptions=True)
