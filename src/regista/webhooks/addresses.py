"""Addresses that may be told: public ones, and those that an operator has allowed."""

import ipaddress
from collections.abc import Sequence
from functools import lru_cache

from ..errors import WebhookRefused

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
#: IPv4 behind NAT64: such an address is as good as the one inside.
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
#: Public by their numbers, as some versions of Python see them, and yet inside: what belongs to protocols (one cloud
#: keeps credentials there), old relays, the host that every machine of another cloud has beside it, examples.
_INSIDE = tuple(
    ipaddress.ip_network(network)
    for network in (
        "192.0.0.0/24",
        "192.88.99.0/24",
        "168.63.129.16/32",
        "64:ff9b:1::/48",
        "3fff::/20",
        "5f00::/16",
    )
)
#: Hosts that are remembered as allowed: most jobs name the same few.
_REMEMBERED = 1000


class Allowed:
    """Says which addresses may be spoken to. Whoever submits a job must not reach our own network through us."""

    def __init__(self, networks: Sequence[str] = ()) -> None:
        self._networks = tuple(ipaddress.ip_network(network) for network in networks)
        # What is said of a host never changes; a refusal is not remembered, it is raised.
        self._host_passes = lru_cache(_REMEMBERED)(self._look_at)

    def check(self, text: str) -> None:
        """Raise WebhookRefused for an address that is not for everybody and that nobody has allowed."""
        address = ipaddress.ip_address(text.partition("%")[0])
        for one in _meant(address):
            if not self._is_allowed(one):
                raise WebhookRefused(
                    f"{one} is not a public address; REGISTA_WEBHOOK_ALLOW_PRIVATE names networks that may be told"
                )

    def check_host(self, host: str) -> None:
        """The same for a host in a URL, where that is an address already. A name is looked up when it is time."""
        self._host_passes(host)

    def _look_at(self, host: str) -> None:
        try:
            ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            if host.rstrip(".").lower() != "localhost":
                return
            host = "127.0.0.1"
        self.check(host)

    def _is_allowed(self, address: _Address) -> bool:
        if _is_in(address, self._networks):
            return True
        if _is_in(address, _INSIDE):
            return False
        if isinstance(address, ipaddress.IPv6Address) and address.is_site_local:
            return False  # given up long ago, and yet routed inside some networks
        return address.is_global and not address.is_multicast and not address.is_reserved


def _is_in(address: _Address, networks: Sequence[_Network]) -> bool:
    return any(address.version == one.version and address in one for one in networks)


def _meant(address: _Address) -> list[_Address]:
    """The address, or those inside it where it only wraps them: each must be allowed."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    if address.sixtofour is not None:
        return [address.sixtofour]
    if address.teredo is not None:
        return list(address.teredo)
    if address in _NAT64:
        return [ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)]
    return [address]
