"""Requests that survive a restart of the orchestrator: retried where that is safe, bounded in all."""

import asyncio
import io
import random
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

import aiohttp
import msgspec

from ..config import Connection, url_for
from ..errors import ApiError
from ..tokens import CLIENT_FILE, find_token, is_loopback
from ..trace import begin, carried
from ..wire.http_answer import BadAnswer
from ..wire.http_connection import header_lines
from ..wire.http_line import Line, place_of
from ..wire.tls import Files, client_context
from .sse import Message, Parser
from .trouble import Trouble, refuse, trouble_of

#: The first pause before another try, and the longest; each is twice the one before, with jitter.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 2.0
#: How long a connection may take to be made.
_CONNECT_S = 5.0
#: A stream that says nothing for so long is dead: the orchestrator sends a comment every 15 seconds.
_SILENCE_S = 45.0
#: A stream that was open for this long worked: the pauses before reconnects begin again with the shortest.
_STABLE_S = 2.0
#: Bytes of a body that is sent in one piece, at most.
_LARGE_BODY = 1024 * 1024
#: It is somewhere else.
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
#: A wait of this length is told of, and then not again for a while.
_SAY_AFTER_S, _SAY_AGAIN_S = 1.0, 20.0
#: How long an orchestrator that has never answered is waited for: enough for one that just starts.
FIRST_CONTACT_S = 3.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    body: bytes


