"""Helpers for asyncio: waiting with a timeout, pauses between tries, a thread for blocking calls, and calls of user code."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from .errors import StorageUnavailable
from .serialization import safe_text

T = TypeVar("T")

_log = logging.getLogger("regista")

#: Seconds before the second try to start a part, and at most before each further one.
FIRST_START_PAUSE_S, LAST_START_PAUSE_S = 0.1, 2.0


def event_loop_class() -> "type[asyncio.AbstractEventLoop] | None":
    """Uvloop's loop, where it is installed; None stands for Python's own."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.Loop


class Backoff:
    """Pauses between tries: doubled from the first to the last."""

    def __init__(self, first_s: float, last_s: float) -> None:
        self._first_s = first_s
        self._last_s = last_s
        #: Pauses since the last reset.
        self.failures = 0

    def next_s(self) -> float:
        """Seconds to wait before the next try."""
        pause_s = self._first_s * 2.0 ** min(self.failures, 60)
        self.failures += 1
        return min(self._last_s, pause_s)

    def reset(self) -> None:
        """A try has succeeded."""
        self.failures = 0


async def wait_for_event(event: asyncio.Event, timeout_s: float) -> bool:
    """Whether the event was set in time."""
    try:
        async with asyncio.timeout(timeout_s):
            return await event.wait()
    except TimeoutError:
        return False


async def wait_until_available(start: Callable[[], Awaitable[None]], wait_s: float) -> None:
    """Start a part; while its server cannot be reached, try again for `wait_s`, and log that once.

    Any other error (credentials, a version, a right) is raised at once, and StorageUnavailable when the time is up. A
    part whose `start` fails must have left nothing open.
    """
    loop, backoff = asyncio.get_running_loop(), Backoff(FIRST_START_PAUSE_S, LAST_START_PAUSE_S)
    give_up = loop.time() + wait_s
    while True:
        try:
            await start()
            break
        except StorageUnavailable as error:
            left_s = give_up - loop.time()
            if left_s <= 0:
                raise
            if not backoff.failures:
                fields = {"action": "store_awaited"}
                words = "%s; waiting for it, %g s at most (REGISTA_STORE_WAIT_SECONDS)"
                _log.warning(words, error, wait_s, extra=fields)
        await asyncio.sleep(min(backoff.next_s(), left_s))
    if backoff.failures:
        _log.warning("it is reachable; going on", extra={"action": "store_came"})


async def wait_or_timeout(waiter: "asyncio.Future[None]", timeout_s: float | None) -> None:
    """Return when the waiter is resolved or the time is up. The waiter is done afterwards in both cases.

    The waiter must belong to the caller alone: another task that awaits it would take the timeout for an answer.
    This costs one timer, where `asyncio.wait` needs a second future and a set for each wait.
    """
    if timeout_s is None:
        await waiter
        return
    timer = asyncio.get_running_loop().call_later(timeout_s, resolve, waiter)
    try:
        await waiter
    finally:
        timer.cancel()


def resolve(waiter: "asyncio.Future[None]") -> None:
    """Complete the waiter. A second call does nothing."""
    if not waiter.done():
        waiter.set_result(None)


class BackgroundTasks:
    """Tasks that nothing waits for: kept until they end, logged when they fail, cancelled by `stop`.

    Errors in `ignored` are not logged: they are logged where they come from.
    """

    def __init__(self, log: logging.Logger, ignored: tuple[type[Exception], ...] = ()) -> None:
        self._log = log
        self._ignored = ignored
        # A dict, not a set: the order of cancelling must not vary in a simulation.
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> None:
        """Run the coroutine in a task of its own."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """Cancel what still runs and wait for it."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        del self._tasks[task]
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, self._ignored):
            name = task.get_name()
            self._log.error("%s failed", name, exc_info=error, extra={"action": name})


class SerialThread:
    """Runs blocking calls in a thread of its own, one at a time, in the order of the calls."""

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def run(self, call: Callable[[], T]) -> T:
        """What `call` returns or raises. If the caller is cancelled, the call is still made."""
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._pool, call))

    def close(self) -> None:
        """Wait for all calls and end the thread."""
        self._pool.shutdown()


class UserCodeEscaped(RuntimeError):
    """User code raised something that would have stopped more than itself."""


def call_user_code(func: Callable[..., T], *arguments: Any) -> T:
    """Call user code in a thread. What it raises beside `Exception` is raised as UserCodeEscaped.

    This covers `sys.exit`, a stray StopIteration, a panic of a Rust library and time limits of some libraries. It also
    covers KeyboardInterrupt: a real one reaches the main thread only.
    """
    try:
        return func(*arguments)
    except Exception as error:
        if isinstance(error, StopIteration):
            raise _escaped(error) from error
        raise
    except BaseException as error:
        raise _escaped(error) from error


async def await_user_code(call: Awaitable[T]) -> T:
    """Await user code in a task of its own. A CancelledError without a cancel request is raised as UserCodeEscaped."""
    try:
        return await call
    except (
        Exception,
        KeyboardInterrupt,
        GeneratorExit,
    ):  # an error, a real interrupt, the end of this coroutine
        raise
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise UserCodeEscaped("CancelledError without a cancel request") from error
    except BaseException as error:
        raise _escaped(error) from error


def _escaped(error: BaseException) -> UserCodeEscaped:
    return UserCodeEscaped(f"{type(error).__name__}: {safe_text(error)}")
