"""Requests that survive a restart of the orchestrator: retried where that is safe, for a limited time."""

import asyncio
import io
import random
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

import aiohttp
import msgspec
from yarl import URL

from ..config import Connection, url_for
from ..errors import ApiError
from ..schemas.pages import Page
from ..tls import TlsFiles, client_context
from ..tokens import CLIENT_FILE, find_token, is_loopback
from ..trace_context import current_context, start_span
from .errors import RequestFailure, failure_from_exception, raise_for_status
from .sse import EventStreamParser, Message

T = TypeVar("T")

#: The first pause before another try, and the longest; each is twice the one before, with jitter.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 2.0
#: How long it may take to connect, TLS included.
_CONNECT_S = 5.0
#: A stream that is silent for so long is dead: the orchestrator sends a comment every 15 seconds.
_SILENCE_S = 45.0
#: A stream that was open for this long worked: the pauses before reconnects begin again with the shortest.
_STABLE_S = 2.0
#: Calls at once, at most; others wait. Event streams are not counted.
_MAX_CALLS = 100
#: Bytes of a body that is sent in one piece, at most: writing more at once would hold the loop.
_LARGE_BODY = 1024 * 1024
#: A wait of this length is reported, and then not again for a while.
_REPORT_AFTER_S, _REPORT_AGAIN_S = 1.0, 20.0
#: How long to try to reach an orchestrator that has never answered: enough for one that just starts.
FIRST_CONTACT_S = 3.0


