"""Requests that survive a restart of the orchestrator: retried where that is safe, bounded in all."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec

from ..config import Connection, url_for
from ..errors import ApiError, RegistaError, Unreachable
from ..tokens import CLIENT_FILE, find_token
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
        #: How long trouble is put up with; until the first answer, less of it may be wanted.
        self._patience_s = connection.timeout_s
        self._first_contact_s = min(first_contact_s, connection.timeout_s)
        self._reached = False
        self._token = connection.token
        #: `Date` of the last answer.
        self.server_time: str | None = None
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Give the connections back. Twice is fine."""
        if self._session is not None:
            await self._session.close()
            self._session = None

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
        began, pause = time.monotonic(), _FIRST_PAUSE_S
        while True:
            try:
                return await self._try(method, path, data, params, waits_s)
            except _Trouble as trouble:
                if not (again or trouble.untouched):
                    raise trouble.as_error(self.url) from trouble
                pause = max(pause, trouble.retry_after_s)
                if time.monotonic() - began + pause > self._patience(waits_s):
                    raise trouble.as_error(self.url) from trouble
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
        timeout = aiohttp.ClientTimeout(total=self._patience_s + waits_s, connect=_CONNECT_S)
        try:
            async with self._opened().request(
                method, self.url + path, data=data, params=params, timeout=timeout
            ) as response:
                body = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._hear(error) from error
        self._reached = True
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
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def _chunks(self, path: str, last_id: str) -> AsyncIterator[bytes]:
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_id} if last_id else {})
        timeout = aiohttp.ClientTimeout(total=None, connect=_CONNECT_S, sock_read=_SILENCE_S)
        try:
            async with self._opened().get(self.url + path, headers=headers, timeout=timeout) as response:
                self._reached = True
                if response.status >= 400:
                    _refused(response.status, response.headers, await response.read())
                if response.status == 204:
                    raise _NothingToCome
                async for chunk in response.content.iter_any():
                    yield chunk
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._hear(error) from error

    def _patience(self, waits_s: float = 0.0) -> float:
        """How long trouble is put up with now. Who was never there does not wait for a job either."""
        return self._patience_s + waits_s if self._reached else self._first_contact_s

    def _hear(self, error: Exception) -> "_Trouble":
        """What a failed request means. A connection that is cut was one: somebody is there."""
        trouble = _trouble_of(error)
        self._reached = self._reached or not trouble.untouched
        return trouble

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(headers={"Content-Type": "application/json"})
        if not self._token:
            # Looked for until it is there: a local orchestrator makes it when it starts, maybe after us.
            self._token = find_token(self._connection.state_dir, CLIENT_FILE) or ""
        if self._token:
            self._session.headers["X-Client-Token"] = self._token
        return self._session


class _NothingToCome(Exception):
    """The stream is over for good."""


class _Trouble(Exception):
    """No answer that counts; perhaps the next try gets one."""

    def __init__(
        self,
        reason: str,
        *,
        untouched: bool = False,
        retry_after_s: float = 0.0,
        error: RegistaError | None = None,
    ) -> None:
        super().__init__(reason)
        #: Nobody can have done what was asked.
        self.untouched = untouched
        self.retry_after_s = retry_after_s
        self._error = error

    def as_error(self, url: str) -> RegistaError:
        """What to raise when there is no next try."""
        return self._error or Unreachable(url, str(self))


def _trouble_of(error: Exception) -> _Trouble:
    """What a failed connection means. Before it was made, nobody can have heard us."""
    return _Trouble(why(error), untouched=isinstance(error, _NOT_EVEN_CONNECTED))


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
