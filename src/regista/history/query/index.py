"""Index: what is kept beside a job's row, so that a search need not read every row.

The keys of a value lead to jobs that may have it; whether one has is always asked of its row. So keys may be
coarse (long words are cut, big numbers rounded), and one that a job no longer has does no harm.
"""

import re
import struct
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

from ...model.attributes import MAX_KEYWORD, canonical_time

#: Names that can be asked for; what is called otherwise can only be shown.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}", re.ASCII)
_WORD = re.compile(r"\w+")


@lru_cache(maxsize=1024)
def askable(name: str) -> bool:
    """Whether jobs can be asked for by this name."""
    return _NAME.fullmatch(name) is not None


def words_in(text: str) -> set[str]:
    """The words of a text: runs of letters, digits and underscores, without regard to case."""
    return set(_WORD.findall(text.casefold()))


def stored(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes as a history keeps them: instants as their one text."""
    return {name: canonical_time(value) if _aware(value) else value for name, value in attributes.items()}


def _aware(value: Any) -> bool:
    return isinstance(value, datetime) and value.utcoffset() is not None


def text_index(attributes: Mapping[str, Any]) -> str:
    """Every word of every text, with its attribute's name, between blanks: so that one can be looked for."""
    found = (
        word_entry(name, word).strip()
        for name, value in attributes.items()
        if isinstance(value, str) and askable(name)
        for word in sorted(words_in(value))
    )
    line = " ".join(found)
    return f" {line} " if line else ""


def word_entry(name: str, word: str) -> str:
    """How a word of an attribute stands in `text_index`."""
    return f" {name}:{word} "


def keys_of(attributes: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The name and key of everything that a job can be led to by."""
    for name, value in attributes.items():
        if askable(name):
            values = value if isinstance(value, list | tuple) else (value,)
            for key in dict.fromkeys(map(key_of, values)):
                if key is not None:
                    yield name, key


def key_of(value: Any) -> str | None:
    """The key of a value; in the order of the values, but for those that share one. None where it has none."""
    if isinstance(value, str):
        return "s" + value[:MAX_KEYWORD]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        (bits,) = struct.unpack(">Q", struct.pack(">d", value + 0.0))
    except OverflowError:
        return None
    # Positive numbers are in the order of their bits; of negative ones all bits are turned round.
    return f"n{bits ^ ((1 << 64) - 1) if bits >> 63 else bits | 1 << 63:016x}"
