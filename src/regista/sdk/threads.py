"""Threads for plain functions. They never keep a process from ending, as a pool of the library would."""

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_Call = tuple["Future[Any]", Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class DaemonThreadPool(Executor):
    """At most `size` threads, made when they are needed.

    A function that never returns costs its thread and nothing more: the interpreter does not wait for it at
    the end, since a worker that was told to stop hands back what does not finish.
    """

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._threads = 0
        self._idle = threading.Semaphore(0)
        self._closed = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """Call it in a thread, as soon as one is free."""
        if self._closed:
            raise RuntimeError("the threads were shut down")
        future: Future[T] = Future()
        # First the thread: where the machine has none left, the call must not be made all the same later.
        if not self._idle.acquire(blocking=False) and self._threads < self._size:
            name = f"{self._name}-{self._threads + 1}"
            threading.Thread(target=self._work, name=name, daemon=True).start()
            self._threads += 1
        self._calls.put((future, fn, args, kwargs))
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:
        """Let the idle ones go; the busy ones go when they are done. Nothing is waited for."""
        self._closed = True
        for _ in range(self._threads):
            self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            future, func, args, kwargs = call
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(func(*args, **kwargs))
                except BaseException as error:  # noqa: BLE001  # it belongs to whoever waits for the result
                    future.set_exception(error)
            del call, future, func, args, kwargs  # an idle thread keeps nothing alive
            self._idle.release()
