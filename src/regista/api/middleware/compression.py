"""Packed answers: zstd, else gzip, as the asker likes; only what is large enough and packs well, and no streams."""

import asyncio

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler

from ..encodings import PACKERS, chosen

#: Smaller answers fit into one packet anyway.
MIN_BYTES = 1024
#: Larger ones are packed in a thread: the loop has others to serve.
_IN_THREAD_BYTES = 64 * 1024
_TEXTS = ("text/", "application/json", "application/problem+json", "application/x-ndjson", "image/svg+xml")
#: Text that is sent as it comes, and must not wait for its end.
_STREAMS = ("text/event-stream",)


@web.middleware
async def compression(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Pack the answer where that is wanted and worth it."""
    response = await handler(request)
    # Streams are not of this class; what was sent already has its headers.
    if not isinstance(response, web.Response) or response.prepared:
        return response
    body = response.body
    if not isinstance(body, bytes) or len(body) < MIN_BYTES or not _packs_well(response):
        return response
    _vary(response)
    coding = chosen(request.headers.get(hdrs.ACCEPT_ENCODING, ""))
    if coding is not None:
        pack = PACKERS[coding]
        large = len(body) >= _IN_THREAD_BYTES
        packed = await asyncio.to_thread(pack, body) if large else pack(body)
        if len(packed) < len(body):
            response.body = packed
            response.headers[hdrs.CONTENT_ENCODING] = coding
    return response


def _packs_well(response: web.Response) -> bool:
    kind = response.content_type
    return (
        kind.startswith(_TEXTS)
        and kind not in _STREAMS
        and hdrs.CONTENT_ENCODING not in response.headers
        and hdrs.CONTENT_RANGE not in response.headers
    )


def _vary(response: web.Response) -> None:
    """Caches must not hand it to somebody who cannot read it."""
    before = response.headers.get(hdrs.VARY)
    response.headers[hdrs.VARY] = f"{before}, {hdrs.ACCEPT_ENCODING}" if before else hdrs.ACCEPT_ENCODING
