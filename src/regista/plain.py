"""What may come in: plain data, in bounds, and words that can be written down.

Everything from outside (input, results, decisions, messages of exceptions) passes here once. After that
it is what a store can keep and read again, and nothing of it belongs to anybody else.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from .errors import NotPlain

T = TypeVar("T")

#: More than this in one piece belongs in a payload store, not in a job.
MAX_BYTES = 32 * 1024 * 1024
#: Longer messages are cut.
MAX_WORDS = 10_000

#: What is read back here must be readable anywhere: inside a larger record, and far down the stack of calls, which
#: count against the same limit of depth. So it is read once inside as many lists as that may come to.
_FAR_DOWN = 400
_LISTS = b"\x91" * _FAR_DOWN

_encode = msgspec.msgpack.Encoder().encode
_decode_any = msgspec.msgpack.Decoder().decode
_decode_dict = msgspec.msgpack.Decoder(dict[str, Any]).decode
_REFUSALS = (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)


def plain(value: object, decode: Callable[[bytes], T], what: str) -> T:
    """`value` as a store would give it back, checked against the type that `decode` reads; or NotPlain."""
    try:
        body = _encode(value)
        if len(body) <= MAX_BYTES:
            if len(body) > _FAR_DOWN:  # each level takes a byte at least
                _decode_any(_LISTS + body)
            return decode(body)
    except _REFUSALS as error:
        raise NotPlain(what, words(error)) from error
    raise NotPlain(what, f"{len(body):,} bytes are more than {MAX_BYTES:,}")


def plain_dict(value: dict[str, Any] | None, what: str) -> dict[str, Any]:
    """A dict with str keys and plain values; None is an empty one."""
    return plain(value, _decode_dict, what) if value else {}


def plain_text(value: object, what: str) -> str:
    """A str that can be written down."""
    if not isinstance(value, str):
        raise NotPlain(what, f"expected a str, got {type(value).__name__}")
    return words(value)


def words(thing: object) -> str:
    """What `thing` says, as text that every store and screen can take; never raises."""
    try:
        text = str(thing)
    except Exception:  # noqa: BLE001  # a user's `__str__`, and we are already telling of an error
        text = f"<a {type(thing).__name__} that cannot be printed>"
    return text.encode("utf-8", "backslashreplace").decode()[:MAX_WORDS]


class Escaped(RuntimeError):
    """User code raised something that would have stopped more than itself."""


def contained(func: Callable[..., T], *arguments: Any) -> T:
    """Call user code in a thread. Neither `sys.exit` nor a stray StopIteration gets out of it, nor what a library
    raises beside `Exception`, as a panic of Rust or a time limit of some.

    Nor does a KeyboardInterrupt: a real one comes to the main thread alone.
    """
    try:
        return func(*arguments)
    except Exception as error:
        if isinstance(error, StopIteration):
            raise _escaped(error) from error
        raise
    except BaseException as error:
        raise _escaped(error) from error


async def contained_async(call: Awaitable[T]) -> T:
    """Await user code in a task of its own. A cancellation that nobody asked for is an error like any other."""
    try:
        return await call
    except (
        Exception,
        KeyboardInterrupt,
        GeneratorExit,
    ):  # an error, a real one, and the end of this coroutine
        raise
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise Escaped("CancelledError, though nobody cancelled it") from error
    except BaseException as error:
        raise _escaped(error) from error


def _escaped(error: BaseException) -> Escaped:
    return Escaped(f"{type(error).__name__}: {words(error)}")
