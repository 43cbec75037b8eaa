"""Outgoing: results on their way to an orchestrator, and what is said in place of one that cannot go."""

import msgspec
from msgspec.structs import replace

from ..model import TaskFailure, TaskResult
from ..serialization import safe_text, to_storable
from ..wire import stream
from .voice import Crew, Voice

#: What a message needs around one frame, at most.
_ROUND_IT = 16

_decode_any = msgspec.msgpack.Decoder().decode


def frame_of(result: TaskResult, max_bytes: int) -> msgspec.Raw:
    """The frame; a result that cannot be written down is the function's mistake, and says so."""
    try:
        frame = stream.encode(stream.Result(result))
    except Exception as error:  # noqa: BLE001  # the user's own objects are asked for what is in them
        return frame_of(no_plain_data(result, error), max_bytes)
    if max_bytes and len(frame) + _ROUND_IT > max_bytes:
        return frame_of(too_large(result), 0)
    return msgspec.Raw(frame)


def readable(result: TaskResult) -> TaskResult:
    """The result, or what is said in place of one that can be written down and then not read."""
    try:
        stream.decode_up(stream.encode([stream.Result(result)]))
        to_storable(result.data, _decode_any, "data")
        to_storable(
            None if result.error is None else result.error.details, _decode_any, "the details of the error"
        )
    except Exception as error:  # noqa: BLE001  # as above
        return no_plain_data(result, error)
    return result


def no_plain_data(result: TaskResult, error: Exception) -> TaskResult:
    """What is said in place of a result that is not data."""
    return _instead(result, f"the result is no plain data: {safe_text(error)}")


def too_large(result: TaskResult) -> TaskResult:
    """What is said in place of a result that no message can carry."""
    return _instead(
        result, "the result is larger than this orchestrator takes; store it somewhere and return where"
    )


def not_taken(result: TaskResult, why: str) -> TaskResult:
    """What is said in place of a result that the orchestrator has sent back."""
    return _instead(result, f"the orchestrator does not take the result: {why}")


def _instead(result: TaskResult, message: str) -> TaskResult:
    return replace(result, status=None, data=None, error=TaskFailure("PERMANENT_ERROR", message))


def catch_up(crew: Crew, home: str, voice: Voice) -> None:
    """Say what may have gone unheard: how far tasks are, and how they went."""
    for one in crew.performer.performances():
        if one.home == home and one.said is not None:
            voice.progress(one, *one.said)
        if one.home == home and one.result is not None:
            voice.finished(one)