class Transport:
    """One orchestrator's address, and a pool of connections to it. Belongs to one event loop.

    Ordinary calls go by a line of our own, which costs a third of what a library does. Streams, large bodies, redirects and
    addresses with more in them than a host and a path are aiohttp's.
    """

    def __init__(self, connection: Connection, first_contact_s: float = FIRST_CONTACT_S) -> None:
        self.url = url_for(connection.url, connection.state_dir)
        self._connection = connection
        files = Files(connection.tls_cert_path, connection.tls_key_path, connection.tls_ca_path)
        self._tls = client_context(files)  # a mistake in them is said now, not with the first request
        #: How long trouble is put up with; until the first answer, less of it may be wanted.
        self._patience_s = connection.timeout_s
        self._first_contact_s = min(first_contact_s, connection.timeout_s)
        self._reached = False
        self._answered = False
        self._say_at = 0.0
        self._token = connection.token
        #: Told once, soon, when an answer is waited for: why, and for how many seconds more at most. For people.
        self.on_wait: Callable[[str, float], None] | None = None
        #: `Date` of the last answer.
        self.server_time: str | None = None
        self._is_local = is_loopback(urlsplit(self.url).hostname or "")
        place = place_of(self.url)
        self._line = None if place is None else Line(place, self._tls, _CONNECT_S)
        #: Headers of every call on the line, as they are sent; empty until they are needed.
        self._greeting = ""
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Give the connections back. Twice is fine."""
        if self._line is not None:
            await self._line.close()
        if self._session is not None:
            await self._session.close()
            self._session = None

    def tls_for(self, url: str) -> ssl.SSLContext | bool:
        """How to greet whoever is at this address: the orchestrator as we always do, anybody else as usual."""
        own = urlsplit(url).netloc == urlsplit(self.url).netloc
        return self._tls or True if own else True

    async def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        params: Mapping[str, str] | None = None,
        again: bool = True,
        waits_s: float = 0.0,
    ) -> Answer:
        """One answer, or the exception that it stands for.

        `again`: doing it twice is as good as once, so it is retried whatever happened. Else it is retried
        only when nobody can have taken it up. `waits_s` is how long the orchestrator itself may wait first.
        """
        data = None if body is None else msgspec.json.encode(body)
        # Looking is no step of anything; what changes something is a span, where this program traces.
        span = begin(f"regista {method}", "client", path=path) if method == "POST" else None
        if span is None:
            return await self._persist(method, path, data, params, again, waits_s)
        with span:
            return await self._persist(method, path, data, params, again, waits_s)

    async def _persist(
        self,
        method: str,
        path: str,
        data: bytes | None,
        params: Mapping[str, str] | None,
        again: bool,
        waits_s: float,
    ) -> Answer:
        began, pause = time.monotonic(), _FIRST_PAUSE_S
        while True:
            try:
                return await self._try(method, path, data, params, again, waits_s)
            except Trouble as trouble:
                if trouble.final or not (again or trouble.untouched):
                    raise trouble.as_error(self.url) from trouble
                pause = max(pause, trouble.retry_after_s)
                if time.monotonic() - began + pause > self._patience(waits_s):
                    raise trouble.as_error(self.url) from trouble
                self._tell(trouble, time.monotonic() - began, pause, waits_s)
            await asyncio.sleep(pause * random.uniform(0.75, 1.25))
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def _try(
        self,
        method: str,
        path: str,
        data: bytes | None,
        params: Mapping[str, str] | None,
        again: bool,
        waits_s: float,
    ) -> Answer:
        if self._line is None or (data is not None and len(data) > _LARGE_BODY):
            return await self._try_by_library(method, path, data, params, waits_s)
        target = f"{path}?{urlencode(params)}" if params else path
        try:
            head, body = await self._line.ask(
                method, target, self._headers(), data, self._patience_s + waits_s, again
            )
        except (BadAnswer, OSError) as error:
            raise self._hear(error) from error
        if head.status in _REDIRECTS:
            return await self._try_by_library(method, path, data, params, waits_s)
        self._reached = self._answered = True
        self.server_time = head.find(b"date")
        if head.status >= 400:
            refuse(head.status, head.find(b"retry-after"), body)
        return Answer(body)

    async def _try_by_library(
        self, method: str, path: str, data: bytes | None, params: Mapping[str, str] | None, waits_s: float
    ) -> Answer:
        timeout = aiohttp.ClientTimeout(total=self._patience_s + waits_s, connect=_CONNECT_S)
        try:
            async with self._opened().request(
                method,
                self.url + path,
                data=_in_turns(data),
                params=params,
                timeout=timeout,
                headers=carried(),
            ) as response:
                body = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._hear(error) from error
        self._reached = self._answered = True
        self.server_time = response.headers.get("Date")
        if response.status >= 400:
            refuse(response.status, response.headers.get("Retry-After"), body)
        return Answer(body)

    async def messages(self, path: str, last_id: str = "") -> AsyncIterator[Message]:
        """The messages of an event stream after `last_id`, over as many connections as it takes.

        A connection that is cut, or ends, is made again after the last message that came. The time limit for
        that begins anew with every byte received. Pauses before reconnects grow until a connection was open
        for `_STABLE_S`, and are never shorter than the server asks for (`retry:`). Ends when the orchestrator
        says that nothing will come (204).
        """
        parser = Parser(last_id)
        since, pause = time.monotonic(), _FIRST_PAUSE_S
        while True:
            opened = time.monotonic()
            try:
                async for chunk in self._chunks(path, parser.last_id):
                    since = time.monotonic()
                    for message in parser.feed(chunk):
                        yield message
                trouble = Trouble("the stream ended")
            except _NothingToCome:
                return
            except Trouble as cut:
                trouble = cut
            parser.restart()
            if time.monotonic() - opened >= _STABLE_S:
                pause = _FIRST_PAUSE_S
            wait_s = max(pause, parser.retry_s, trouble.retry_after_s)
            if time.monotonic() - since + wait_s > self._patience():
                raise trouble.as_error(self.url) from trouble
            self._tell(trouble, time.monotonic() - since, wait_s)
            await asyncio.sleep(wait_s * random.uniform(1.0, 1.25))
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def lines(self, path: str, params: Mapping[str, str]) -> AsyncIterator[bytes]:
        """The lines of a long answer, as they come. A cut is final: a part of it has been handed out."""
        timeout = aiohttp.ClientTimeout(total=None, connect=_CONNECT_S, sock_read=_SILENCE_S)
        rest = bytearray()
        try:
            async with self._opened().get(self.url + path, params=params, timeout=timeout) as response:
                self._reached = self._answered = True
                if response.status >= 400:
                    refuse(response.status, response.headers.get("Retry-After"), await response.read())
                async for chunk in response.content.iter_any():
                    rest += chunk
                    *whole, last = rest.split(b"\n")
                    rest = last
                    for line in whole:
                        yield bytes(line)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._hear(error).as_error(self.url) from error
        except Trouble as trouble:
            raise trouble.as_error(self.url) from trouble

    async def _chunks(self, path: str, last_id: str) -> AsyncIterator[bytes]:
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_id} if last_id else {})
        timeout = aiohttp.ClientTimeout(total=None, connect=_CONNECT_S, sock_read=_SILENCE_S)
        try:
            async with self._opened().get(self.url + path, headers=headers, timeout=timeout) as response:
                self._reached = self._answered = True
                if response.status >= 400:
                    refuse(response.status, response.headers.get("Retry-After"), await response.read())
                if response.status == 204:
                    raise _NothingToCome
                async for chunk in response.content.iter_any():
                    yield chunk
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._hear(error) from error

    def _tell(self, trouble: "Trouble", spent_s: float, pause: float, waits_s: float = 0.0) -> None:
        """Nobody shall wonder why nothing happens: before the wait is a second long, and once in a while. Who has never
        answered is not waited for that long.
        """
        now = time.monotonic()
        if (
            self.on_wait is not None
            and self._reached
            and spent_s + pause >= _SAY_AFTER_S
            and now >= self._say_at
        ):
            self._say_at = now + _SAY_AGAIN_S
            self.on_wait(str(trouble), self._patience(waits_s) - spent_s)

    def _patience(self, waits_s: float = 0.0) -> float:
        """How long trouble is put up with now. Who was never there does not wait for a job either."""
        return self._patience_s + waits_s if self._reached else self._first_contact_s

    def _hear(self, error: Exception) -> "Trouble":
        """What a failed request means. A connection that is cut was one: somebody is there."""
        trouble = trouble_of(error, "" if self._answered else self.url)
        self._reached = self._reached or not trouble.untouched
        return trouble

    def _headers(self) -> str:
        """The headers of a call on the line."""
        if not self._token or not self._greeting:
            headers = {"User-Agent": "regista"}
            if not self._is_local:  # nothing is gained by packing what never leaves the machine
                headers["Accept-Encoding"] = "gzip"
            if token := self._find_token():
                headers["X-Client-Token"] = token
            self._greeting = header_lines(headers)
        trace = carried()
        return self._greeting + header_lines(trace) if trace else self._greeting

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            headers = {"Content-Type": "application/json"}
            if self._is_local:
                headers["Accept-Encoding"] = "identity"
            connector = None if self._tls is None else aiohttp.TCPConnector(ssl=self._tls)
            self._session = aiohttp.ClientSession(headers=headers, connector=connector)
        if token := self._find_token():
            self._session.headers["X-Client-Token"] = token
        return self._session

    def _find_token(self) -> str:
        """Looked for until it is there: a local orchestrator makes it when it starts, maybe after us."""
        if not self._token:
            self._token = find_token(self._connection.state_dir, CLIENT_FILE) or ""
        return self._token


def _in_turns(data: bytes | None) -> bytes | io.BytesIO | None:
    """A large body is written in pieces: in one, it would hold the loop."""
    return io.BytesIO(data) if data is not None and len(data) > _LARGE_BODY else data


class _NothingToCome(Exception):
    """The stream is over for good."""


def decoded(answer: Answer, kind: Any) -> Any:
    """The body as a record. What does not fit is an answer of something that is not an orchestrator."""
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except msgspec.MsgspecError as error:
        raise ApiError(200, "unexpected_answer", f"the answer does not fit: {error}") from error
