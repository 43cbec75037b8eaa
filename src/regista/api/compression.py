"""Compression: zstd where there is a module for it (`regista[zstd]`, or Python 3.14), and gzip, in both directions."""

import asyncio
import gzip
import importlib
import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeGuard

from aiohttp import hdrs, web

Pack = Callable[[bytes], bytes]

#: On JSON like ours the first level packs nearly as well as the sixth, in a fifth of the time.
_ZSTD_LEVEL = 1
_GZIP_LEVEL = 1


#: Smaller responses fit into one packet anyway.
MIN_BYTES = 1024
#: Larger ones are compressed in a thread, so that the loop can serve others.
_IN_THREAD_BYTES = 64 * 1024
_TEXTS = ("text/", "application/json", "application/problem+json", "application/x-ndjson", "image/svg+xml")
#: Text that is sent as it comes, and must not wait for its end.
_STREAMS = ("text/event-stream",)

#: A packed body may ask for a window of so many bits (8 MiB), as for the web; zstd itself would allow 128 MiB.
_ZSTD_WINDOW_LOG = 23


class CorruptBody(Exception):
    """The bytes are not what their coding says."""


class BodyTooLarge(Exception):
    """Unpacked it would be more than is taken."""


def _find_zstd() -> Any:
    for name in ("compression.zstd", "backports.zstd"):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError:
            continue
    return None


_ZSTD = _find_zstd()
#: What the libraries raise for bytes that are wrong. Anything else is our own trouble.
_WRONG: tuple[type[Exception], ...] = (zlib.error, *(() if _ZSTD is None else (_ZSTD.ZstdError,)))


def _pack_zstd(body: bytes) -> bytes:
    return bytes(_ZSTD.compress(body, _ZSTD_LEVEL))


def _pack_gzip(body: bytes) -> bytes:
    return gzip.compress(body, _GZIP_LEVEL, mtime=0)


#: Name → how it is done, the best first.
COMPRESSORS: dict[str, Pack] = {**({"zstd": _pack_zstd} if _ZSTD is not None else {}), "gzip": _pack_gzip}
#: What a request's body may be packed as.
REQUEST_ENCODINGS = ("identity", "gzip", "deflate", *(["zstd"] if _ZSTD is not None else []))


def decompress(body: bytes, coding: str, most: int) -> bytes:
    """The body of a request, of at most `most` bytes: nothing beyond is ever unpacked. Raises CorruptBody or BodyTooLarge."""
    if coding == "identity" or not body:
        return body
    reader = _reader(body, coding)
    try:
        unpacked: bytes = reader.decompress(body, most + 1)
    except _WRONG as error:
        raise CorruptBody(str(error)) from error
    if len(unpacked) > most:
        raise BodyTooLarge
    if not reader.eof or reader.unused_data:
        raise CorruptBody("it ends too early" if not reader.eof else "something comes after its end")
    return unpacked


def _reader(body: bytes, coding: str) -> Any:
    if coding == "gzip":
        return zlib.decompressobj(31)
    if coding == "deflate":
        # Two formats go by this name; the one that the standard means begins like this.
        return zlib.decompressobj(15 if body[0] & 0x0F == 8 else -15)
    options = {_ZSTD.DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG}
    return _ZSTD.ZstdDecompressor(options=options)


@lru_cache(maxsize=256)
def choose_encoding(accept: str) -> str | None:
    """What an Accept-Encoding makes of our answers: the one that it likes most, ours first among equals.

    None is to leave them as they are: nothing of ours is wanted, or nothing as much as that.
    """
    likes = _likes(accept)
    anything = likes.get("*", 0.0)
    liked = {
        name: likes.get("x-gzip" if name == "gzip" and name not in likes else name, anything)
        for name in COMPRESSORS
    }
    best = max(COMPRESSORS, key=lambda name: liked[name])  # the first of several is ours
    plain = likes.get("identity", anything if "*" in likes and anything == 0.0 else 0.0)
    return best if liked[best] > 0 and liked[best] >= plain else None


def _likes(accept: str) -> dict[str, float]:
    """Coding → quality. A quality that is none counts as no word about that coding."""
    likes: dict[str, float] = {}
    for part in accept.lower().split(","):
        name, *parameters = (word.strip() for word in part.split(";"))
        quality = 1.0
        for parameter in parameters:
            key, _, value = parameter.partition("=")
            if key.strip() == "q":
                quality = _quality(value.strip())
        if name:
            likes[name] = quality
    return likes


def _quality(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if 0.0 <= value <= 1.0 else 0.0


def is_compressible(response: web.StreamResponse) -> TypeGuard[web.Response]:
    """The response is large enough. Streams have no body; what was sent already has its headers."""
    body = getattr(response, "body", None)
    return isinstance(body, bytes) and len(body) >= MIN_BYTES and not response.prepared


async def compress_response(request: web.Request, response: web.Response) -> None:
    """Compress a large response if the client accepts that and it becomes smaller."""
    body = response.body
    if not isinstance(body, bytes) or not _packs_well(response):
        return
    _vary(response)
    encoding = choose_encoding(request.headers.get(hdrs.ACCEPT_ENCODING, ""))
    if encoding is None:
        return
    compress = COMPRESSORS[encoding]
    packed = await asyncio.to_thread(compress, body) if len(body) >= _IN_THREAD_BYTES else compress(body)
    if len(packed) < len(body):
        response.body = packed
        response.headers[hdrs.CONTENT_ENCODING] = encoding


def _packs_well(response: web.Response) -> bool:
    kind = response.content_type
    return (
        kind.startswith(_TEXTS)
        and kind not in _STREAMS
        and hdrs.CONTENT_ENCODING not in response.headers
        and hdrs.CONTENT_RANGE not in response.headers
    )


def _vary(response: web.Response) -> None:
    """Caches must not give it to a client that cannot read it."""
    before = response.headers.get(hdrs.VARY)
    response.headers[hdrs.VARY] = f"{before}, {hdrs.ACCEPT_ENCODING}" if before else hdrs.ACCEPT_ENCODING
