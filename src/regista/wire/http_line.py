"""Line: requests to one server over HTTP/1.1, each answered whole. For small bodies; who wants more takes a library."""

import asyncio
import ipaddress
import re
import socket
import ssl
from collections import deque
from urllib.parse import urlsplit

import aiohappyeyeballs
from msgspec import Struct

from .http_answer import Head, unpacked
from .http_connection import Connection, Cut, Kept

#: Requests on their way at once, at most; the others wait for their turn.
_MOST = 100
#: How long a connection may take to be made, and is kept when nobody needs it.
_CONNECT_S, _KEPT_S = 5.0, 15.0
#: Where a name has several addresses, the next is tried after so long beside the one that does not answer.
_NEXT_ADDRESS_S = 0.25
_USUAL_PORTS = {"http": 80, "https": 443}
_PLAIN_HOST = re.compile(r"[A-Za-z0-9._:-]+")
_PLAIN_PATH = re.compile(r"[A-Za-z0-9/._~%:@!$&'()*+,;=-]*")
#: What may stand in a request after the address: nothing that ends the line, or a word of it.
_TARGET = re.compile(r"[!-~]+")


class Unheard(OSError):
    """No connection could be made: nobody has heard us."""

    def __init__(self, os_error: Exception) -> None:
        super().__init__(*os_error.args)
        self.os_error = os_error

    @property
    def distrust(self) -> bool:
        """There is somebody, who shows a certificate that is not trusted."""
        return isinstance(self.os_error, ssl.SSLCertVerificationError)


class Place(Struct, frozen=True):
    """Where a line leads to."""

    host: str
    port: int
    tls: bool
    #: What every path begins with.
    path: str

    @property
    def name(self) -> str:
        """As requests call it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _USUAL_PORTS["https" if self.tls else "http"] else f"{host}:{self.port}"


def place_of(url: str) -> Place | None:
    """The place that an address names; None where there is more in it, or less, than a host, a port and a path."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return None
    odd = "@" in parts.netloc or parts.query or parts.fragment or parts.scheme not in _USUAL_PORTS
    if odd or not _PLAIN_HOST.fullmatch(host) or not _PLAIN_PATH.fullmatch(parts.path):
        return None
    return Place(host, port or _USUAL_PORTS[parts.scheme], parts.scheme == "https", parts.path.rstrip("/"))


class Line:
    """Asks one server, over as many connections as it takes. Redirects are not followed, no proxy is asked."""

    def __init__(
        self, place: Place, tls: ssl.SSLContext | None = None, connect_s: float = _CONNECT_S
    ) -> None:
        self._place = place
        self._host = f" HTTP/1.1\r\nHost: {place.name}\r\n"
        self._tls = tls
        self._connect_s = connect_s
        self._kept = Kept(_MOST, _KEPT_S)
        self._loop: asyncio.AbstractEventLoop | None = None
        #: Requests that have their turn, and those that wait for it.
        self._turns = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        #: Connections on which an answer is waited for.
        self._busy: set[Connection] = set()

    async def ask(
        self, method: str, path: str, headers: str, body: bytes | None, timeout_s: float, again: bool
    ) -> tuple[Head, bytes]:
        """The answer: its head, and its body unpacked. `headers` are whole lines, the body is JSON.

        `again`: it may be sent twice. Then it is, when a connection that was used before turns out to be closed.
        Unheard where nobody can have taken it up; else Cut (or another OSError), TimeoutError or BadAnswer.
        """
        request = self._request(method, path, headers, body)
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._move(loop)
        end = loop.time() + timeout_s
        if self._turns < _MOST and not self._waiting:
            self._turns += 1
        else:
            await self._turn(end)
        try:
            connection = self._kept.find(self._place)
            if connection is not None:
                try:
                    return await self._ask(connection, request, end - loop.time())
                except Cut:
                    # Servers close old connections, maybe just now; that says nothing about a new one.
                    if not (again and connection.silent):
                        raise
            connection = await self._dial(end - loop.time())
            return await self._ask(connection, request, end - loop.time())
        finally:
            self._give_turn()

    async def close(self) -> None:
        """Give the connections back; who waits for an answer is cut off. Twice is fine."""
        self._kept.close()
        for connection in self._busy:
            connection.close()
        await asyncio.sleep(0)  # what was broken off is gone with the next turn of the loop

    def _request(self, method: str, path: str, headers: str, body: bytes | None) -> bytes:
        if _TARGET.fullmatch(path) is None:
            raise ValueError(f"expected a path that is quoted, got {path!r}")
        head = f"{method} {self._place.path}{path}{self._host}{headers}"
        if body is None:
            return f"{head}\r\n".encode()
        length = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        return f"{head}{length}".encode() + body

    async def _ask(self, connection: Connection, request: bytes, timeout_s: float) -> tuple[Head, bytes]:
        self._busy.add(connection)
        try:
            head = await connection.ask(request, timeout_s, whole=True)
            return head, unpacked(head, connection.content())
        finally:
            self._busy.discard(connection)
            # Only after a whole answer: one that was not waited for could be taken for the next.
            if connection.free:
                self._kept.keep(self._place, connection)
            else:
                connection.close()

    # -- turns -----------------------------------------------------------------------------------

    def _move(self, loop: asyncio.AbstractEventLoop) -> None:
        """Connections belong to the loop that they were made in; nobody reads on those of another."""
        self._loop = loop
        self._kept = Kept(_MOST, _KEPT_S)
        self._busy, self._waiting, self._turns = set(), deque(), 0

    async def _turn(self, end: float) -> None:
        """Wait for a turn, in the order in which it is asked for; Unheard when there was none in time."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout_at(end):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self._give_turn()  # it came too late
            if isinstance(error, TimeoutError):
                raise Unheard(error) from error
            raise

    def _give_turn(self) -> None:
        """Pass the turn on to whoever waits longest, if anybody does."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._turns -= 1

    # -- connections -----------------------------------------------------------------------------

    async def _dial(self, timeout_s: float) -> Connection:
        place, loop = self._place, asyncio.get_running_loop()
        try:
            async with asyncio.timeout(min(timeout_s, self._connect_s)):
                addresses = await _addresses(place.host, place.port)
                found = await aiohappyeyeballs.start_connection(
                    addresses, happy_eyeballs_delay=_NEXT_ADDRESS_S, loop=loop
                )
                _, connection = await loop.create_connection(
                    Connection,
                    sock=found,
                    ssl=self._context() if place.tls else None,
                    server_hostname=place.host.rstrip(".") if place.tls else None,
                )
        except (OSError, RuntimeError, UnicodeError) as error:  # of uvloop, and of names that are none, too
            raise Unheard(error) from error
        return connection

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
            self._tls.set_alpn_protocols(["http/1.1"])
        return self._tls


async def _addresses(host: str, port: int) -> list[aiohappyeyeballs.AddrInfoType]:
    """The addresses of a host. What is one already is not looked up."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        loop = asyncio.get_running_loop()
        return list(await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    # As bytes: for a name Python would load the tables of all scripts of the world.
    return list(socket.getaddrinfo(host.encode(), port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST))
