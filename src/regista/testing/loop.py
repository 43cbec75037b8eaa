"""VirtualLoop: an event loop whose time is a number. Waiting costs nothing; the same input, the same run."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

_T = TypeVar("_T")


class Deadlock(RuntimeError):
    """Nothing is scheduled any more, and somebody still waits."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Jumps to the next timer instead of waiting for it.

    There are no sockets and no threads here: what a handler would run in a thread runs in place, so
    that nothing depends on the machine. Callbacks run in the order in which they were scheduled.
    """

    def __init__(self) -> None:
        super().__init__()
        self._virtual_time = 0.0
        self._listeners: list[asyncio.Future[None]] = []
        # After 97 days a nanosecond is less than a float can add, and a due timer would never count as due.
        self._clock_resolution = 1e-6
        # BaseEventLoop asks its selector for events; we have none, only the time to pass.
        self._selector = self

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._virtual_time

    def select(self, timeout: float | None) -> list[Any]:
        """Called by the loop between its turns: when nothing is ready, skip to the next timer."""
        if timeout != 0 and self._listeners:
            listeners, self._listeners = self._listeners, []
            for listener in listeners:
                if not listener.done():
                    listener.set_result(None)
            return []
        if timeout is None:
            raise Deadlock("nothing can happen any more, and somebody still waits")
        self._virtual_time += timeout
        return []

    async def quiet(self) -> None:
        """Return when nothing more can happen at this instant. No time passes."""
        listener = self.create_future()
        self._listeners.append(listener)
        await listener

    def _process_events(self, event_list: list[Any]) -> None:
        return None

    def _write_to_self(self) -> None:
        return None

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., _T], *args: Any
    ) -> "asyncio.Future[_T]":
        """Run it here and now: a thread would bring the machine's own order of things in."""
        future: asyncio.Future[_T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to whoever awaits
            future.set_exception(error)
        return future

    def close(self) -> None:
        """End whatever still runs, then close."""
        if not self.is_closed():
            pending = [task for task in asyncio.all_tasks(self) if not task.done()]
            for task in pending:
                task.cancel()
            if pending:
                self.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        super().close()
