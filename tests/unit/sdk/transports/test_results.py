"""Results on their way out."""

from datetime import datetime, timedelta, tzinfo
from typing import Any

import msgspec
import pytest

from regista.model import TaskFailure, TaskResult
from regista.sdk.transports.results import encode_result, readable
from regista.workers.protocol import frames


def result_of(data: Any = None, error: TaskFailure | None = None) -> TaskResult:
    return TaskResult(task_id="j_1_0-1", job_id="j", data=data, error=error)


def heard(frame: msgspec.Raw) -> TaskResult:
    [word] = frames.decode_from_worker(frames.encode([frame]))
    assert isinstance(word, frames.ResultFrame)
    return word.result


class Nowhere(tzinfo):
    """A zone that does not know its own time."""

    def utcoffset(self, when: datetime | None) -> timedelta:
        raise LookupError("not on this map")

    tzname = dst = None  # type: ignore[assignment]


def test_a_result_is_heard_as_it_was_said() -> None:
    assert heard(encode_result(result_of({"n": [1, 2]}), 1000)) == result_of({"n": [1, 2]})


@pytest.mark.parametrize(
    "data", [object(), {1: {2}, "x": object()}, "\udc80", 2**70, datetime(2026, 1, 1, tzinfo=Nowhere())]
)
def test_what_cannot_be_written_down_says_so_instead(data: Any) -> None:
    error = heard(encode_result(result_of(data), 0)).error
    assert error is not None
    assert (error.code, "no plain data" in error.message) == ("PERMANENT_ERROR", True)


@pytest.mark.parametrize("max_bytes", [1, 100, 10_000])
def test_what_is_too_large_says_so_instead_however_little_is_taken(max_bytes: int) -> None:
    error = heard(encode_result(result_of("x" * 20_000), max_bytes)).error
    assert error is not None
    assert "larger" in error.message


@pytest.mark.parametrize(
    "result",
    [result_of(msgspec.Raw(b"\xc1")), result_of(error=TaskFailure("X", "m", msgspec.Raw(b"\x01\x01")))],
)
def test_what_can_be_written_and_not_be_read_is_found(result: TaskResult) -> None:
    error = readable(result).error
    assert error is not None
    assert (error.code, "no plain data" in error.message) == ("PERMANENT_ERROR", True)


def test_what_can_be_read_stays_what_it_is() -> None:
    fine = result_of({"n": 1}, TaskFailure("X", "m", {"more": [1]}))
    assert readable(fine) is fine
