"""GroupCommit: commits that wait together are flushed together. FENCES 1 to 3."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from ..errors import StorageFailed, StorageUnavailable

BatchT = TypeVar("BatchT")


class GroupCommit(Generic[BatchT]):
    """Collects writes in an open batch while the batch before it is being flushed.

    A writer adds to `batch()`, calls `mark_dirty()` and gets the number of the batch that carries its
    write; `wait(number)` returns once that is flushed. One flush runs at a time, so batch n is durable
    before batch n + 1, and the open batch grows while the disk works: the slower the disk, the bigger
    the groups.

    A failed flush is final. Nobody knows how much of it reached the disk, so retrying could tell a
    lie twice: all waiters, and everybody who comes later, get `StorageFailed`. Only `StorageUnavailable`
    concerns nobody but those who wait for that very batch: the store is elsewhere, and comes back.
    """

    def __init__(
        self,
        new_batch: Callable[[], BatchT],
        flush: Callable[[BatchT], Awaitable[None]],
        on_flushed: Callable[[BatchT], None] | None = None,
    ) -> None:
        self._new_batch = new_batch
        self._flush = flush
        self._on_flushed = on_flushed
        self._open = new_batch()
        self._dirty = False
        self._number = 1
        self._waiters: dict[int, list[asyncio.Future[None]]] = {}
        self._worker: asyncio.Task[None] | None = None
        #: The number of the last batch that is durable, or was given up.
        self.flushed = 0
        self.failure: StorageFailed | None = None
        self._failed = asyncio.Event()

    async def failed(self) -> StorageFailed:
        """Return when a flush has failed for good."""
        await self._failed.wait()
        assert self.failure is not None
        return self.failure

    def batch(self) -> BatchT:
        """The batch that is open for writes right now."""
        if self.failure is not None:
            raise self.failure
        return self._open

    def mark_dirty(self) -> int:
        """Say that the open batch was written to; returns its number and sees to its flush."""
        self._dirty = True
        if self._worker is None:
            # A task starts with the next turn of the loop, so what this turn writes shares the flush.
            self._worker = asyncio.get_running_loop().create_task(self._work(), name="group-commit")
        return self._number

    async def wait(self, number: int) -> None:
        """Return when batch `number` is durable; raise when it never will be."""
        if number <= self.flushed:
            return
        if self.failure is not None:
            raise self.failure
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(number, []).append(waiter)
        await waiter

    async def drain(self) -> None:
        """Wait for everything written so far."""
        await self.wait(self._number if self._dirty else self._number - 1)

    async def _work(self) -> None:
        try:
            while self._dirty:
                number, batch = self._number, self._open
                self._open, self._number, self._dirty = self._new_batch(), number + 1, False
                try:
                    await self._flush(batch)
                except StorageUnavailable as error:
                    self._give_up(number, error)
                    continue
                self.flushed = number
                self._answer(number)
                if self._on_flushed is not None:
                    self._on_flushed(batch)
        except BaseException as error:
            self._fail(error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._worker = None

    def _answer(self, number: int) -> None:
        for waiter in self._waiters.pop(number, ()):
            if not waiter.done():
                waiter.set_result(None)

    def _give_up(self, number: int, error: StorageUnavailable) -> None:
        self.flushed = number
        for waiter in self._waiters.pop(number, ()):
            if not waiter.done():
                waiter.set_exception(error)

    def _fail(self, error: BaseException) -> None:
        said = str(error) if isinstance(error, StorageFailed) else repr(error)
        self.failure = StorageFailed(f"a flush failed, so the store stopped: {said}")
        self.failure.__cause__ = error
        waiters, self._waiters = self._waiters, {}
        for waiter in (waiter for group in waiters.values() for waiter in group):
            if not waiter.done():
                waiter.set_exception(self.failure)
        self._failed.set()
