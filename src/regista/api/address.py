"""Addresses: who is at the other end, when a proxy may stand between us and whoever asks.

What a proxy says is believed only when the connection comes from an address of REGISTA_TRUSTED_PROXIES. From
anybody else the same headers are what they are: words of a stranger.
"""

import ipaddress
import logging
from functools import lru_cache

from aiohttp import web

from .stage import STAGE

#: Who asked, hop by hop: each proxy adds the address that it was spoken to from.
FORWARDED_FOR = "X-Forwarded-For"
#: How it was asked: https or http.
FORWARDED_PROTO = "X-Forwarded-Proto"
#: Where nobody can be named: a Unix socket, or a connection that is gone.
UNKNOWN = "unknown"

log = logging.getLogger("regista.doors")

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def client_address(request: web.Request) -> str:
    """The address of whoever asks: the peer's, or the nearest one that no trusted proxy of ours has.

    IPv4 addresses inside IPv6 ones are written as IPv4, so that one machine has one name. Never raises.
    """
    chain = ",".join(request.headers.getall(FORWARDED_FOR, []))
    return address_behind(request.remote, chain, _trusted(request))


def peer_address(request: web.Request) -> str:
    """The same, with the port of the connection where that is the asker's own: two programs of one machine differ."""
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
    """A trusted proxy handed us this request, so its headers about whoever asked are true."""
    return is_trusted(request.remote, _trusted(request))


def is_trusted(peer: str | None, trusted: tuple[str, ...]) -> bool:
    """It is the address of a proxy that is believed."""
    if not trusted:
        return False
    found = _address(peer or "")
    return found is not None and _is_in(found, networks_of(trusted))


def is_secure(request: web.Request) -> bool:
    """Whoever asks did so over TLS, as far as the trusted proxy before us, or to us."""
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
    """Walk the chain from its near end: every hop was written by the one after it, so trust ends at a stranger."""
    nearest = peer
    for text in reversed(chain.split(",")):
        hop = _address(text.strip())
        if hop is None:
            break  # what lies behind a name that is none cannot be told
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
