"""Answers that are made while they are read: they come to their end, or the connection is cut.

Once an answer is begun its status cannot be taken back. Whoever reads must not take a part for the whole, nor a
second answer for the rest of the first: so whatever fails in the middle ends the connection, and nothing is added.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator

import msgspec
from aiohttp import web

from ..errors import RegistaError

log = logging.getLogger("regista.api")

#: Seconds that a client may take to read what is ready for it, before its connection is cut.
SLOW_S = 30.0
#: Bytes that are written at a time: what a reader must take in the seconds that it is given.
_SLICE = 128 * 1024


@contextlib.contextmanager
def abort_on_failure(request: web.BaseRequest) -> Iterator[None]:
    """What fails in here cuts the connection; nothing of it goes further up, but for being cancelled."""
    try:
        yield
    except ConnectionError:
        pass  # it went away
    except (TimeoutError, RegistaError) as error:
        words = str(error) or "it reads too slowly"
        log.warning("%s %s: cut: %s", request.method, request.path, words, extra={"action": "answer_cut"})
        abort_connection(request)
    except Exception:
        log.exception("%s %s: cut", request.method, request.path, extra={"action": "request_failed"})
        abort_connection(request)


def abort_connection(request: web.BaseRequest) -> None:
    """End the connection now, whatever is on its way."""
    if request.transport is not None:
        request.transport.abort()


async def write(response: web.StreamResponse, content: bytes, slow_s: float) -> None:
    """Write this, however long it is, to a reader that takes some of it every `slow_s` seconds; TimeoutError."""
    view = memoryview(content)
    for start in range(0, len(view), _SLICE):
        async with asyncio.timeout(slow_s):
            await response.write(view[start : start + _SLICE])


def json_line(document: object) -> bytes:
    """One line of JSON."""
    return msgspec.json.encode(document) + b"\n"


async def stream_lines(request: web.Request, lines: AsyncIterator[bytes]) -> web.StreamResponse:
    """An answer that is made while it is read. A reader that stops reading is disconnected."""
    headers = {"Content-Type": "application/jsonl; charset=utf-8", "X-Accel-Buffering": "no"}
    response = web.StreamResponse(headers=headers)
    try:
        first = await anext(lines, b"")  # what fails before the first byte is an answer of its own
        with abort_on_failure(request):
            await response.prepare(request)
            await write(response, first, SLOW_S)
            async for chunk in lines:
                await write(response, chunk, SLOW_S)
            await response.write_eof()
    finally:
        await lines.aclose()  # type: ignore[attr-defined]  # an async generator
    return response
