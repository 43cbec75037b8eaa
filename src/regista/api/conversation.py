"""Conversation: request after request over one connection, in fewer steps than aiohttp takes for each.

aiohttp gives every request a task of its own, which is two turns of the loop more, and it looks for more to parse and
to receive whenever somebody has read something. Here a request is answered in the task of its connection, and reading
goes on where it was stopped; a head that came before is not parsed again (see `heads`). All else is as aiohttp does it, by its own methods.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from aiohttp.http import RawRequestMessage, StreamWriter
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import ERROR, PayloadAccessError, RequestHandler

from .heads import Heads
from .insides import IS_KNOWN

#: What somebody gets who reads a body after the answer.
_OVER = PayloadAccessError()

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Conversation(RequestHandler):
    """One connection, as long as it lasts.

    Context variables outlive a request here: whoever sets one while answering puts it back.
    """

    __slots__ = ("_is_held", "_remembered")

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        #: The parser was stopped, and has not gone on since.
        self._is_held = False
        self._remembered = Heads()

    def data_received(self, data: bytes) -> None:
        """Something came. Where a request is waited for and this is one that is known, nobody has to parse it."""
        if not IS_KNOWN:
            super().data_received(data)
            return
        data = bytes(data)  # some loops bring bytearrays
        waiter = self._waiter
        if waiter is not None and not (self._messages or waiter.done() or self._force_close):
            request = self._remembered.find(data, self)
            if request is not None:
                self._request_count += 1
                self._messages.append(request)
                waiter.set_result(None)
                return
        before = self._request_count
        super().data_received(data)
        last = self._messages[-1][0] if self._messages else None
        self._remembered.parsed(data, self._request_count - before, last)
        if len(self._messages) >= self._max_msg_queue_size - 1 and not self._buffer_paused:
            # The parser also counts a request that was taken before its body had come, and stops one sooner than
            # aiohttp expects: what it keeps back would wait until something else comes.
            self._pause_reading_for_buffer()

    def pause_reading(self) -> None:
        """More of a body has come than its reader takes."""
        self._is_held = True
        super().pause_reading()

    def resume_reading(self, resume_parser: bool = True) -> None:
        """A reader has taken some, or the body is complete; mostly nothing was stopped."""
        if not IS_KNOWN:
            super().resume_reading(
                *(() if resume_parser else (False,))
            )  # as it was asked, which some never are
        elif self._is_held:
            self._is_held = not resume_parser
            super().resume_reading(resume_parser)

    async def start(self) -> None:
        """Answer until one of both sides has had enough."""
        if not IS_KNOWN:
            await super().start()
            return
        while not self._force_close:
            if not self._messages:
                if self._close:  # it was asked to leave before it had said a word
                    break
                self._waiter = self._loop.create_future()
                try:
                    await self._waiter
                finally:
                    self._waiter = None
            request, handler, payload = self._next()
            try:
                try:
                    response, is_gone = await self._answer(request, handler)
                except ConnectionError:
                    break
                if is_gone:
                    break
                self._keepalive = bool(response.keep_alive)
                if not payload.is_eof():
                    await self._linger(payload)
                payload.set_exception(_OVER)
            except Exception as error:  # noqa: BLE001  # the outermost turn of a request
                self.log_exception("Unhandled exception", exc_info=error)
                self.force_close()
            except BaseException:
                self.force_close()
                raise
            finally:
                request._task = None  # type: ignore[assignment]  # else the one would keep the other alive
            if not self._goes_on():
                break
            if self._messages:  # they came together: others have their turn, too
                await asyncio.sleep(0)
        if not self._force_close:
            self._task_handler = None
            if self.transport is not None:
                self.transport.close()

    async def _answer(self, request: web.BaseRequest, handler: Handler) -> tuple[web.StreamResponse, bool]:
        """Answer one request; with True, where nobody is there any more."""
        self._request_in_progress = True
        began = self._loop.time() if self._logging_enabled else None
        response: web.StreamResponse
        try:
            self._current_request = request
            try:
                response = await handler(request)
            except web.HTTPException as refusal:
                response = refusal
            except TimeoutError:
                response = self.handle_error(request, 504)
            except Exception as error:  # noqa: BLE001  # it is logged
                response = self.handle_error(request, 500, error)
            finally:
                self._current_request = None
            return await self.finish_response(request, response, began)
        finally:
            self._request_in_progress = False
            if self._handler_waiter is not None:
                self._handler_waiter.set_result(None)

    def _next(self) -> tuple[web.BaseRequest, Handler, StreamReader]:
        """The request that is answered now, and by whom. What could not be read is one, too."""
        factory, handler = self._request_factory, self._request_handler
        assert factory is not None
        assert handler is not None
        assert self._manager is not None
        assert self._task_handler is not None
        message, payload = self._messages.popleft()
        if self._parser is not None:
            self._parser.message_consumed()
        if self._buffer_paused and len(self._messages) <= self._msg_queue_resume_size:
            self._resume_reading_if_drained()
        self._manager.requests_count += 1
        if not isinstance(message, RawRequestMessage):
            handler = self._make_error_handler(message)
            message = ERROR
        writer = StreamWriter(self, self._loop)
        return factory(message, payload, self, writer, self._task_handler), handler, payload

    async def _linger(self, payload: StreamReader) -> None:
        """Take the rest of a body that nobody wanted, for a moment: cut off at once, nobody would read our answer."""
        deadline = self._loop.time() + self._lingering_time
        if not self._force_close and self._lingering_time:
            try:
                async with asyncio.timeout_at(deadline):
                    while not payload.is_eof():
                        await payload.readany()
            except TimeoutError:
                pass
        if not payload.is_eof() and not self._force_close:
            self.close()

    def _goes_on(self) -> bool:
        """Another request may come, and is waited for as long as connections may be silent."""
        if not self._keepalive or self._close or self._force_close:
            return False
        self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        if self._keepalive_handle is None:
            self._keepalive_handle = self._loop.call_at(
                self._next_keepalive_close_time, self._process_keepalive
            )
        return True
