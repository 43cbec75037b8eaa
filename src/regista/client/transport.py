"""Requests that survive a restart of the orchestrator: retried where that is safe, bounded in all."""

import asyncio
import io
import random
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec

from ..config import Connection, url_for
from ..errors import ApiError, RegistaError, Unreachable
from ..tokens import CLIENT_FILE, find_token, is_loopback
from ..trace import begin, carried
from ..wire.tls import Files, client_context
from ..wire.trouble import why
from .refusals import error_of
from .sse import Message, Parser

#: The first pause before another try, and the longest; each is twice the one before, with jitter.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 2.0
#: Not now, but maybe soon: the request was not taken up, or somebody between us and the orchestrator failed.
_NOT_NOW = frozenset({429, 502, 503, 504})
#: How long a connection may take to be made.
_CONNECT_S = 5.0
#: A stream that says nothing for so long is dead: the orchestrator sends a comment every 15 seconds.
_SILENCE_S = 45.0
#: Bytes of a body that is sent in one piece, at most.
_LARGE_BODY = 1024 * 1024
#: A wait of this length is told of, and then not again for a while.
_SAY_AFTER_S, _SAY_AGAIN_S = 1.0, 20.0
#: Nobody has heard us.
_NOT_EVEN_CONNECTED = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
#: How long an orchestrator that has never answered is waited for: enough for one that just starts.
FIRST_CONTACT_S = 3.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    body: bytes
    headers: Mapping[str, str]


