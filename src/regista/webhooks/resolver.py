"""Resolvers: names become addresses, in threads of their own, and only those come through that may be told."""

import asyncio
import contextlib
import functools
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult

from .addresses import Allowed

#: Names that are looked up at a time. A name server can be slow on purpose, and a thread cannot be told to stop, so
#: these are several times as many as one client's deliveries can take at once.
_THREADS = 64

#: What the system says of a name.
_Found = Sequence[tuple[socket.AddressFamily, int, int, str, Any]]


class OwnThreads(AbstractResolver):
    """Asks the system, each name in a thread of its own: those of handlers and tasks are others.

    A lookup that hangs holds up neither the others nor the end of the process; its thread dies with it.
    """

    def __init__(self) -> None:
        self._room = asyncio.Semaphore(_THREADS)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        ask = functools.partial(
            socket.getaddrinfo, host, port, type=socket.SOCK_STREAM, family=family, flags=socket.AI_ADDRCONFIG
        )
        await self._room.acquire()
        return [
            ResolveResult(
                hostname=host,
                host=str(address[0]),
                port=int(address[1]),
                family=kind,
                proto=proto,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for kind, _, proto, _, address in await self._begin(ask)
        ]

    def _begin(self, ask: Callable[[], _Found]) -> "asyncio.Future[_Found]":
        """Start a thread that looks up; the room is free again when it has ended, and not when nobody waits for it."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[_Found] = loop.create_future()
        thread = threading.Thread(
            target=self._look_up, args=(loop, answer, ask), name="webhook-names", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # the system gives us no thread
            self._end(answer, OSError("no thread is left to look a name up"))
        return answer

    def _look_up(
        self, loop: asyncio.AbstractEventLoop, answer: "asyncio.Future[_Found]", ask: Callable[[], _Found]
    ) -> None:
        found: _Found | Exception
        try:
            found = ask()
        except Exception as error:  # noqa: BLE001  # whoever asked gets it
            found = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(self._end, answer, found)

    def _end(self, answer: "asyncio.Future[_Found]", found: _Found | Exception) -> None:
        self._room.release()
        if answer.done():
            return
        if isinstance(found, Exception):
            answer.set_exception(found)
        else:
            answer.set_result(found)

    async def close(self) -> None:
        """Nothing is left open."""


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
