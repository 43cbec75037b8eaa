"""The kind of setting that declares search attributes."""

from typing import Any

import msgspec

from ..model.attributes import WrongAttribute, declared_types
from .settings import Kind


def _object(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from None


def _declares(value: Any) -> bool:
    try:
        declared_types(value)
    except (WrongAttribute, AttributeError, TypeError):
        return False
    return True


ATTRIBUTES = Kind(
    'a JSON object of names and types, like {"AssetId": "Keyword", "Size": "Int"}', _declares, _object
)