class Transport:
    """One orchestrator's address, and a pool of connections to it. Belongs to one event loop."""

    def __init__(self, connection: Connection, first_contact_s: float = FIRST_CONTACT_S) -> None:
        self.url = url_for(connection.url, connection.state_dir)
        self._connection = connection
        files = Files(connection.tls_cert_path, connection.tls_key_path, connection.tls_ca_path)
        self._tls = client_context(files)  # a mistake in them is said now, not with the first request
        #: How long trouble is put up with; until the first answer, less of it may be wanted.
        self._patience_s = connection.timeout_s
        self._timeout = aiohttp.ClientTimeout(total=self._patience_s, connect=_CONNECT_S)
        self._first_contact_s = min(first_contact_s, connection.timeout_s)
        self._reached = False
        self._answered = False
        self._say_at = 0.0
        self._token = connection.token
        #: Told once, soon, when an answer is waited for: why, and for how many seconds more at most. For people.
        self.on_wait: Callable[[str, float], None] | None = None
        #: `Date` of the last answer.
        self.server_time: str | None = None
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Give the connections back. Twice is fine."""
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
                return await self._try(method, path, data, params, waits_s)
            except _Trouble as trouble:
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
        waits_s: float,
    ) -> Answer:
        timeout = self._timeout
        if waits_s:
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
            _refused(response.status, response.headers, body)
        return Answer(body, response.headers)

    async def messages(self, path: str, last_id: str = "") -> AsyncIterator[Message]:
        """The messages of an event stream after `last_id`, over as many connections as it takes.

        A connection that is cut, or ends, is made again after the last message that came. The patience for
        that begins anew with every sign of life. Ends when the orchestrator says that nothing will come (204).
        """
        parser = Parser(last_id)
        since, pause = time.monotonic(), _FIRST_PAUSE_S
        while True:
            try:
                async for chunk in self._chunks(path, parser.last_id):
                    since, pause = time.monotonic(), _FIRST_PAUSE_S
                    for message in parser.feed(chunk):
                        yield message
                trouble = _Trouble("the stream ended")
            except _NothingToCome:
                return
            except _Trouble as cut:
                trouble = cut
            parser = Parser(parser.last_id)  # half a message is worth nothing
            pause = max(pause, trouble.retry_after_s)
            if time.monotonic() - since + pause > self._patience():
                raise trouble.as_error(self.url) from trouble
            self._tell(trouble, time.monotonic() - since, pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def lines(self, path: str, params: Mapping[str, str]) -> AsyncIterator[bytes]:
        """The lines of a long answer, as they come. A cut is final: a part of it has been handed out."""
        timeout = aiohttp.ClientTimeout(total=None, connect=_CONNECT_S, sock_read=_SILENCE_S)
        rest = bytearray()
        try:
            async with self._opened().get(self.url + path, params=params, timeout=timeout) as response:
                self._reached = self._answered = True
                if response.status >= 400:
                    _refused(response.status, response.headers, await response.read())
                async for chunk in response.content.iter_any():
                    rest += chunk
                    *whole, last = rest.split(b"\n")
                    rest = last
                    for line in whole:
                        yield bytes(line)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._hear(error).as_error(self.url) from error
        except _Trouble as trouble:
            raise trouble.as_error(self.url) from trouble

    async def _chunks(self, path: str, last_id: str) -> AsyncIterator[bytes]:
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_id} if last_id else {})
        timeout = aiohttp.ClientTimeout(total=None, connect=_CONNECT_S, sock_read=_SILENCE_S)
        try:
            async with self._opened().get(self.url + path, headers=headers, timeout=timeout) as response:
                self._reached = self._answered = True
                if response.status >= 400:
                    _refused(response.status, response.headers, await response.read())
                if response.status == 204:
                    raise _NothingToCome
                async for chunk in response.content.iter_any():
                    yield chunk
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._hear(error) from error

    def _tell(self, trouble: "_Trouble", spent_s: float, pause: float, waits_s: float = 0.0) -> None:
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

    def _hear(self, error: Exception) -> "_Trouble":
        """What a failed request means. A connection that is cut was one: somebody is there."""
        trouble = _trouble_of(error, "" if self._answered else self.url)
        self._reached = self._reached or not trouble.untouched
        return trouble

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            headers = {"Content-Type": "application/json"}
            if is_loopback(urlsplit(self.url).hostname or ""):
                headers["Accept-Encoding"] = (
                    "identity"  # nothing is gained by packing what never leaves the machine
                )
            connector = None if self._tls is None else aiohttp.TCPConnector(ssl=self._tls)
            self._session = aiohttp.ClientSession(headers=headers, connector=connector)
            self._greet(self._session, self._token)
        if not self._token:
            # Looked for until it is there: a local orchestrator makes it when it starts, maybe after us.
            self._token = find_token(self._connection.state_dir, CLIENT_FILE) or ""
            self._greet(self._session, self._token)
        return self._session

    @staticmethod
    def _greet(session: aiohttp.ClientSession, token: str) -> None:
        """Bring the token along from now on."""
        if token:
            session.headers["X-Client-Token"] = token


def _in_turns(data: bytes | None) -> bytes | io.BytesIO | None:
    """A large body is written in pieces: in one, it would hold the loop."""
    return io.BytesIO(data) if data is not None and len(data) > _LARGE_BODY else data


class _NothingToCome(Exception):
    """The stream is over for good."""


class _Trouble(Exception):
    """No answer that counts; perhaps the next try gets one."""

    def __init__(
        self,
        reason: str,
        *,
        untouched: bool = False,
        final: bool = False,
        retry_after_s: float = 0.0,
        error: RegistaError | None = None,
    ) -> None:
        super().__init__(reason)
        #: Nobody can have done what was asked.
        self.untouched = untouched
        #: Another try would go no better: a certificate that is not trusted is not trusted a second later.
        self.final = final
        self.retry_after_s = retry_after_s
        self._error = error

    def as_error(self, url: str) -> RegistaError:
        """What to raise when there is no next try."""
        return self._error or Unreachable(url, str(self))


def _trouble_of(error: Exception, never_answered: str) -> _Trouble:
    """What a failed connection means. Before it was made, nobody can have heard us."""
    distrust = isinstance(error, aiohttp.ClientConnectorCertificateError)
    return _Trouble(
        why(error, never_answered), untouched=isinstance(error, _NOT_EVEN_CONNECTED), final=distrust
    )


def _refused(status: int, headers: Mapping[str, str], body: bytes) -> None:
    """Raise what a refusal stands for."""
    error = error_of(status, body)
    if status not in _NOT_NOW:
        raise error
    raise _Trouble(
        str(error),
        untouched=status == 429,
        retry_after_s=_seconds(headers.get("Retry-After", "")),
        error=error,
    )


def _seconds(text: str) -> float:
    """`Retry-After` in seconds; a date, or nothing, asks for no particular pause."""
    try:
        return max(0.0, float(text))
    except ValueError:
        return 0.0


def decoded(answer: Answer, kind: Any) -> Any:
    """The body as a record. What does not fit is an answer of something that is not an orchestrator."""
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except msgspec.MsgspecError as error:
        raise ApiError(200, "unexpected_answer", f"the answer does not fit: {error}") from error
