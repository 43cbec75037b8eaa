"""Wording: what a validator says about a value, in words that help: the choices, or what the pattern is for."""

import re
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import inspect

_ENUM = re.compile(r"Invalid enum value (?P<got>.*?)(?: - at `\$\.?(?P<path>.*)`)?$", re.DOTALL)
_PATTERN = re.compile(r"Expected `str` matching regex .*?(?: - at `\$\.?(?P<path>.*)`)?$", re.DOTALL)
_STEP = re.compile(r"\[[^\]]*\]|[^.\[\]]+")
#: Characters of a wrong value that are repeated to whoever sent it.
_GOT = 100


def reworded(message: str, shape: Any) -> str:
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
