"""Streamed responses: they are sent to their end, or the connection is aborted.

The status of a response that has begun cannot be changed. A client must not take a part for the whole, nor a second
response for the rest of the first, so a failure in the middle ends the connection, and nothing is added.
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
#: Bytes of a slice.
_SLICE = 128 * 1024


@contextlib.contextmanager
def abort_on_failure(request: web.BaseRequest) -> Iterator[None]:
    """Abort the connection if the block raises. Only cancellation is passed on."""
    try:
        yield
    except ConnectionError:
        pass  # the client has disconnected
    except (TimeoutError, RegistaError) as error:
        reason = str(error) or "the client reads too slowly"
        fields = {"action": "answer_cut"}
        log.warning("aborted %s %s: %s", request.method, request.path, reason, extra=fields)
        abort_connection(request)
    except Exception:
        log.exception("aborted %s %s", request.method, request.path, extra={"action": "request_failed"})
        abort_connection(request)


def abort_connection(request: web.BaseRequest) -> None:
    """Close the connection now, whatever is being sent."""
    if request.transport is not None:
        request.transport.abort()


async def write(response: web.StreamResponse, content: bytes, slow_s: float) -> None:
    """Send bytes in slices; TimeoutError if the client takes longer than `slow_s` seconds for one of them."""
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
