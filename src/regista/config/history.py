"""Settings of search and of what history keeps."""

from typing import Any

import msgspec

from ..model.attributes import WrongAttribute, declared_types
from .settings import Kind, Setting, count, seconds


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


HISTORY_SETTINGS = (
    Setting(
        "REGISTA_SEARCH_ATTRIBUTES",
        "search_attributes",
        Kind(
            'a JSON object of names and types, like {"AssetId": "Keyword", "Size": "Int"}', _declares, _object
        ),
    ),
    Setting("REGISTA_HISTORY_MAX_AGE_SECONDS", "history_max_age_s", seconds(zero=True)),
    Setting("REGISTA_HISTORY_MAX_JOBS", "history_max_jobs", count(0)),
)
