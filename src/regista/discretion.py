"""Discretion: an error can be logged without what a job carried. Whose job it is finds the full words in the job."""

from collections.abc import Iterator
from typing import Any

#: What stands where something was hidden.
HIDDEN = "***"
#: Shorter values say nothing, and stand in every text.
_SHORTEST = 4
#: Looked for in an error's words at most; a job may hold a million of them.
_MOST_VALUES = 2000
#: Causes of causes that are shown.
_DEEPEST = 5


def without(error: BaseException, *carried: Any) -> BaseException:
    """The same error with the same trace, whose words show nothing of what was `carried`.

    Its class is another one of the same name, since an exception's own words cannot be changed.
    """
    values = sorted({*_values(carried)}, key=len, reverse=True)  # the longest first: it may contain others
    return _like(error, values, _DEEPEST)


def hide(text: str, values: list[str]) -> str:
    """The text with every value hidden."""
    for value in values:
        if value in text:
            text = text.replace(value, HIDDEN)
    return text


def _like(error: BaseException, values: list[str], deep: int) -> BaseException:
    kind = type(error)
    try:
        words = str(error)
    except Exception:  # noqa: BLE001  # an error that cannot even be written is still one
        words = "(its words cannot be written)"
    made: BaseException = type(kind.__name__, (Exception,), {"__module__": kind.__module__})(
        hide(words, values)
    )
    made.__traceback__ = error.__traceback__
    if deep > 0:
        if error.__cause__ is not None:
            made.__cause__ = _like(error.__cause__, values, deep - 1)
        elif error.__context__ is not None and not error.__suppress_context__:
            made.__context__ = _like(error.__context__, values, deep - 1)
    return made


def _values(carried: Any) -> Iterator[str]:
    """Every text and number in there, as it would appear in words, and as `repr` writes it."""
    waiting, seen = list(carried), 0
    while waiting and seen < _MOST_VALUES:
        one = waiting.pop()
        seen += 1
        if isinstance(one, dict):
            waiting.extend(one.values())
        elif isinstance(one, list | tuple):
            waiting.extend(one)
        elif isinstance(one, str | int | float | bytes) and not isinstance(one, bool):
            text = one.decode(errors="replace") if isinstance(one, bytes) else str(one)
            if len(text) >= _SHORTEST:
                yield text
                yield repr(text)[1:-1]
