"""Names: what a state or a blueprint may be called, and suggestions for mistyped names."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

#: Names travel in URLs, keys, file names and metric labels, so they stay plain.
_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


def name_problem(kind: str, name: object) -> str | None:
    """What is wrong with this name, or None."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return None
    return f"{kind}: expected 1 to 128 letters, digits or _ - . : got {name!r}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'x' or 'y'?` when something similar is known, else nothing."""
    close = get_close_matches(name, sorted(known), n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(repr(match) for match in close)}?" if close else ""
