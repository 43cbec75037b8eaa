"""Removes job data from exceptions and texts before they are logged. The owner of a job finds the full text in the job."""

from collections.abc import Iterator
from typing import Any

#: Replaces every hidden value.
HIDDEN = "***"
#: Shorter values occur in every text and reveal nothing.
_MIN_CHARS = 4
#: At most this many values of a job are looked for.
_MAX_VALUES = 2000
#: Length of the chain of causes that is kept.
_MAX_CAUSES = 5


def redacted_exception(error: BaseException, *data: Any) -> BaseException:
    """A copy of the error, with its traceback and causes, whose message shows no value of `data`.

    Its class is a new one of the same name: the message of an existing exception cannot be changed.
    """
    values = sorted({*_values_in(data)}, key=len, reverse=True)  # the longest first: it may contain others
    return _copy_without(error, values, _MAX_CAUSES)


def redact_text(text: str, values: list[str]) -> str:
    """The text with every value replaced."""
    for value in values:
        if value in text:
            text = text.replace(value, HIDDEN)
    return text


def _copy_without(error: BaseException, values: list[str], causes: int) -> BaseException:
    kind = type(error)
    try:
        message = str(error)
    except Exception:  # noqa: BLE001  # a user's `__str__` failed; the error itself must still be shown
        message = "(its message cannot be printed)"
    made: BaseException = type(kind.__name__, (Exception,), {"__module__": kind.__module__})(
        redact_text(message, values)
    )
    made.__traceback__ = error.__traceback__
    if causes > 0:
        if error.__cause__ is not None:
            made.__cause__ = _copy_without(error.__cause__, values, causes - 1)
        elif error.__context__ is not None and not error.__suppress_context__:
            made.__context__ = _copy_without(error.__context__, values, causes - 1)
    return made


def _values_in(data: tuple[Any, ...]) -> Iterator[str]:
    """Every text and number in the data, as `str` and as `repr` write it."""
    waiting, seen = list(data), 0
    while waiting and seen < _MAX_VALUES:
        one = waiting.pop()
        seen += 1
        if isinstance(one, dict):
            waiting.extend(one.values())
        elif isinstance(one, list | tuple):
            waiting.extend(one)
        elif isinstance(one, str | int | float | bytes) and not isinstance(one, bool):
            text = one.decode(errors="replace") if isinstance(one, bytes) else str(one)
            if len(text) >= _MIN_CHARS:
                yield text
                yield repr(text)[1:-1]
