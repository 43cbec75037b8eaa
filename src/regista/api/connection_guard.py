"""Closes connections that are too slow.

Each connection of the server is wrapped in a `ConnectionGuard`, a protocol that forwards every event to aiohttp's own. It
aborts a connection that does not send the headers of a request in time, and one that does not read its response.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import cast

from aiohttp import StreamReader, web

log = logging.getLogger("regista.api")

ProtocolFactory = Callable[[], asyncio.Protocol]


class ConnectionGuards:
    """The open connections of one application, found by their transport."""

    #: Seconds after which a client that reads nothing of its response is disconnected.
    unread_timeout_s = 60.0

    def __init__(self, header_timeout_s: float) -> None:
        self.header_timeout_s = header_timeout_s
        #: Set while the server stops: a connection that finishes its TLS handshake now is closed.
        self.closing = False
        self._by_transport: dict[asyncio.BaseTransport, ConnectionGuard] = {}

    def wrap(self, make_protocol: ProtocolFactory) -> ProtocolFactory:
        """Return a factory for `loop.create_server`: the protocols of `make_protocol`, each behind a guard."""
        return lambda: ConnectionGuard(self, make_protocol())

    def add(self, transport: asyncio.BaseTransport, guard: "ConnectionGuard") -> None:
        """Register an open connection."""
        self._by_transport[transport] = guard

    def remove(self, transport: asyncio.BaseTransport) -> None:
        """Forget a closed connection."""
        self._by_transport.pop(transport, None)

    def find(self, request: web.Request) -> "ConnectionGuard | None":
        """The guard of a request's connection; None if another server runs the application."""
        transport = request.transport
        return None if transport is None else self._by_transport.get(transport)


class ConnectionGuard(asyncio.Protocol):
    """Forwards the events of one connection to aiohttp's protocol and watches the time.

    The first request must arrive within `header_timeout_s`. After that a connection may be idle, but a request that
    was begun must arrive completely within the same time.
    """

    def __init__(self, guards: ConnectionGuards, inner: asyncio.Protocol) -> None:
        self._guards = guards
        self._inner = inner
        #: The connection while it is open and guarded; None before, afterwards, and if it came too late.
        self._transport: asyncio.Transport | None = None
        self._in_request = False
        #: The body of the last request. Bytes that arrive before its end do not begin another request.
        self._body: StreamReader | None = None
        self._header_timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the header timer. Close the connection if the server stops already."""
        if self._guards.closing:
            transport.close()
            return
        self._transport = cast(asyncio.Transport, transport)
        self._guards.add(transport, self)
        self._inner.connection_made(transport)
        self._start_header_timer()

    def data_received(self, data: bytes) -> None:
        """Start the header timer if these bytes begin a request."""
        if self._transport is None:
            return
        if (
            self._header_timer is None
            and not self._in_request
            and (self._body is None or self._body.is_eof())
        ):
            self._start_header_timer()
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        """Forward; the result says whether the connection stays half open."""
        return None if self._transport is None else self._inner.eof_received()

    def pause_writing(self) -> None:
        """Start to watch whether the client reads."""
        self._inner.pause_writing()
        self._start_unread_timer()

    def resume_writing(self) -> None:
        """Stop watching: the client has read nearly everything."""
        self._cancel_unread_timer()
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all timers."""
        if self._transport is None:
            return
        self._guards.remove(self._transport)
        self._cancel_header_timer()
        self._cancel_unread_timer()
        self._transport = None
        self._inner.connection_lost(exc)

    def request_started(self, body: StreamReader) -> None:
        """The headers of a request are complete."""
        self._in_request = True
        self._body = body
        self._cancel_header_timer()

    def request_finished(self) -> None:
        """The handler has returned; aiohttp may still send the response and read the rest of the body."""
        self._in_request = False

    def _start_header_timer(self) -> None:
        loop = asyncio.get_running_loop()
        self._header_timer = loop.call_later(self._guards.header_timeout_s, self._check_headers)

    def _check_headers(self) -> None:
        self._header_timer = None
        if self._transport is None:
            return
        if self._transport.get_write_buffer_size():
            self._start_header_timer()  # a pipelined request waits for the response before it
        else:
            self._abort("no complete request in time", "no_request")

    def _start_unread_timer(self) -> None:
        if self._transport is not None:
            unread = self._transport.get_write_buffer_size()
            loop = asyncio.get_running_loop()
            self._unread_timer = loop.call_later(self._guards.unread_timeout_s, self._check_unread, unread)

    def _check_unread(self, before: int) -> None:
        if self._transport is not None and self._transport.get_write_buffer_size() >= before:
            self._abort("the client does not read its response", "response_unread")
        else:
            self._start_unread_timer()

    def _abort(self, reason: str, action: str) -> None:
        if self._transport is not None:
            address = self._transport.get_extra_info("peername")
            log.debug("closing the connection from %s: %s", address, reason, extra={"action": action})
            self._transport.abort()

    def _cancel_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _cancel_unread_timer(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None


CONNECTION_GUARDS = web.AppKey("connection_guards", ConnectionGuards)
