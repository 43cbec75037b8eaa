"""Where signed links lead to, for payload stores that cannot be reached from outside: content up and down, streamed.

The signature is the permission: it names the job, the file, the method and the last second. Nothing else is served
here, and a file is always handed out as something to be saved, never as a page of ours.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import cast
from urllib.parse import quote

from aiohttp import web

from ..errors import FileTooLarge, JobAlreadyTerminal, JobNotFound
from ..payloads import links
from ..payloads.task_files import TaskFiles
from . import view
from .bodies import UNREADABLE, unreadable
from .middleware.ratelimit import tell
from .operations import on_expect
from .problems import Problem
from .sending import whole_or_cut, write
from .stage import STAGE, Stage
from .transfers import DOWN, UP, Transfers

#: Bytes a second that an upload brings at least, as long as we wait for it.
LEAST_RATE = 1024
#: Seconds that a reader may take for the next piece of a file, before its connection is cut.
SLOW_S = 30.0

#: Below the path of the links: the job's id, and the name of the file with its folders.
_PATTERN = links.PATH + "/{job_id}/{file:.+}"


def install(app: web.Application) -> None:
    """Answer at the paths of signed links."""
    most = app[STAGE].config.s3_max_concurrency
    app[DOWN], app[UP] = Transfers(most), Transfers(most)
    app.router.add_get(_PATTERN, download, expect_handler=on_expect)  # and HEAD
    app.router.add_put(_PATTERN, upload, expect_handler=on_expect)


async def download(request: web.Request) -> web.StreamResponse:
    """The content of a file."""
    stage, job_id, name = _allowed(request, "GET")
    files = stage.filing.open(job_id, outside=True)
    (job,) = await stage.storage.get([job_id])
    async with request.app[DOWN].turn(job_id if job is None else job.client or job_id):
        return await _send(request, files, name)


async def _send(request: web.Request, files: TaskFiles, name: str) -> web.StreamResponse:
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
    tell(request, answer)
    pieces = files.stream(name)
    first = await anext(pieces, b"")  # a file that is gone by now is a 404, and not half an answer
    # Closed here, so that its turn is free at once, and not some day.
    async with aclosing(cast(AsyncGenerator[bytes, None], pieces)):
        with whole_or_cut(request):
            await answer.prepare(request)
            await write(answer, first, SLOW_S)
            async for piece in pieces:
                await write(answer, piece, SLOW_S)
            await answer.write_eof()
    return answer


async def upload(request: web.Request) -> web.Response:
    """Write a file. It is there when this is answered, or not at all."""
    stage, job_id, name = _allowed(request, "PUT")
    files = stage.filing.open(job_id, outside=True)
    (job,) = await stage.storage.get([job_id])
    if job is None:
        raise JobNotFound(job_id)
    if job.status.terminal:
        raise JobAlreadyTerminal(job_id, job.status)
    most = stage.config.max_file_bytes
    if (request.content_length or 0) > most:
        raise FileTooLarge(name, most)
    async with request.app[UP].turn(job.client or job_id):
        await files.upload_stream(name, _pieces(request, name, most, stage.config.body_timeout_s))
        found = await files.info(name)
    return view.json({"status": "uploaded", "name": name, "size": found.size})


async def _pieces(request: web.Request, name: str, most: int, silence_s: float) -> AsyncIterator[bytes]:
    """What is sent, as it comes. Whoever says too little for too long, or too much, is not heard to the end."""
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


def _allowed(request: web.Request, method: str) -> tuple[Stage, str, str]:
    """What the link is for; 403 when it is not ours, was changed, or is over."""
    stage = request.app[STAGE]
    job_id, name = request.match_info["job_id"], request.match_info["file"]
    until = request.query.get("expires", "")
    expires = int(until) if until.isascii() and until.isdigit() and len(until) < 12 else 0
    signature = request.query.get("signature", "")
    if not links.is_valid_link(stage.filing.secret, job_id, name, method, expires, signature):
        raise Problem(403, "link_invalid", "this link is not one of ours, or something in it was changed")
    if stage.clock.now().timestamp() > expires:
        raise Problem(403, "link_expired", "this link is over; ask for another one")
    return stage, job_id, name
