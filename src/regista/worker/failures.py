"""Failures: what a function raised or said went wrong, as data."""

import traceback
from collections.abc import Sequence
from typing import Any

from ..errors import PayloadError, TaskError
from ..model import TaskFailure
from ..serialization import safe_text

#: The innermost calls of an unexpected exception that are told, and how much of their text.
_FRAMES = 5
_TRACE_CHARS = 2000


def failure_of(error: BaseException) -> TaskFailure:
    """An exception as data. One that says no kind is transient, and tells where it came from."""
    if isinstance(error, TaskError):
        return TaskFailure(safe_text(error.code), safe_text(error), error.details or None)
    if isinstance(error, PayloadError) and error.permanent:
        return TaskFailure("PERMANENT_ERROR", f"{error.code}: {safe_text(error)}")
    details = {"type": type(error).__qualname__, "traceback": _trace(error)}
    return TaskFailure("TRANSIENT_ERROR", f"{type(error).__name__}: {safe_text(error)}", details)


def _trace(error: BaseException) -> str:
    """The innermost calls, file and line."""
    frames: Sequence[traceback.FrameSummary] = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    lines = [f"{frame.filename}:{frame.lineno} in {frame.name}: {frame.line}" for frame in frames]
    return safe_text("\n".join(lines))[-_TRACE_CHARS:]


def said_failure(said: Any) -> TaskFailure | None:
    """The failure that a function returned: {"code", "message", "details"}, or just a message."""
    if not said:
        return None
    if isinstance(said, str):
        return TaskFailure("TRANSIENT_ERROR", said)
    if not isinstance(said, dict) or not all(
        isinstance(said.get(key, ""), str) for key in ("code", "message")
    ):
        raise ValueError(f"error: expected a str or a dict of code, message and details, got {said!r}")
    return TaskFailure(said.get("code") or "TRANSIENT_ERROR", said.get("message", ""), said.get("details"))
