"""CheckedResolver: DNS in threads of its own, and only addresses that may be called."""

import asyncio
import functools
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult

from .addresses import AddressPolicy

#: Names that are looked up at a time. A name server can be slow on purpose, and a thread cannot be interrupted, so
#: these are several times as many as one client's deliveries can take at once.
_THREADS = 64


class CheckedResolver(AbstractResolver):
    """Looks names up, and refuses a name that has an address which may not be called.

    The addresses it returns are the ones that are connected to. There is no second look-up, so a name that changes
    its meaning a moment later (DNS rebinding) gains nothing.
    """

    def __init__(self, policy: AddressPolicy) -> None:
        self._policy = policy
        # Not those of the loop: tasks and handlers would wait for slow name servers.
        self._threads = ThreadPoolExecutor(_THREADS, "webhook-dns")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses of a name; WebhookRefused if one of them may not be called, OSError if there is none."""
        found = await self.look_up(host, port, family)
        for each in found:
            self._policy.check(each["host"])
        return found

    async def look_up(self, host: str, port: int, family: socket.AddressFamily) -> list[ResolveResult]:
        """Ask the system, in a thread. The addresses are not checked."""
        ask = functools.partial(
            socket.getaddrinfo, host, port, type=socket.SOCK_STREAM, family=family, flags=socket.AI_ADDRCONFIG
        )
        found: Sequence[tuple[socket.AddressFamily, int, int, str, Any]]
        found = await asyncio.get_running_loop().run_in_executor(self._threads, ask)
        return [
            ResolveResult(
                hostname=host,
                host=str(address[0]),
                port=int(address[1]),
                family=kind,
                proto=proto,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for kind, _, proto, _, address in found
        ]

    async def close(self) -> None:
        """Give the threads back. Look-ups that hang end by themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)
