"""Content of files by signed link, for payload stores that cannot be reached from outside; streamed both ways.

The signature is the permission: it names the job, the file, the method and the last second. Nothing else is served
here, and a file is always sent as an attachment, never as a page of ours.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import cast
from urllib.parse import quote

from aiohttp import web

from ..errors import FileTooLarge, PayloadUnavailable
from ..payloads import links
from ..services.files import LinkedFile
from . import view
from .bodies import UNREADABLE, unreadable
from .problems import Problem
from .responses import SLOW_S, abort_on_failure, write
from .routes import RouteTable
from .stage import STAGE, Stage

#: Bytes a second that an upload brings at least, as long as we wait for it.
LEAST_RATE = 1024
#: Seconds that a transfer waits for a slot.
SLOT_TIMEOUT_S = 10.0
#: One client has at most this part of all slots.
_SHARE = 4


class TransferSlots:
    """Slots for transfers in one direction. A client has a share of them, so others need not wait for it."""

    def __init__(self, most: int, timeout_s: float = SLOT_TIMEOUT_S) -> None:
        self.each = max(1, most // _SHARE)
        self._timeout_s = timeout_s
        self._all = asyncio.Semaphore(most)
        #: Client → its share, and how many hold or want a slot of it.
        self._of: dict[str, tuple[asyncio.Semaphore, int]] = {}

    @contextlib.asynccontextmanager
    async def slot(self, client: str) -> AsyncIterator[None]:
        """A slot for this client, released at the end; Problem (429), PayloadUnavailable."""
        share = self._enter(client)
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
            self._leave(client)

    async def _wait(self, slots: asyncio.Semaphore, client: str) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                await slots.acquire()
        except TimeoutError:
            if not client:
                raise PayloadUnavailable("too many transfers at once; try again in a moment") from None
            detail = f"expected at most {self.each} transfers of {client} at once, got more"
            raise Problem(429, "too_many_transfers", detail, headers={"Connection": "close"}) from None

    def _enter(self, client: str) -> asyncio.Semaphore:
        share, count = self._of.get(client) or (asyncio.Semaphore(self.each), 0)
        self._of[client] = share, count + 1
        return share

    def _leave(self, client: str) -> None:
        share, count = self._of.pop(client)
        if count > 1:
            self._of[client] = share, count - 1


#: Below the path of the links: the job's id, and the name of the file with its folders.
_PATTERN = links.PATH + "/{job_id}/{file:.+}"


routes = RouteTable("files", kind="public")


@routes.get(_PATTERN, secret_in_url=True)
@routes.head(_PATTERN, secret_in_url=True)
async def download(request: web.Request) -> web.StreamResponse:
    """The content of a file."""
    stage, job_id, name = _checked_link(request, "GET")
    linked = await stage.services.files.linked_download(job_id, name)
    async with request.app[STAGE].downloads.slot(linked.owner):
        return await _send(request, linked)


async def _send(request: web.Request, linked: LinkedFile) -> web.StreamResponse:
    files, name = linked.files, linked.name
    found = await files.info(name)
    answer = web.StreamResponse(
        headers={
            "Content-Type": "application/octet-stream",
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name.rpartition('/')[2], safe='')}",
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "private, no-store",
        }
    )
    answer.content_length = found.size
    if request.method == "HEAD":
        return answer
    pieces = files.stream(name)
    first = await anext(pieces, b"")  # a file that is gone by now is a 404, and not half an answer
    # Closed here, so that its turn is free at once, and not some day.
    async with aclosing(cast(AsyncGenerator[bytes, None], pieces)):
        with abort_on_failure(request):
            await answer.prepare(request)
            await write(answer, first, SLOW_S)
            async for piece in pieces:
                await write(answer, piece, SLOW_S)
            await answer.write_eof()
    return answer


@routes.put(_PATTERN, secret_in_url=True)
async def upload(request: web.Request) -> web.Response:
    """Write a file. It is there when this is answered, or not at all."""
    stage, job_id, name = _checked_link(request, "PUT")
    linked = await stage.services.files.linked_upload(job_id, name)
    most = stage.config.max_file_bytes
    if (request.content_length or 0) > most:
        raise FileTooLarge(name, most)
    async with request.app[STAGE].uploads.slot(linked.owner):
        pieces = _pieces(request, name, most, stage.config.body_timeout_s)
        await linked.files.upload_stream(name, pieces)
        found = await linked.files.info(name)
    return view.json({"status": "uploaded", "name": name, "size": found.size})


async def _pieces(request: web.Request, name: str, most: int, silence_s: float) -> AsyncIterator[bytes]:
    """The content in chunks; 408 if it comes too slowly, FileTooLarge if it is too much."""
    sofar, waited, lately = 0, 0.0, 0
    while True:
        began = time.monotonic()
        try:
            async with asyncio.timeout(silence_s - waited):
                piece = await request.content.readany()
        except TimeoutError:
            detail = (
                f"expected {LEAST_RATE} bytes a second over {silence_s:g} s, and only {lately} bytes came"
            )
            raise Problem(408, "body_timeout", detail, headers={"Connection": "close"}) from None
        except UNREADABLE as error:
            raise unreadable(error) from None
        if not piece:
            return
        sofar, lately = sofar + len(piece), lately + len(piece)
        waited += time.monotonic() - began  # for the client alone: the store may take its time
        if lately >= LEAST_RATE * silence_s:
            waited, lately = 0.0, 0
        if sofar > most:
            raise FileTooLarge(name, most)
        yield piece


def _checked_link(request: web.Request, method: str) -> tuple[Stage, str, str]:
    """Job and file of a link that is valid; LinkInvalid, LinkExpired."""
    stage = request.app[STAGE]
    job_id, name = request.match_info["job_id"], request.match_info["file"]
    until = request.query.get("expires", "")
    expires = int(until) if until.isascii() and until.isdigit() and len(until) < 12 else 0
    signature = request.query.get("signature", "")
    stage.services.files.check_link(job_id, name, method, expires, signature)
    return stage, job_id, name
