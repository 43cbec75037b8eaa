"""Transfers: how many files come and go through links at once, and how many of them are one client's."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from aiohttp import web

from ..errors import PayloadUnavailable
from .problems import Problem

#: Seconds that a transfer waits for its turn before it is told to come again.
PATIENCE_S = 10.0
#: One client has at most this part of all turns.
_SHARE = 4


class Transfers:
    """Turns for transfers in one direction. A client that uses up its own share waits for itself, not others for it."""

    def __init__(self, most: int, patience_s: float = PATIENCE_S) -> None:
        self.each = max(1, most // _SHARE)
        self._patience_s = patience_s
        self._all = asyncio.Semaphore(most)
        #: Client → its share, and how many hold or want a turn of it.
        self._of: dict[str, tuple[asyncio.Semaphore, int]] = {}

    @contextlib.asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        """A turn for this client, given back at the end; Problem (429), PayloadUnavailable."""
        share = self._come(client)
        try:
            await self._wait(share, client)
            try:
                await self._wait(self._all, "")
                try:
                    yield
                finally:
                    self._all.release()
            finally:
                share.release()
        finally:
            self._go(client)

    async def _wait(self, turns: asyncio.Semaphore, client: str) -> None:
        try:
            async with asyncio.timeout(self._patience_s):
                await turns.acquire()
        except TimeoutError:
            if not client:
                raise PayloadUnavailable(
                    "too many files come and go at once; come again in a moment"
                ) from None
            detail = f"expected at most {self.each} files of {client} to come or go at once, and all these do"
            raise Problem(429, "too_many_transfers", detail, headers={"Connection": "close"}) from None

    def _come(self, client: str) -> asyncio.Semaphore:
        share, count = self._of.get(client) or (asyncio.Semaphore(self.each), 0)
        self._of[client] = share, count + 1
        return share

    def _go(self, client: str) -> None:
        share, count = self._of.pop(client)
        if count > 1:
            self._of[client] = share, count - 1


#: For files that go out, and for those that come in: whoever copies one to another must not wait for himself.
DOWN = web.AppKey("transfers_down", Transfers)
UP = web.AppKey("transfers_up", Transfers)
