"""Bodies: bytes in, a checked record out, and a clear word about whatever is wrong with them."""

import asyncio
import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, TypeVar

import msgspec
from aiohttp import hdrs, web
from aiohttp.http_exceptions import HttpProcessingError
from msgspec import inspect

from ..serialization import safe_text
from .compression import REQUEST_ENCODINGS, BodyTooLarge, CorruptBody, decompress
from .problems import Problem
from .stage import STAGE

T = TypeVar("T")

#: Members that the wire names and we do not serve yet: said so instead of a guess at a typing mistake.
_NOT_YET = {"concurrency_key": "is not supported by this version"}

#: What reading a body may raise: chunks that are none, or nobody there any more.
UNREADABLE = (HttpProcessingError, web.RequestPayloadError, ConnectionError)

_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


async def read(request: web.Request, most: int | None = None) -> bytes:
    """The whole body, decompressed.

    413 when it is larger than `most` (by default the setting), before it is read if its headers say so; 408 when it
    does not come in time.
    """
    config = request.app[STAGE].config
    limit = config.max_body_bytes if most is None else min(most, config.max_body_bytes)
    if (request.content_length or 0) > limit:
        raise too_large(limit)
    packed = hdrs.CONTENT_ENCODING in request.headers
    return await (_read_packed if packed else _read)(request, limit, config.body_timeout_s)


async def _read(request: web.Request, limit: int, timeout_s: float) -> bytes:
    body = bytearray()
    try:
        async with asyncio.timeout(timeout_s):
            async for chunk in request.content.iter_any():
                body += chunk
                if len(body) > limit:
                    raise too_large(limit)
    except TimeoutError:
        detail = f"expected the whole body within {timeout_s:g} s, and it did not come"
        raise Problem(408, "body_timeout", detail, headers={"Connection": "close"}) from None
    except UNREADABLE as error:
        raise unreadable(error) from None
    return bytes(body)


async def _read_packed(request: web.Request, limit: int, timeout_s: float) -> bytes:
    """Compressed in one way that we can undo. Twice compressed is how bombs are built, and no client needs it."""
    coding = ", ".join(request.headers.getall("Content-Encoding")).strip().lower()
    if coding not in REQUEST_ENCODINGS:
        raise unsupported_encoding(coding)
    body = await _read(request, limit, timeout_s)
    if len(request.match_info.apps) > 1:
        return body  # mounted in an application whose server decompresses requests by itself
    try:
        return await asyncio.to_thread(decompress, body, coding, limit)
    except BodyTooLarge:
        raise too_large(limit) from None
    except CorruptBody as error:
        detail = f"the body is not {coding}, as its header says: {safe_text(error)[:200]}"
        raise Problem(400, "malformed_body", detail, headers={"Connection": "close"}) from None


def unsupported_encoding(coding: str) -> Problem:
    """The refusal of a body that is packed in another way than those that we can undo."""
    known = ", ".join(REQUEST_ENCODINGS)
    return Problem(
        415,
        "unsupported_encoding",
        f"expected a body in one of {known}, got {safe_text(coding)[:100]!r}",
        headers={"Accept-Encoding": known, "Connection": "close"},
    )


def unreadable(error: Exception) -> Problem:
    """The refusal of a body that does not come to its end as its headers say."""
    if isinstance(error, ConnectionError):
        return Problem(400, "client_disconnected", "the connection was closed before the end of the body")
    why = getattr(error, "message", "") or str(error) or "it is not what its headers say"
    return Problem(400, "malformed_body", f"the body cannot be read: {why}", headers={"Connection": "close"})


def too_large(most: int) -> Problem:
    """The refusal of a body."""
    detail = f"expected a body of at most {most} bytes, got more"
    return Problem(413, "body_too_large", detail, headers={"Connection": "close"})


async def take(request: web.Request, shape: type[T], most: int | None = None) -> T:
    """The body as a record; `most` as in `read`."""
    return parse(await read(request, most), shape)


async def take_optional(request: web.Request, shape: type[T]) -> T:
    """The same, where no body at all means a record of defaults."""
    body = await read(request)
    return parse(body, shape) if body else shape()


