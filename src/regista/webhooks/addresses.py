"""Which addresses webhooks may be sent to: public ones, and networks that an operator has allowed."""

import ipaddress
import socket
from collections.abc import Sequence

from ..errors import WebhookRefused

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
#: IPv4 behind NAT64: such an address is as good as the one inside.
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
#: Public by their numbers, as some versions of Python see them, and yet internal: what belongs to protocols (one cloud
#: keeps credentials there), old relays, the host that every machine of another cloud has beside it, examples.
_INTERNAL = tuple(
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


class AddressPolicy:
    """Refuses addresses of internal networks, so that a client cannot reach them through the orchestrator."""

    def __init__(self, networks: Sequence[str] = ()) -> None:
        """`networks` are allowed although they are not public."""
        self._networks = tuple(ipaddress.ip_network(network) for network in networks)

    def check(self, text: str) -> None:
        """Raise WebhookRefused for an address that is neither public nor allowed."""
        address = ipaddress.ip_address(text.partition("%")[0])
        for one in _embedded_addresses(address):
            if not self._is_allowed(one):
                raise WebhookRefused(
                    f"{one} is not a public address; REGISTA_WEBHOOK_ALLOW_PRIVATE names networks that may be told"
                )

    def check_host(self, host: str) -> None:
        """The same for the host of a URL, if it is an address, however it is written. Names are looked up later."""
        host = host.partition("%")[0].rstrip(".").lower()
        if host == "localhost":
            host = "127.0.0.1"
        try:
            ipaddress.ip_address(host)
        except ValueError:
            try:
                host = socket.inet_ntoa(socket.inet_aton(host))  # 127.1, 0x7f.1, 2130706433
            except (OSError, UnicodeError):
                return
        self.check(host)

    def _is_allowed(self, address: _Address) -> bool:
        if _is_in(address, self._networks):
            return True
        if _is_in(address, _INTERNAL):
            return False
        if isinstance(address, ipaddress.IPv6Address) and address.is_site_local:
            return False  # deprecated, and yet routed inside some networks
        return address.is_global and not address.is_multicast and not address.is_reserved


def _is_in(address: _Address, networks: Sequence[_Network]) -> bool:
    return any(address.version == one.version and address in one for one in networks)


def _embedded_addresses(address: _Address) -> list[_Address]:
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
