"""Packed answers: zstd, else gzip, as the asker likes; only what is large enough and packs well, and no streams."""

import asyncio
from typing import TypeGuard

from aiohttp import hdrs, web

from ..encodings import PACKERS, chosen

#: Smaller answers fit into one packet anyway.
MIN_BYTES = 1024
#: Larger ones are packed in a thread: the loop has others to serve.
_IN_THREAD_BYTES = 64 * 1024
_TEXTS = ("text/", "application/json", "application/problem+json", "application/x-ndjson", "image/svg+xml")
#: Text that is sent as it comes, and must not wait for its end.
_STREAMS = ("text/event-stream",)


def is_large(response: web.StreamResponse) -> TypeGuard[web.Response]:
    """Worth a thought. Streams have no body to look at; what was sent already has its headers."""
    body = getattr(response, "body", None)
    return isinstance(body, bytes) and len(body) >= MIN_BYTES and not response.prepared


async def pack(request: web.Request, response: web.Response) -> None:
    """Pack an answer that is large, where that is wanted and worth it."""
    body = response.body
    if not isinstance(body, bytes) or not _packs_well(response):
        return
    _vary(response)
    coding = chosen(request.headers.get(hdrs.ACCEPT_ENCODING, ""))
    if coding is None:
        return
    packer = PACKERS[coding]
    packed = await asyncio.to_thread(packer, body) if len(body) >= _IN_THREAD_BYTES else packer(body)
    if len(packed) < len(body):
        response.body = packed
        response.headers[hdrs.CONTENT_ENCODING] = coding


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