def parse(body: bytes | msgspec.Raw, shape: type[T]) -> T:
    """JSON as a record of that shape, or the 400 that says what is wrong."""
    decoder = _decoders.get(shape)
    if decoder is None:
        decoder = _decoders[shape] = msgspec.json.Decoder(shape)
    if not body:
        raise Problem(400, "malformed_json", "expected a JSON body, got none")
    try:
        record: T = decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _invalid(str(error), shape) from None
    except RecursionError:
        raise Problem(400, "malformed_json", "expected data that is nested less deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Problem(400, "malformed_json", f"expected JSON in UTF-8: {error}") from None
    return record


def _invalid(message: str, shape: type[Any]) -> Problem:
    """Msgspec's word, and for an unknown member the nearest known one."""
    unknown = re.match(r"Object contains unknown field `(.*?)`", message, re.DOTALL)
    if unknown is None:
        return Problem(400, "invalid_body", explain_validation_error(message, shape))
    name = unknown[1]
    if name in _NOT_YET:
        return Problem(400, "unknown_member", f"{name} {_NOT_YET[name]}", member=name)
    known = list(getattr(shape, "__struct_fields__", ()))
    near = get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(known)}"
    return Problem(400, "unknown_member", f"unknown member {name[:100]!r}{hint}", member=name[:100])


_ENUM = re.compile(r"Invalid enum value (?P<got>.*?)(?: - at `\$\.?(?P<path>.*)`)?$", re.DOTALL)
_PATTERN = re.compile(r"Expected `str` matching regex .*?(?: - at `\$\.?(?P<path>.*)`)?$", re.DOTALL)
_STEP = re.compile(r"\[[^\]]*\]|[^.\[\]]+")
#: Characters of a wrong value that are repeated to whoever sent it.
_GOT = 100


def explain_validation_error(message: str, shape: Any) -> str:
    """The message for people; as it is where nothing better is known."""
    if found := _ENUM.match(message):
        choices = [choice for kind in _at(shape, found["path"]) for choice in _choices(kind)]
        got = found["got"][:_GOT]
        return _said(found["path"], f"one of {', '.join(choices)}, got {got}") if choices else message
    if found := _PATTERN.match(message):
        words = [told for kind in _at(shape, found["path"]) if (told := _description(kind))]
        return _said(found["path"], f"{words[0]}, got something else") if words else message
    return message


def _said(path: str | None, words: str) -> str:
    return f"{path}: expected {words}" if path else f"expected {words}"


def _at(shape: Any, path: str | None) -> list[inspect.Type]:
    """What may stand at that place of the shape."""
    found = _kinds(inspect.type_info(shape))
    for step in _STEP.findall(path or ""):
        found = [kind for each in found for below in _below(each, step) for kind in _kinds(below)]
    return found


def _kinds(kind: inspect.Type) -> list[inspect.Type]:
    return list(kind.types) if isinstance(kind, inspect.UnionType) else [kind]


def _below(kind: inspect.Type, step: str) -> Iterable[inspect.Type]:
    kind = kind.type if isinstance(kind, inspect.Metadata) else kind
    if isinstance(kind, inspect.StructType):
        return [field.type for field in kind.fields if field.encode_name == step]
    if isinstance(kind, inspect.DictType):
        return [kind.value_type]
    return [kind.item_type] if isinstance(kind, inspect.CollectionType) else []


def _choices(kind: inspect.Type) -> list[str]:
    kind = kind.type if isinstance(kind, inspect.Metadata) else kind
    if isinstance(kind, inspect.EnumType):
        return [str(each.value) for each in kind.cls]
    return [str(value) for value in kind.values] if isinstance(kind, inspect.LiteralType) else []


def _description(kind: inspect.Type) -> str:
    """What `Meta(description=…)` says of it."""
    told = kind.extra_json_schema if isinstance(kind, inspect.Metadata) else None
    words = (told or {}).get("description", "")
    return words if isinstance(words, str) else msgspec.json.encode(words).decode()
