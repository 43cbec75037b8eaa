"""All streams of an application: the door to them, who is connected, and who has gone silent."""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from aiohttp import WSCloseCode, web

from ..workers.protocol import frames
from ..workers.service import WorkerService
from .problems import Problem
from .roll_call import RollCall
from .routes import RouteTable
from .stage import STAGE
from .worker_auth import admit
from .worker_stream import Channel, serve_stream

log = logging.getLogger("regista.stream")

#: Seconds between two looks at who is silent.
_SWEEP_S = 1.0

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
    speaker = await admit(request, worker_id)
    _check_handshake(request)
    offered = request.headers.get("Sec-WebSocket-Protocol", "")
    if worker_id and frames.PROTOCOL in [name.strip() for name in offered.split(",")]:
        return await serve_stream(request, worker_id, request.app[STAGE].channels)
    from .sockets import serve_stock_socket

    # The older SDK does not say who it is; where its credential does, that is who it is.
    owner = speaker.worker_id or request.app[STAGE].doors.owner_of(speaker.token)
    return await serve_stock_socket(request, worker_id or owner)


def _check_handshake(request: web.Request) -> None:
    """Bytes that are no text in what a handshake says are refused here: those who read it further on stumble over them."""
    for name in _HANDSHAKE:
        if not request.headers.get(name, "").isascii():
            raise Problem(400, "malformed_request", f"expected ASCII in the header {name}")


class Channels:
    """The open streams, by worker. The newest connection of a worker is the one that counts."""

    def __init__(self, workers: WorkerService, lease_s: float, roll: RollCall | None = None) -> None:
        self._workers = workers
        self._lease_s = lease_s
        #: Hears idle workers together; None: each beat is a trip to the store.
        self.roll = roll
        self._open: dict[str, Channel] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def enter(self, channel: Channel) -> None:
        """The worker's stream is this one now; an older one is told, and closed."""
        old = self._open.get(channel.worker_id)
        self._open[channel.worker_id] = channel
        if old is not None:
            self._finish(old.end(old.farewell(channel.worker, channel.address)))

    async def check(self, worker_id: str) -> None:
        """Close the stream of a worker that is not let in any more."""
        channel = self._open.get(worker_id)
        if channel is not None:
            await channel.check()

    def _finish(self, last_words: Coroutine[Any, Any, None]) -> None:
        ending = asyncio.get_running_loop().create_task(last_words, name="stream-displaced")
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    def leave(self, channel: Channel) -> None:
        """The socket is closed. The lease decides about the worker; until it is back it is offered nothing."""
        if self._open.get(channel.worker_id) is channel:
            del self._open[channel.worker_id]
            if channel.has_seat():  # else it polls by now, and that is no business of a stream's
                self._workers.cut(channel.worker_id, channel.session)

    async def watch(self) -> None:
        """Drop streams that are silent for a lease."""
        loop = asyncio.get_running_loop()
        while True:
            before = loop.time()
            await asyncio.sleep(_SWEEP_S)
            now = loop.time()
            try:
                # A loop that woke up late has not read what was sent meanwhile: nobody was silent.
                late = now - before > 2 * _SWEEP_S
                for channel in list(self._open.values()):
                    if late:
                        channel.heard_at = now
                    elif channel.is_silent(now, self._lease_s):
                        channel.abort()
            except Exception:
                log.exception("looking after the streams failed; the next turn tries again")

    def end(self, channel: Channel, code: int) -> None:
        """Close a stream, soon: its worker goes on over another connection."""
        if self._open.get(channel.worker_id) is channel:
            del self._open[channel.worker_id]
            self._finish(channel.shut(code))

    async def run(self, _: web.Application) -> AsyncIterator[None]:
        """A cleanup context of the application: watches the streams while it serves."""
        watching = asyncio.get_running_loop().create_task(self.watch(), name="streams")
        yield
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        if self.roll is not None:
            await self.roll.stop()

    async def close(self, _: web.Application) -> None:
        """The orchestrator stops: every worker is told, and looks for another one."""
        closing = [channel.shut(WSCloseCode.GOING_AWAY) for channel in self._open.values()]
        await asyncio.gather(*closing, return_exceptions=True)
