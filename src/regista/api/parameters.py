"""Parameters: what may stand in a query or a header, and how its text becomes a checked value."""

import math
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, Literal, TypeVar

from aiohttp import hdrs, web
from msgspec import Struct

from ..model import JobStatus
from ..schemas.pages import BadPageToken, decode_position
from .problems import Problem

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)


class Parameter(Struct, frozen=True, kw_only=True):
    """One parameter, as documents tell it."""

    name: str
    words: str
    schema: Mapping[str, Any]
    #: The setting that is its maximum.
    most: str | None = None
    where: Literal["query", "header"] = "query"


WAIT = Parameter(
    name="wait",
    words="Seconds to wait for the job to settle; cut at `REGISTA_MAX_WAIT_SECONDS`.",
    schema={"type": "number", "minimum": 0},
)


def page_limit(default: int) -> Parameter:
    """The parameter `limit` of an operation whose pages have `default` items unless the caller wants others."""
    return Parameter(
        name="limit",
        words="Items on a page, at most.",
        schema={"type": "integer", "minimum": 1, "default": default},
        most="max_page",
    )


LIMIT = page_limit(100)
NEXT = Parameter(
    name="next",
    words="The `next` of the page before.",
    schema={"type": "string"},
)
STATUS = Parameter(
    name="status",
    words="Only jobs of this status.",
    schema={"type": "string", "enum": [status.value for status in JobStatus]},
)
BLUEPRINT = Parameter(name="blueprint", words="Only jobs of this blueprint.", schema={"type": "string"})
KEY = Parameter(
    name="Idempotency-Key",
    where="header",
    words="As the member `idempotency_key`, which wins where both are given.",
    schema={"type": "string", "minLength": 1, "maxLength": 1000, "pattern": "^[!-~]+$"},
)


def bad(name: str, expected: str, got: str) -> Problem:
    """The refusal of a parameter."""
    detail = f"{name}: expected {expected}, got {got[:100]!r}"
    return Problem(400, "bad_parameter", detail, parameter=name)


def unknown(name: str, known: Sequence[str]) -> Problem:
    """The refusal of a parameter that the operation does not have; names the nearest that it has."""
    near = get_close_matches(name, known, n=1)
    hint = (
        f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}" if known else "it takes none"
    )
    return Problem(
        400, "unknown_parameter", f"unknown parameter {name[:100]!r}; {hint}", parameter=name[:100]
    )


def twice(name: str) -> Problem:
    """The refusal of a parameter that comes more than once: only one of them could count."""
    return Problem(400, "bad_parameter", f"{name}: expected it once, got it more than once", parameter=name)


def check_query(request: web.Request, known: Sequence[str]) -> None:
    """Refuse parameters that are not known, or come twice. Names that begin with `_` are ignored.

    A filter that is mistyped and ignored would be worse than none.
    """
    query = request.query
    for name in query:
        if name.startswith("_"):
            continue
        if name not in known:
            raise unknown(name, known)
        if len(query.getall(name)) > 1:
            raise twice(name)


def seconds(request: web.Request, name: str, most: float) -> float | None:
    """A length of time, cut at `most`; None when it is not given."""
    text = request.query.get(name)
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value >= 0:  # NaN is not, either
        raise bad(name, "seconds, 0 or more", text)
    return min(value, most)


def limit(request: web.Request, most: int, declared: Parameter = LIMIT) -> int:
    """How many items a page has at most, as the parameter was declared."""
    return whole(request, "limit", declared.schema["default"], 1, most)


def whole(request: web.Request, name: str, default: int, least: int = 0, most: int | None = None) -> int:
    """A whole number; more than `most` is refused, so that nobody takes a cut list for the whole."""
    text = request.query.get(name)
    if text is None:
        return default if most is None else min(default, most)
    if not (text.isascii() and text.isdigit() and len(text) < 19) or int(text) < least:
        raise bad(name, f"a whole number, {least} or more", text)
    if most is not None and int(text) > most:
        raise bad(name, f"at most {most}", text)
    return int(text)


def choice(request: web.Request, name: str, kind: type[E]) -> E | None:
    """One of the values of an enumeration; None when it is not given."""
    text = request.query.get(name)
    if text is None:
        return None
    try:
        return kind(text)
    except ValueError:
        raise bad(name, f"one of {', '.join(kind)}", text) from None


def place(request: web.Request, shape: type[T]) -> T | None:
    """Where the page before has ended; None for the first page."""
    text = request.query.get(NEXT.name)
    if not text:
        return None
    try:
        return decode_position(text, shape)
    except BadPageToken:
        raise bad(NEXT.name, "the `next` of an earlier page", text) from None


def idempotency_key(request: web.Request, told: str | None = None) -> str | None:
    """The key that a body tells, else the one that the header brings along."""
    key = request.headers.get(KEY.name)
    if key is None:
        return told
    if not re.fullmatch(r"[!-~]{1,1000}", key):
        raise bad(KEY.name, "1 to 1000 printable ASCII characters without blanks", ascii(key))
    return told or key


def token_in(request: web.Request, header: str) -> str:
    """The token in this header, else the one in `Authorization: Bearer`; empty without one."""
    token = request.headers.get(header, "")
    if token:
        return token
    kind, _, bearer = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    return bearer.strip() if kind.lower() == "bearer" else ""
