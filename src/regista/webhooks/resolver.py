"""Resolvers: names become addresses, in threads of their own, and only those come through that may be told."""

import asyncio
import functools
import socket
from concurrent.futures import ThreadPoolExecutor

from aiohttp.abc import AbstractResolver, ResolveResult

from .addresses import Allowed

#: Names that are looked up at a time. A name server can be slow on purpose, and a thread cannot be told to stop:
#: those of handlers and tasks are others.
_THREADS = 16


class OwnThreads(AbstractResolver):
    """Asks the system, in a few threads that nobody else needs."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="webhook-names")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        ask = functools.partial(
            socket.getaddrinfo, host, port, type=socket.SOCK_STREAM, family=family, flags=socket.AI_ADDRCONFIG
        )
        found = await asyncio.get_running_loop().run_in_executor(self._pool, ask)
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
        self._pool.shutdown(wait=False, cancel_futures=True)


class CheckedResolver(AbstractResolver):
    """Looks names up, and lets only those addresses through that may be told.

    What it returns is what is connected to: nobody asks a second time, so a name that means something else a moment
    later gains nothing by it. One bad address among good ones spoils the name.
    """

    def __init__(self, allowed: Allowed, resolver: AbstractResolver) -> None:
        self._allowed = allowed
        self._resolver = resolver

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._resolver.resolve(host, port, family)
        for each in found:
            self._allowed.check(each["host"])
        return found

    async def close(self) -> None:
        await self._resolver.close()
