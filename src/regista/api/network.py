"""The caller's address and certificate, behind trusted proxies.

Headers of a proxy are believed only when the connection comes from an address of REGISTA_TRUSTED_PROXIES. From
any other address they are ignored.
"""

import ipaddress
import logging
from functools import lru_cache
from typing import Any

from aiohttp import web

from .problems import Problem
from .stage import STAGE

#: The addresses of the client and of each proxy but the last; each proxy adds the address that connected to it.
FORWARDED_FOR = "X-Forwarded-For"
#: The protocol of the client: https or http.
FORWARDED_PROTO = "X-Forwarded-Proto"
#: The address of a Unix socket, or of a connection that is closed.
UNKNOWN = "unknown"

log = logging.getLogger("regista.doors")

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def client_address(request: web.Request) -> str:
    """The caller's address: the peer's, or the nearest one that does not belong to a trusted proxy.

    IPv4 addresses inside IPv6 ones are written as IPv4, so that one machine has one name. Never raises.
    """
    chain = ",".join(request.headers.getall(FORWARDED_FOR, []))
    return address_behind(request.remote, chain, _trusted(request))


def peer_address(request: web.Request) -> str:
    """The same, with the port where the caller is connected directly: two programs on one machine differ."""
    address = client_address(request)
    peer = None if request.transport is None else request.transport.get_extra_info("peername")
    own = isinstance(peer, tuple) and len(peer) >= 2 and not is_from_proxy(request)
    return f"{address}:{peer[1]}" if own and peer is not None else address


def address_behind(peer: str | None, chain: str, trusted: tuple[str, ...]) -> str:
    """The same, from what a connection and its `X-Forwarded-For` say."""
    networks = networks_of(trusted)
    nearest = _address(peer or "")
    if nearest is None:
        return UNKNOWN
    if not _is_in(nearest, networks):
        return str(nearest)
    return str(_behind(nearest, chain, networks))


def is_from_proxy(request: web.Request) -> bool:
    """A trusted proxy forwarded this request, so its headers about the caller are true."""
    return is_trusted(request.remote, _trusted(request))


def is_trusted(peer: str | None, trusted: tuple[str, ...]) -> bool:
    """It is the address of a trusted proxy."""
    if not trusted:
        return False
    found = _address(peer or "")
    return found is not None and _is_in(found, networks_of(trusted))


def is_secure(request: web.Request) -> bool:
    """The caller used TLS, to the trusted proxy or to this server."""
    if is_from_proxy(request):
        said = request.headers.get(FORWARDED_PROTO)
        if said is not None:
            return said.strip().lower() == "https"
    return request.secure


def warn_plain_http(request: web.Request, sender: str) -> None:
    """Log, once an hour for each address, that a token has crossed the internet without encryption."""
    address = client_address(request)
    found = _address(address)
    if found is None or not found.is_global or is_secure(request):
        return
    if request.app[STAGE].log_throttle.is_due(("plain_http", address)):
        log.warning(
            "%s came from %s over plain HTTP: its token can be read on the way; use TLS",
            sender,
            address,
            extra={"action": "token_in_the_clear"},
        )


def _behind(peer: _Address, chain: str, networks: tuple[_Network, ...]) -> _Address:
    """Walk the chain from its near end. Each hop was written by the one after it, so trust ends at the first unknown address."""
    nearest = peer
    for text in reversed(chain.split(",")):
        hop = _address(text.strip())
        if hop is None:
            break  # what lies behind an unreadable hop is unknown
        nearest = hop
        if not _is_in(hop, networks):
            break
    return nearest


def _trusted(request: web.Request) -> tuple[str, ...]:
    return request.app[STAGE].config.trusted_proxies


@lru_cache(maxsize=64)
def networks_of(texts: tuple[str, ...]) -> tuple[_Network, ...]:
    """The networks that settings name."""
    return tuple(ipaddress.ip_network(text, strict=False) for text in texts)


def _is_in(address: _Address, networks: tuple[_Network, ...]) -> bool:
    return any(address in network for network in networks)


@lru_cache(maxsize=4096)
def _address(text: str) -> _Address | None:
    """The address that a text names, with or without a port; None when it names none."""
    host = text
    if text.startswith("["):
        host = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        host = text.partition(":")[0]
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found


#: What a trusted proxy reports about the client's certificate: its common name, and the result of the check.
NAME_HEADER = "X-Client-Cert-CN"
VERIFY_HEADER = "X-Client-Cert-Verify"
#: The result for a certificate of the trusted authority.
VERIFIED = "SUCCESS"


def certificate_name(request: web.Request, trusted: tuple[str, ...]) -> str | None:
    """The common name of the caller's verified certificate; None when it has sent none.

    Headers count only from a trusted proxy, and then they alone do: the connection's own certificate is the proxy's.
    A certificate without exactly one common name is a Problem.
    """
    if trusted and is_trusted(request.remote, trusted):
        return _said(request)
    if NAME_HEADER in request.headers:
        _warn_ignored(request)
    transport = request.transport
    certificate: dict[str, Any] | None = None
    if transport is not None:
        certificate = transport.get_extra_info("peercert")
    return _common_name(certificate) if certificate else None


def _said(request: web.Request) -> str | None:
    names, verified = request.headers.getall(NAME_HEADER, []), request.headers.getall(VERIFY_HEADER, [])
    if verified != [VERIFIED]:
        return None
    if len(names) != 1 or not names[0]:
        raise _nameless()
    return names[0]


def _common_name(certificate: dict[str, Any]) -> str:
    parts = [part for parts in certificate.get("subject", ()) for part in parts]
    names = [value for key, value in parts if key == "commonName"]
    if len(names) != 1:
        raise _nameless()
    return str(names[0])


def _nameless() -> Problem:
    return Problem(
        403, "certificate_without_name", "expected a certificate with one common name: the id of the worker"
    )


def _warn_ignored(request: web.Request) -> None:
    """Once an hour for each address: either the header is forged, or the proxy is missing in the settings."""
    peer = request.remote or "?"
    if request.app[STAGE].log_throttle.is_due(("proxy_header", peer)):
        log.warning(
            "%s from %s is ignored; if that is your proxy, name it in REGISTA_TRUSTED_PROXIES",
            NAME_HEADER,
            peer,
            extra={"action": "proxy_header_ignored"},
        )
