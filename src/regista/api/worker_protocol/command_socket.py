"""The command socket of stock workers: cancels go down, progress comes up. Nothing is acknowledged on it."""

import asyncio
import logging
from collections.abc import Sequence

import msgspec
from aiohttp import WSMsgType, web

from ...config.rates import Context
from ...model import job_id_of_task, split_attempt_id
from ...workers.polling.service import PollingService
from ...workers.protocol.dialects import to_progress
from ...workers.protocol.messages import BadMessage, WorkerEvent, decode_message
from ..problems import Problem
from ..stage import STAGE
from .auth import WORKER_IDENTITY, check_claim, check_signature, is_still_valid

log = logging.getLogger("regista.sockets")

#: Commands that may wait for a worker that does not read; more are dropped, and said with its heartbeats.
_MOST_WAITING = 1000
#: Seconds between two pings, and for the last words of a closing socket.
_PING_S = 30.0
_CLOSING_S = 2.0

_encode = msgspec.json.Encoder().encode


async def serve_stock_socket(request: web.Request, worker_id: str | None) -> web.WebSocketResponse:
    """Serve the command socket of a stock worker until either side closes it.

    The older SDK connects without saying which worker it is (None): it hears every command, and heeds those
    for tasks that it has.
    """
    stage = request.app[STAGE]
    desk = stage.desk
    ws = web.WebSocketResponse(
        heartbeat=_PING_S, timeout=_CLOSING_S, max_msg_size=stage.config.max_body_bytes
    )
    await ws.prepare(request)
    line = CommandSender(ws)
    line.start()
    try:
        await desk.connect(worker_id, line)
        async for message in ws:
            if message.type in (WSMsgType.TEXT, WSMsgType.BINARY):
                if not await is_still_valid(request, worker_id):
                    break
                data = message.data
                handle_message(
                    request, desk, worker_id or "", data.encode() if isinstance(data, str) else data
                )
                if pause_s := stage.limiter.pause_s(Context.EVENT, worker_id or "", 1):
                    await asyncio.sleep(pause_s)
    finally:
        desk.disconnect(worker_id, line)
        await line.finish()
    return ws


class CommandSender:
    """Writes commands without ever making anybody wait."""

    def __init__(self, ws: web.WebSocketResponse) -> None:
        self._ws = ws
        self._words: asyncio.Queue[str] = asyncio.Queue(_MOST_WAITING)
        self._writer: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[bool] | None = None

    def start(self) -> None:
        """Begin to write."""
        self._writer = asyncio.get_running_loop().create_task(self._write(), name="stock-socket")

    def stop(self, attempt_ids: Sequence[str]) -> None:
        """Say `cancel_task` for these, soon."""
        for attempt_id in attempt_ids:
            job_id = job_id_of_task(split_attempt_id(attempt_id)[0])
            command = {"command": "cancel_task", "task_id": attempt_id, "job_id": job_id}
            try:
                self._words.put_nowait(_encode(command).decode())
            except asyncio.QueueFull:
                return  # the heartbeat says it

    def close(self, code: int, reason: str) -> None:
        """Hang up, soon."""
        if self._closing is None:
            hang_up = self._ws.close(code=code, message=reason.encode())
            self._closing = asyncio.get_running_loop().create_task(hang_up, name="stock-socket-close")

    async def finish(self) -> None:
        """Return when nothing is written any more."""
        if self._writer is not None:
            # Before anything is waited for: whoever waits may be cancelled, and nobody would end it then.
            self._writer.cancel()
        left = [one for one in (self._closing, self._writer) if one is not None]
        await asyncio.gather(*left, return_exceptions=True)

    async def _write(self) -> None:
        try:
            while True:
                await self._ws.send_str(await self._words.get())
        except ConnectionError:
            pass  # gone; the reader notices too


def handle_message(request: web.Request, desk: PollingService, worker_id: str, body: bytes) -> None:
    """One message of a worker. A bad one is noted and forgotten: there is no answer on this socket."""
    try:
        said = decode_message(body, WorkerEvent)
        if said.worker_id and not worker_id:
            check_claim(request.app[STAGE], request[WORKER_IDENTITY], said.worker_id)
        check_signature(request, body, said, worker_id or said.worker_id or "", event=True)
        if said.worker_id and worker_id and said.worker_id != worker_id:
            raise BadMessage(f"the socket is {worker_id!r}'s, the message {said.worker_id!r}'s")
        progress = to_progress(said)
        speaker_id = worker_id or said.worker_id
        if progress is not None and not speaker_id:
            speaker_id = worker_holding(request, progress.attempt_id)
    except (BadMessage, Problem) as error:
        told = {"action": "bad_message", "worker_id": worker_id}
        log.warning("a message of worker %s was ignored: %s", worker_id or "?", error, extra=told)
        return
    if progress is not None and speaker_id:
        desk.progress(progress, speaker_id)


def worker_holding(request: web.Request, attempt_id: str) -> str | None:
    """The worker that has this attempt; None where nobody has it here. A Problem if the speaker may not speak for it.

    The older SDK does not say who it is. Without this its word would count for everybody's attempts, and with it for
    those of workers that have a token of their own.
    """
    stage = request.app[STAGE]
    for connected in stage.dispatcher.connected_workers():
        if attempt_id in connected.attempts:
            check_claim(stage, request[WORKER_IDENTITY], connected.worker.id)
            return connected.worker.id
    return None