class Transport:
    """One orchestrator's address, and a pool of connections to it. Belongs to one event loop."""

    def __init__(
        self,
        connection: Connection,
        first_contact_s: float = FIRST_CONTACT_S,
        on_wait: Callable[[str, float], None] | None = None,
    ) -> None:
        """`on_wait` is called when a retry lasts: the reason, and for how many seconds more at most."""
        self.url = url_for(connection.url, connection.state_dir)
        #: The same, quoted; empty until it is needed.
        self._base = ""
        self._connection = connection
        files = TlsFiles(connection.tls_cert_path, connection.tls_key_path, connection.tls_ca_path)
        self._tls = client_context(files)  # an error in them is raised now, not by the first request
        self._timeout_s = connection.timeout_s
        self._first_contact_s = min(first_contact_s, connection.timeout_s)
        #: A connection was made; an answer has come.
        self._reached = self._answered = False
        self._on_wait = on_wait
        self._report_at = 0.0
        self._token = connection.token
        #: `Date` of the last answer.
        self.server_time: str | None = None
        self._is_local = is_loopback(urlsplit(self.url).hostname or "")
        self._calls = asyncio.Semaphore(_MAX_CALLS)
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections. Twice is fine."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def tls_for(self, url: str) -> ssl.SSLContext | bool:
        """TLS settings for this URL: those of the configuration for the orchestrator itself, else the default."""
        own = urlsplit(url).netloc == urlsplit(self.url).netloc
        return self._tls or True if own else True

    async def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        params: Mapping[str, str] | None = None,
        idempotent: bool = True,
        server_wait_s: float = 0.0,
    ) -> bytes:
        """The body of the answer, or the exception that the answer stands for.

        A request that is not `idempotent` is retried only when the orchestrator cannot have acted on it.
        `server_wait_s`: how long the orchestrator itself may wait before it answers.
        """
        data = None if body is None else msgspec.json.encode(body)
        # Reading is no step of a trace; a POST is a span, where this program traces.
        span = start_span(f"regista {method}", "client", path=path) if method == "POST" else None
        target = _with_query(path, params)
        if span is None:
            return await self._retry(method, target, data, idempotent, server_wait_s)
        with span:
            return await self._retry(method, target, data, idempotent, server_wait_s)

    async def pages(self, path: str, params: Mapping[str, str], kind: type[T]) -> AsyncIterator[T]:
        """The items of a list; each further page is requested when its first item is needed."""
        while True:
            body = await self.call("GET", path, params=params)
            page: Page[T] = decode(body, Page[kind])  # type: ignore[valid-type]
            for item in page.items:
                yield item
            if not page.next:
                return
            params = {**params, "next": page.next}

    async def messages(self, path: str, last_id: str = "") -> AsyncIterator[Message]:
        """The messages of an event stream after `last_id`, over as many connections as it takes.

        A connection that is cut, or ends, is made again after the last message that came. The time limit for
        that begins anew with every byte received. Pauses before reconnects grow until a connection was open
        for `_STABLE_S`, and are never shorter than the server asks for (`retry:`). Ends when the orchestrator
        says that nothing will come (204).
        """
        parser = EventStreamParser(last_id)
        since, pause = time.monotonic(), _FIRST_PAUSE_S
        while True:
            opened = time.monotonic()
            try:
                async for chunk in self._chunks(path, parser.last_id):
                    since = time.monotonic()
                    for message in parser.feed(chunk):
                        yield message
                failure = RequestFailure("the stream ended")
            except _StreamFinished:
                return
            except RequestFailure as cut:
                failure = cut
            parser.restart()
            if time.monotonic() - opened >= _STABLE_S:
                pause = _FIRST_PAUSE_S
            wait_s = max(pause, parser.retry_s, failure.retry_after_s)
            if time.monotonic() - since + wait_s > self._time_limit_s():
                raise failure.as_error(self.url) from failure
            self._report_wait(failure, time.monotonic() - since, wait_s)
            await asyncio.sleep(wait_s * random.uniform(1.0, 1.25))
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def lines(self, path: str, params: Mapping[str, str]) -> AsyncIterator[bytes]:
        """The lines of a long answer, as they come. A cut is final: a part has been handed out already."""
        rest = bytearray()
        try:
            async for chunk in self._stream(_with_query(path, params), {}):
                rest += chunk
                *whole, rest = rest.split(b"\n")
                for line in whole:
                    yield bytes(line)
        except RequestFailure as failure:
            raise failure.as_error(self.url) from failure

    # -- one try ---------------------------------------------------------------------------------

    async def _retry(
        self, method: str, target: str, data: bytes | None, idempotent: bool, server_wait_s: float
    ) -> bytes:
        began, pause = time.monotonic(), _FIRST_PAUSE_S
        while True:
            try:
                return await self._try(method, target, data, server_wait_s)
            except RequestFailure as failure:
                if failure.final or not (idempotent or failure.not_sent):
                    raise failure.as_error(self.url) from failure
                pause = max(pause, failure.retry_after_s)
                if time.monotonic() - began + pause > self._time_limit_s(server_wait_s):
                    raise failure.as_error(self.url) from failure
                self._report_wait(failure, time.monotonic() - began, pause, server_wait_s)
            await asyncio.sleep(pause * random.uniform(0.75, 1.25))
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def _try(self, method: str, target: str, data: bytes | None, server_wait_s: float) -> bytes:
        timeout = aiohttp.ClientTimeout(total=self._timeout_s + server_wait_s, sock_connect=_CONNECT_S)
        large = data is not None and len(data) > _LARGE_BODY
        try:
            async with (
                self._calls,
                self._open_session().request(
                    method,
                    self._url(target),
                    data=io.BytesIO(data) if large and data is not None else data,
                    headers=self._headers() | current_context(),
                    timeout=timeout,
                ) as response,
            ):
                body = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._classify(error) from error
        self._reached = self._answered = True
        self.server_time = response.headers.get("Date")
        raise_for_status(response.status, response.headers.get("Retry-After"), body)
        return body

    async def _chunks(self, path: str, last_id: str) -> AsyncIterator[bytes]:
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_id} if last_id else {})
        async for chunk in self._stream(path, headers):
            yield chunk

    async def _stream(self, target: str, headers: dict[str, str]) -> AsyncIterator[bytes]:
        """The body of a long answer in pieces; _StreamFinished for an answer that has none and never will."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=_SILENCE_S)
        try:
            async with self._open_session().get(
                self._url(target), headers=self._headers() | headers, timeout=timeout
            ) as response:
                self._reached = self._answered = True
                if response.status >= 400:
                    after = response.headers.get("Retry-After")
                    raise_for_status(response.status, after, await response.read())
                if response.status == 204:
                    raise _StreamFinished
                async for chunk in response.content.iter_any():
                    yield chunk
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._classify(error) from error

    # -- state -----------------------------------------------------------------------------------

    def _report_wait(
        self, failure: RequestFailure, spent_s: float, pause: float, server_wait_s: float = 0.0
    ) -> None:
        """Call `on_wait` before a wait lasts a second, and then once in a while.

        An orchestrator that was never reached is not waited for that long.
        """
        if self._on_wait is None or not self._reached or spent_s + pause < _REPORT_AFTER_S:
            return
        now = time.monotonic()
        if now >= self._report_at:
            self._report_at = now + _REPORT_AGAIN_S
            self._on_wait(str(failure), self._time_limit_s(server_wait_s) - spent_s)

    def _time_limit_s(self, server_wait_s: float = 0.0) -> float:
        """How long a request is retried. One to an address that was never reached does not wait for a job either."""
        return self._timeout_s + server_wait_s if self._reached else self._first_contact_s

    def _classify(self, error: Exception) -> RequestFailure:
        """What a failed request means. A connection that was cut was one: the orchestrator is there."""
        failure = failure_from_exception(error, "" if self._answered else self.url)
        self._reached = self._reached or not failure.not_sent
        return failure

    def _url(self, target: str) -> URL:
        """Sent as it is: yarl would take a job called `..` for another path."""
        try:
            self._base = self._base or str(URL(self.url))
            return URL(self._base + target, encoded=True)
        except ValueError as error:
            raise aiohttp.InvalidURL(self.url) from error

    def _headers(self) -> dict[str, str]:
        # Packing gains nothing for answers that never leave the machine.
        headers = {"Accept-Encoding": "identity" if self._is_local else "gzip"}
        if token := self._find_token():
            headers["X-Client-Token"] = token
        return headers

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=self._tls or True, limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"Content-Type": "application/json", "User-Agent": "regista"},
            )
        return self._session

    def _find_token(self) -> str:
        """Looked for until it is there: a local orchestrator writes it when it starts, maybe after us."""
        if not self._token:
            self._token = find_token(self._connection.state_dir, CLIENT_FILE) or ""
        return self._token


class _StreamFinished(Exception):
    """Nothing more will come over this event stream."""


def _with_query(path: str, params: Mapping[str, str] | None) -> str:
    return f"{path}?{urlencode(params)}" if params else path


def decode(body: bytes, kind: Any) -> Any:
    """The body as a record; ApiError where it does not fit, which no orchestrator answers."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        raise ApiError(200, "unexpected_answer", f"the answer does not fit: {error}") from error
