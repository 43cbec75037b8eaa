"""OneThread: blocking work beside the loop, which gets its turns even when the loop is busy."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")
#: The loop that waits, what it waits for, and what is to be done.
_Order = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[[], Any]]

#: How often the loop hands over the GIL while the thread is at work.
HAND_OVER_EVERY_S = 0.002
#: For how long, at least. The kernel makes about 60 µs of it, which a thread needs to wake up.
HAND_OVER_S = 0.000_001


class OneThread:
    """Runs one piece of work after the other, in the order asked.

    A busy loop lets go of the GIL at each of its turns, to look for new events, and takes it back
    within a microsecond: too soon for the thread, which needs fifty to wake up, starts to wait anew,
    and so may never reach the five milliseconds after which Python would force the switch. Measured
    with turns of 2 ms: seven seconds for a write that takes seven milliseconds. So, while work is
    under way, the loop now and then sleeps for a moment on purpose; then it took twenty.

    A thread pool of one would do the same with two futures, three locks and twice the calls for each piece.
    """

    def __init__(self, name: str) -> None:
        self._orders: SimpleQueue[_Order | None] = SimpleQueue()
        # A daemon: whoever forgets to close must still be able to leave.
        self._thread = Thread(target=self._work, name=name, daemon=True)
        self._thread.start()
        self._under_way = 0
        self._timer: asyncio.TimerHandle | None = None

    async def run(self, work: Callable[[], T]) -> T:
        """What `work` returns or raises. When the caller is cancelled, the work is done all the same."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        self._orders.put((loop, done, work))
        self._under_way += 1
        if self._timer is None:
            self._timer = loop.call_later(HAND_OVER_EVERY_S, self._hand_over, loop)
        try:
            return await done
        finally:
            self._under_way -= 1
            if not self._under_way and self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def close(self) -> None:
        """End the thread when all its work is done. Waits for that."""
        self._orders.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (order := self._orders.get()) is not None:
            loop, done, work = order
            try:
                result, error = work(), None
            except BaseException as raised:  # noqa: BLE001  # whatever it is, it belongs to who asked
                result, error = None, raised
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_settle, done, result, error)

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        time.sleep(HAND_OVER_S)
        self._timer = loop.call_later(HAND_OVER_EVERY_S, self._hand_over, loop)


def _settle(done: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if done.done():
        return  # whoever waited was cancelled
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)
