"""Encodings: how bodies are packed. zstd where there is a module for it (`regista[zstd]`, or Python 3.14), and gzip."""

import gzip
import importlib
import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any

Pack = Callable[[bytes], bytes]

#: On JSON like ours the first level packs nearly as well as the sixth, in a fifth of the time.
_ZSTD_LEVEL = 1
_GZIP_LEVEL = 1


#: A packed body may ask for a window of so many bits (8 MiB), as for the web; zstd itself would allow 128 MiB.
_ZSTD_WINDOW_LOG = 23


class Broken(Exception):
    """The bytes are not what their coding says."""


class TooLarge(Exception):
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
PACKERS: dict[str, Pack] = {**({"zstd": _pack_zstd} if _ZSTD is not None else {}), "gzip": _pack_gzip}
#: What a request's body may be packed as.
READABLE = ("identity", "gzip", "deflate", *(["zstd"] if _ZSTD is not None else []))


def unpack(body: bytes, coding: str, most: int) -> bytes:
    """The body of a request, of at most `most` bytes: nothing beyond is ever unpacked. Raises Broken or TooLarge."""
    if coding == "identity" or not body:
        return body
    reader = _reader(body, coding)
    try:
        unpacked: bytes = reader.decompress(body, most + 1)
    except _WRONG as error:
        raise Broken(str(error)) from error
    if len(unpacked) > most:
        raise TooLarge
    if not reader.eof or reader.unused_data:
        raise Broken("it ends too early" if not reader.eof else "something comes after its end")
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
def chosen(accept: str) -> str | None:
    """What an Accept-Encoding makes of our answers: the one that it likes most, ours first among equals.

    None is to leave them as they are: nothing of ours is wanted, or nothing as much as that.
    """
    likes = _likes(accept)
    anything = likes.get("*", 0.0)
    liked = {
        name: likes.get("x-gzip" if name == "gzip" and name not in likes else name, anything)
        for name in PACKERS
    }
    best = max(PACKERS, key=lambda name: liked[name])  # the first of several is ours
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
