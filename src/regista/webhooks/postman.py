"""Postman: carries deliveries over HTTP, to addresses that were looked at, and to no others."""

import asyncio
import contextlib
import errno
import ipaddress
import socket
import ssl
from base64 import b64encode
from collections.abc import Callable
from functools import lru_cache

from aiohttp.abc import AbstractResolver
from msgspec import Struct
from yarl import URL

from ..errors import WebhookRefused
from ..wire.http_answer import BadAnswer, Head
from ..wire.http_connection import Connection, Kept, header_lines
from .addresses import Allowed
from .base import Answer
from .resolver import CheckedResolver, OwnThreads

#: Seconds that a receiver's `Retry-After` is believed at most.
_MOST_PATIENCE_S = 3600.0
#: Connections that are kept for the next delivery, in all, and for how many seconds.
_KEPT, _KEPT_S = 64, 15.0
#: Seconds after which an address that does not answer gives way to the next of the same name.
_ADDRESS_S = 2.0
#: URLs that are remembered in their parts.
_REMEMBERED = 500
_GONE = 410
_HEADERS = "Content-Type: application/json\r\nUser-Agent: regista-webhooks\r\nAccept: */*\r\n"


class Target(Struct, frozen=True, gc=False):
    """A URL in the parts that are needed."""

    #: Host, port, and whether over TLS: what a connection leads to.
    place: tuple[str, int, bool]
    #: The head of a request, as far as it is the same for all.
    head: str


@lru_cache(_REMEMBERED)
def target_of(url: str) -> Target:
    """The parts of a URL; ValueError where it is none of a receiver."""
    parts = URL(url)
    if parts.scheme not in ("http", "https") or not parts.raw_host or parts.port is None:
        raise ValueError("expected the URL of a receiver")
    head = f"POST {parts.raw_path_qs} HTTP/1.1\r\nHost: {parts.host_port_subcomponent}\r\n{_HEADERS}"
    if parts.user is not None or parts.password is not None:
        known = b64encode(f"{parts.user or ''}:{parts.password or ''}".encode()).decode()
        head += f"Authorization: Basic {known}\r\n"
    return Target((parts.raw_host, parts.port, parts.scheme == "https"), head)


class Postman:
    """Sends one delivery at a time per call; redirects are not followed, bodies of answers not read.

    No proxy is asked: it would look names up by itself.
    """

    def __init__(
        self,
        allowed: Allowed,
        timeout_s: float = 10.0,
        resolver: Callable[[], AbstractResolver] = OwnThreads,
    ) -> None:
        self._allowed = allowed
        self._timeout_s = timeout_s
        self._make_resolver = resolver
        self._resolver: CheckedResolver | None = None
        self._tls: ssl.SSLContext | None = None
        #: Connections that wait for the next delivery.
        self._kept = Kept(_KEPT, _KEPT_S)

    async def __call__(self, url: str, headers: dict[str, str], body: bytes) -> Answer:
        try:
            target = target_of(url)
            return _answer(await self._post(target, _request(target, headers, body)))
        except WebhookRefused as refusal:
            return Answer(error=str(refusal), final=True)
        except BadAnswer as error:
            return Answer(error=str(error))
        except TimeoutError:
            return Answer(error=f"no answer within {self._timeout_s:g} s")
        except OSError as error:  # before ValueError: a bad certificate is both
            return Answer(error=_words(error))
        except ValueError:
            return Answer(error="expected the URL of a receiver", final=True)

    async def stop(self) -> None:
        """Close the connections. Twice is fine, and so is before the first delivery."""
        self._kept.close()
        resolver, self._resolver = self._resolver, None
        if resolver is not None:
            await resolver.close()
        await asyncio.sleep(0)  # what was broken off is gone with the next turn of the loop

    async def _post(self, target: Target, request: bytes) -> Head:
        """The head of the answer, over a connection that is open already where there is one."""
        connection = self._kept.find(target.place)
        if connection is not None:
            try:
                return await self._ask(target, connection, request, self._timeout_s)
            except ConnectionError:
                # It was closed while nobody looked, as receivers do with old ones; that says nothing about a new one.
                if not connection.silent:
                    raise
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with asyncio.timeout(self._timeout_s):
            connection = await self._connect(target)
        left_s = self._timeout_s - (loop.time() - began)
        return await self._ask(target, connection, request, left_s)

    async def _ask(self, target: Target, connection: Connection, request: bytes, timeout_s: float) -> Head:
        try:
            head = await connection.ask(request, timeout_s)
        except BaseException:
            connection.close()
            raise
        if connection.may_be_free:
            self._kept.keep(target.place, connection)
        else:
            connection.close()
        return head

    # -- connections -----------------------------------------------------------------------------

    async def _connect(self, target: Target) -> Connection:
        """Connect to the first address that answers, of those that were looked at; WebhookRefused if one must not be told."""
        host, port, _ = target.place
        self._allowed.check_host(host)
        addresses = [host] if _is_address(host) else await self._addresses(host, port)
        for address in addresses[:-1]:
            with contextlib.suppress(OSError):  # TimeoutError is one
                async with asyncio.timeout(_ADDRESS_S):
                    return await self._connect_to(address, target)
        return await self._connect_to(addresses[-1], target)

    async def _addresses(self, host: str, port: int) -> list[str]:
        if self._resolver is None:
            self._resolver = CheckedResolver(self._allowed, self._make_resolver())
        found = await self._resolver.resolve(host, port, socket.AF_UNSPEC)
        if not found:
            raise OSError(errno.EHOSTUNREACH, "the name has no address")
        return [each["host"] for each in found]

    async def _connect_to(self, address: str, target: Target) -> Connection:
        host, port, tls = target.place
        if tls and self._tls is None:
            self._tls = ssl.create_default_context()
            self._tls.set_alpn_protocols(["http/1.1"])
        _, connection = await asyncio.get_running_loop().create_connection(
            Connection,
            address,
            port,
            ssl=self._tls if tls else None,
            server_hostname=host.rstrip(".") if tls else None,
            flags=socket.AI_NUMERICHOST,  # nobody looks anything up again
        )
        return connection


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _request(target: Target, headers: dict[str, str], body: bytes) -> bytes:
    return f"{target.head}{header_lines(headers)}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _answer(head: Head) -> Answer:
    status = head.status
    if 200 <= status < 300:
        return Answer(status=status)
    return Answer(
        status=status,
        error=_refusal(status),
        final=status == _GONE,
        retry_after_s=_patience(head.find(b"retry-after")),
    )


def _refusal(status: int) -> str:
    if 300 <= status < 400:
        return f"answered {status}: redirects are not followed, the URL must name the receiver itself"
    return f"answered {status}"


def _patience(text: str | None) -> float | None:
    """The seconds that `Retry-After` names; a date counts as nothing."""
    if text is None or not (text.isascii() and text.isdigit() and len(text) < 9):
        return None
    return min(float(text), _MOST_PATIENCE_S)


def _words(error: OSError) -> str:
    """What went wrong, in few words: nothing of what a stranger's server has sent."""
    return f"{type(error).__name__}: {(error.strerror or 'the connection failed')[:200]}"
