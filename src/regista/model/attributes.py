"""Search attributes: what a job can be found by, each of a declared type."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from difflib import get_close_matches
from enum import StrEnum
from math import isfinite
from typing import Any


class AttributeType(StrEnum):
    """What values an attribute takes, and so what can be asked about it."""

    #: Compared whole.
    KEYWORD = "Keyword"
    #: Compared word by word.
    TEXT = "Text"
    INT = "Int"
    DOUBLE = "Double"
    BOOL = "Bool"
    DATETIME = "Datetime"
    KEYWORD_LIST = "KeywordList"


#: Name → type. What is not in it was not declared.
Attributes = Mapping[str, AttributeType]

#: Names of every job's own facts; no attribute may be called so.
RESERVED = frozenset(
    {
        *(
            "BlueprintName",
            "WorkflowType",
            "JobId",
            "WorkflowId",
            "ExecutionStatus",
            "StartTime",
            "CloseTime",
        ),
        *("ExecutionDuration", "ClientName", "State", "ParentId", "ErrorCode"),
    }
)
#: Characters of a keyword, and bytes of a text.
MAX_KEYWORD, MAX_TEXT = 255, 2048
#: Items of a list, and attributes of a job.
MAX_ITEMS, MAX_ATTRIBUTES = 100, 100

#: Other words for a type.
_ALSO = {"Long": AttributeType.INT}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}", re.ASCII)
_UNWRITABLE = re.compile("[\0\ud800-\udfff]")
_EXPECTED = {
    AttributeType.KEYWORD: f"a str of at most {MAX_KEYWORD} characters",
    AttributeType.TEXT: f"a str of at most {MAX_TEXT} bytes",
    AttributeType.INT: "a 64-bit int",
    AttributeType.DOUBLE: "a finite number",
    AttributeType.BOOL: "true or false",
    AttributeType.DATETIME: "a time with a zone, like 2026-01-31T12:00:00Z",
    AttributeType.KEYWORD_LIST: f"a list of at most {MAX_ITEMS} str, each of at most {MAX_KEYWORD} characters",
}


class WrongAttribute(ValueError):
    """A value that does not fit its declaration, or a name that has none; its words say what was expected."""


def declared_types(declared: Mapping[str, str]) -> dict[str, AttributeType]:
    """The types that a declaration names; WrongAttribute says which line of it is wrong."""
    return {name: _declared_type(name, word) for name, word in declared.items()}


def _declared_type(name: object, word: object) -> AttributeType:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise WrongAttribute(
            f"search attribute {name!r}: expected a name of letters, digits, _ . and -, at most 64 of them"
        )
    if name in RESERVED:
        raise WrongAttribute(f"search attribute {name!r}: every job has that by itself; take another name")
    kind = _ALSO.get(str(word), word)
    if kind not in list(AttributeType):
        near = get_close_matches(str(word), AttributeType, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise WrongAttribute(
            f"search attribute {name!r}: expected one of {', '.join(AttributeType)}, got {word!r}{hint}"
        )
    return AttributeType(str(kind))


def checked(declared: Attributes, given: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes as they are kept, or WrongAttribute. Where nothing at all is declared, anything goes."""
    if not given or not declared:
        return dict(given)
    if len(given) > MAX_ATTRIBUTES:
        raise WrongAttribute(f"expected at most {MAX_ATTRIBUTES} search attributes, got {len(given)}")
    return {name: _checked(declared, name, value) for name, value in given.items()}


def _checked(declared: Attributes, name: str, value: Any) -> Any:
    kind = declared.get(name)
    if kind is None:
        near = get_close_matches(str(name), declared, n=1)
        hint = f"did you mean {near[0]}?" if near else f"declared are {', '.join(sorted(declared))}"
        raise WrongAttribute(f"search attribute {str(name)[:100]!r} is not declared; {hint}")
    kept = _KEEP[kind](value)
    if kept is None:
        got = f"{type(value).__name__} {str(value)[:60]!r}"
        raise WrongAttribute(f"search attribute {name!r}: expected {_EXPECTED[kind]} ({kind}), got {got}")
    return kept


def canonical_time(moment: datetime) -> str:
    """The one text of an instant: in UTC, to the microsecond, so that texts compare as instants do."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")


def _keyword(value: Any) -> str | None:
    return value if isinstance(value, str) and len(value) <= MAX_KEYWORD and _writable(value) else None


def _text(value: Any) -> str | None:
    fits = isinstance(value, str) and _writable(value) and len(value.encode()) <= MAX_TEXT
    return value if fits else None


def _writable(text: str) -> bool:
    """Every database keeps it: no NUL, and no half of a surrogate pair."""
    return not _UNWRITABLE.search(text)


def _int(value: Any) -> int | None:
    whole = isinstance(value, int) and not isinstance(value, bool) and -(1 << 63) <= value < 1 << 63
    return value if whole else None


def _double(value: Any) -> float | int | None:
    if isinstance(value, float):
        return value if isfinite(value) else None
    return _int(value)


def _bool(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _datetime(value: Any) -> datetime | None:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    aware = isinstance(value, datetime) and value.utcoffset() is not None
    try:
        return value.astimezone(UTC) if aware else None
    except OverflowError:  # it is in the year 1 or 9999, and not in UTC
        return None


def _keyword_list(value: Any) -> list[str] | None:
    if not isinstance(value, list | tuple) or len(value) > MAX_ITEMS:
        return None
    return None if any(_keyword(item) is None for item in value) else list(value)


_KEEP: dict[AttributeType, Callable[[Any], Any]] = {
    AttributeType.KEYWORD: _keyword,
    AttributeType.TEXT: _text,
    AttributeType.INT: _int,
    AttributeType.DOUBLE: _double,
    AttributeType.BOOL: _bool,
    AttributeType.DATETIME: _datetime,
    AttributeType.KEYWORD_LIST: _keyword_list,
}
