"""OneThread: blocking work beside the loop, which gets its turns even when the loop is busy."""

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Generator
from contextvars import Context
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")

#: For how long a thread waits at most before Python makes another one give up the GIL. Python's own is 5 ms.
SWITCH_S = 0.000_2
#: After so long without a piece of work that came to its end, the loop hands over the GIL on purpose.
HAND_OVER_AFTER_S = 0.003
#: For how long, at least. The kernel makes about 60 µs of it, which a thread needs to wake up.
HAND_OVER_S = 0.000_001


class _Reply:
    """What a piece of work gave, for the one task that waits for it.

    A future lets its task go on with the next turn of the loop, this one in the very turn in which the answer comes. Every
    commit waits for one, and where there is one job at a time, turns are most of what it waits for. It has what a task
    asks of a future (see `asyncio.isfuture`), and no more.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._asyncio_future_blocking = False
        self._loop = loop
        self._done = False
        self._result: Any = None
        self._error: BaseException | None = None

    def __await__(self) -> Generator[Any, None, Any]:
        self._asyncio_future_blocking = True
        yield self
        return self.result()

    def settle(self, result: Any, error: BaseException | None) -> None:
        """Let the task go on. Later ones change nothing: whoever waited was cancelled."""
        if not self._done:
            self._done, self._result, self._error = True, result, error
            self._context.run(self._go_on, self)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def add_done_callback(self, go_on: Callable[[Any], None], *, context: Context) -> None:
        self._go_on, self._context = go_on, context

    def cancel(self, msg: Any = None) -> bool:
        if self._done:
            return False
        self._done, self._error = True, asyncio.CancelledError()
        self._loop.call_soon(self._go_on, self, context=self._context)
        return True

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._result


#: The loop that waits, what it waits for, and what is to be done.
_Order = tuple[asyncio.AbstractEventLoop, _Reply, Callable[[], Any]]


class OneThread:
    """Runs one piece of work after the other, in the order asked.

    Work that only waits for the disk needs the GIL a few times, for microseconds. Python's switch interval says how
    long it waits for it each time, so that is made short, for the whole process. It is not enough: a loop with
    short turns lets go of the GIL at each, to look for new events, and takes it back within a microsecond. That is
    too soon for the thread, which needs fifty to wake up and then starts to wait anew; it may starve for seconds. So
    a loop that has not seen any work come to its end for a while sleeps for a moment on purpose.

    A thread pool of one would do the same with two futures, three locks and twice the calls for each piece.
    """

    def __init__(self, name: str) -> None:
        sys.setswitchinterval(min(SWITCH_S, sys.getswitchinterval()))
        self._orders: SimpleQueue[_Order | None] = SimpleQueue()
        # A daemon: whoever forgets to close must still be able to leave.
        self._thread = Thread(target=self._work, name=name, daemon=True)
        self._thread.start()
        self._under_way = 0
        self._timer: asyncio.TimerHandle | None = None
        #: When the thread was idle last, or ended a piece of work.
        self._moved = 0.0

    async def run(self, work: Callable[[], T]) -> T:
        """What `work` returns or raises. When the caller is cancelled, the work is done all the same."""
        loop = asyncio.get_running_loop()
        reply = _Reply(loop)
        self._orders.put((loop, reply, work))
        self._under_way += 1
        if self._under_way == 1:
            self._moved = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(HAND_OVER_AFTER_S, self._hand_over, loop)
        try:
            done: T = await reply
            return done
        finally:
            self._under_way -= 1
            self._moved = loop.time()

    @property
    def is_idle(self) -> bool:
        """Nothing is asked of it."""
        return not self._under_way

    def close(self) -> None:
        """End the thread when all its work is done. Waits for that."""
        self._orders.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (order := self._orders.get()) is not None:
            loop, reply, work = order
            try:
                result, error = work(), None
            except BaseException as raised:  # noqa: BLE001  # whatever it is, it belongs to who asked
                result, error = None, raised
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(reply.settle, result, error)

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._under_way:
            # Only now: to set one and to cancel it for each piece of work costs more than this look.
            self._timer = None
            return
        left_s = self._moved + HAND_OVER_AFTER_S - loop.time()
        if left_s <= 0:
            time.sleep(HAND_OVER_S)
            left_s = HAND_OVER_AFTER_S
        self._timer = loop.call_later(left_s, self._hand_over, loop)
