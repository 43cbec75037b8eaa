"""Connections: what comes over them may not even be HTTP. That is refused like anything else, and no error of ours."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from aiohttp import web
from aiohttp.http import RawRequestMessage
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong

from ..model import ClientConfig
from .answers import Answer
from .conversation import Conversation
from .front import FRONT
from .problems import Problem, response_of
from .stage import STAGE

log = logging.getLogger("regista.api")


class Connection(Conversation):
    """One connection of a client.

    Whoever has not sent the head of a first request after `head_timeout_s` is cut off, and so is whoever has begun
    a later one and does not come to its end: else anybody could keep all our sockets without a token. Between
    requests a connection may be silent for long, as ever. Whoever asks and then takes nothing of a large answer for
    `unread_s` is cut off, too: else the answer would be kept for as long as that program hangs.
    """

    __slots__ = (
        "_head_timeout_s",
        "_head_timer",
        "_heads",
        "_is_hooked",
        "_is_over",
        "_unread_timer",
        "_wire",
        "proof",
    )

    #: Packed bodies stay packed until somebody who was let in wants them: `bodies` unpacks, and knows when to stop.
    leaves_packed = True
    #: Seconds in which a client takes some of what is ready for it.
    unread_s = 60.0

    def __init__(
        self,
        manager: web.Server,
        *,
        loop: asyncio.AbstractEventLoop,
        head_timeout_s: float,
        is_over: Callable[[], bool] = lambda: False,
        is_hooked: bool = False,
        **more: Any,
    ) -> None:
        super().__init__(manager, loop=loop, auto_decompress=False, **more)
        self._head_timeout_s = head_timeout_s
        self._is_over = is_over
        #: Somebody wants to look at answers before they are sent.
        self._is_hooked = is_hooked
        self._head_timer: asyncio.TimerHandle | None = None
        #: Heads that had come when the timer was set.
        self._heads = 0
        self._unread_timer: asyncio.TimerHandle | None = None
        #: Who has proved by what who he is: a mark of that, those who may come in, and the one.
        self.proof: tuple[int, object, ClientConfig] | None = None
        #: The connection itself, also while it is being closed: what was written before is still sent then.
        self._wire: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        super().connection_made(transport)
        self._wire = self.transport
        if self._is_over():  # the handshake took longer than we were there
            self.force_close()
            return
        self._head_timer = self._loop.call_later(self._head_timeout_s, self._check_head)

    def data_received(self, data: bytes) -> None:
        """Something came: mostly whole heads, or the rest of a body that somebody reads."""
        heads = self._request_count
        super().data_received(data)
        timer = self._head_timer
        if heads != self._request_count:
            if self._current_request is not None or len(self._messages) > 1:
                self._check_body()
            if timer is not None:
                timer.cancel()
                self._head_timer = None
        elif timer is None and self._waiter is not None:  # nobody reads a body: it is the beginning of a head
            self._heads = heads
            self._head_timer = self._loop.call_later(self._head_timeout_s, self._check_head)

    def _check_body(self) -> None:
        """Where chunks end in something else, nothing more can be read: nobody needs to wait for the rest of the body."""
        last, _ = self._messages[-1]
        if isinstance(last, RawRequestMessage):
            return
        if len(self._messages) > 1:
            content = self._messages[-2][1]
        elif self._current_request is not None:
            content = self._current_request.content
        else:
            return
        if not content.is_eof():
            content.set_exception(web.RequestPayloadError(last.message or ""))

    def connection_lost(self, exc: BaseException | None) -> None:
        """It is gone."""
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        self._forget_reader()
        self._wire = None
        super().connection_lost(exc)

    def _check_head(self) -> None:
        self._head_timer = None
        if self._request_count == self._heads:
            log.debug("no request from %s in time", self.peername, extra={"action": "no_request"})
            self.force_close()

    def pause_writing(self) -> None:
        """More is ready than the client takes."""
        super().pause_writing()
        self._watch_reader()

    def resume_writing(self) -> None:
        """It has taken nearly all of it."""
        self._forget_reader()
        super().resume_writing()

    def _watch_reader(self) -> None:
        if self._wire is not None:
            left = self._wire.get_write_buffer_size()
            self._unread_timer = self._loop.call_later(self.unread_s, self._check_reader, left)

    def _check_reader(self, before: int) -> None:
        if self._wire is not None and self._wire.get_write_buffer_size() >= before:
            log.debug("%s does not read its answer", self.peername, extra={"action": "answer_unread"})
            self._wire.abort()
        else:
            self._watch_reader()

    def _forget_reader(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Answer; where the body cannot be read to its end, this is the last answer."""
        if request.content.exception() is not None:
            resp.force_close()
        if type(resp) is not Answer or self._upgraded or start_time is not None:
            # There is something to tidy up or to log.
            return await super().finish_response(request, resp, start_time)
        try:
            if self._is_hooked or not resp.send(request):
                await resp.prepare(request)
                await resp.write_eof()
            elif self._paused:
                await request.writer.drain()
        except ConnectionError:
            return resp, True
        return resp, False

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """What aiohttp did not expect. The rest of a body that cannot be read is the client's fault, not ours."""
        error = kw.get("exc_info")
        if isinstance(error, HttpProcessingError | web.RequestPayloadError):
            log.debug("unreadable body from %s: %s", self.peername, error, extra={"action": "bad_body"})
        else:
            super().log_exception(*args, **kw)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """A request that could not be read is answered with a problem; anything else is ours, as before."""
        if not isinstance(exc, HttpProcessingError) or request.writer.output_size > 0:
            return super().handle_error(request, status, exc, message)
        log.debug("not HTTP from %s: %s", request.remote, exc, extra={"action": "bad_request"})
        answer = response_of(_problem(exc))
        answer.force_close()
        return answer


def _problem(error: HttpProcessingError) -> Problem:
    if isinstance(error, LineTooLong):
        return Problem(431, "headers_too_large", "the request line or a header is larger than we accept")
    words = (error.message or "this is not HTTP").strip().partition("\n")[0].rstrip(": ")
    return Problem(400, "malformed_request", words)


class Runner(web.AppRunner):
    """Runs an application on connections of ours."""

    def __init__(self, app: web.Application, arguments: dict[str, Any], shutdown_timeout: float) -> None:
        super().__init__(app, shutdown_timeout=shutdown_timeout)
        self._head_timeout_s = app[STAGE].config.body_timeout_s
        self._is_over = False
        self._arguments = {name: value for name, value in arguments.items() if name != "handler_cancellation"}

    async def _make_server(self) -> web.Server:
        self._is_over = False
        server = await super()._make_server()
        if FRONT in self.app:
            server.request_handler = self.app[FRONT].handle
        return server

    async def shutdown(self) -> None:
        """The port is closed, and now everybody is asked to leave. Whoever is let in later by TLS is, at once."""
        self._is_over = True
        await super().shutdown()

    @property
    def server(self) -> Any:
        """What makes a connection out of a socket."""
        return self._connection if super().server is not None else None

    @property
    def _connection(self) -> Callable[[], Connection]:
        server = super().server
        assert server is not None
        given = {
            "loop": asyncio.get_running_loop(),
            "head_timeout_s": self._head_timeout_s,
            "is_over": lambda: self._is_over,
            "is_hooked": bool(self.app.on_response_prepare),
            **self._arguments,
        }
        return lambda: Connection(server, **given)
