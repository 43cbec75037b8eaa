"""Renews the leases of idle workers in batches: one look at the store for many heartbeats."""

import asyncio
import logging

from ...dispatch.connected import ConnectedWorker
from ...errors import StorageOutcomeUnknown
from ...workers.service import WorkerService

log = logging.getLogger("regista.stream")

#: How long a heartbeat waits for others at most, in seconds and as a part of the lease that it renews.
MAX_WAIT_S = 0.05
MAX_WAIT_OF_LEASE = 0.01
#: Heartbeats that are answered before the loop may do other work.
BATCH_SIZE = 200


class HeartbeatBatcher:
    """Collects the heartbeats of idle workers for a moment and renews their leases together."""

    def __init__(self, workers: WorkerService, lease_s: float) -> None:
        self._workers = workers
        self._wait_s = min(MAX_WAIT_S, lease_s * MAX_WAIT_OF_LEASE)
        self._waiting: list[tuple[ConnectedWorker, asyncio.Future[bool]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None

    async def renew(self, connected: ConnectedWorker) -> bool:
        """Renew the lease of an idle worker.

        False means that nothing was renewed: it has a task after all, is not known any more, or the store failed. Its
        heartbeat must then be handled by itself.
        """
        loop = asyncio.get_running_loop()
        renewed: asyncio.Future[bool] = loop.create_future()
        self._waiting.append((connected, renewed))
        if self._timer is None:
            self._timer = loop.call_later(self._wait_s, self._start_flush)
        return await renewed

    async def stop(self) -> None:
        """Answer those who wait with False."""
        if self._timer is not None:
            self._timer.cancel()
        if self._flushing is not None:
            self._flushing.cancel()
            await asyncio.gather(self._flushing, return_exceptions=True)
        _answer(self._waiting, [False] * len(self._waiting))
        self._waiting = []

    def _start_flush(self) -> None:
        self._flushing = asyncio.get_running_loop().create_task(self._flush(), name="heartbeats")

    async def _flush(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:BATCH_SIZE], self._waiting[BATCH_SIZE:]
                renewed = [False] * len(batch)
                try:
                    renewed = await self._renew_batch([connected for connected, _ in batch])
                finally:
                    _answer(batch, renewed)
                if self._waiting:
                    await asyncio.sleep(0)
        finally:
            self._timer = self._flushing = None

    async def _renew_batch(self, batch: list[ConnectedWorker]) -> list[bool]:
        try:
            return await self._workers.renew(batch)
        except StorageOutcomeUnknown:
            pass  # each stream meets the same error and handles it
        except Exception:
            message = "renewing leases in a batch failed; every heartbeat is handled by itself"
            log.exception(message, extra={"action": "heartbeat_batch_failed"})
        return [False] * len(batch)


def _answer(batch: list[tuple[ConnectedWorker, asyncio.Future[bool]]], renewed: list[bool]) -> None:
    for (_, future), is_renewed in zip(batch, renewed, strict=True):
        if not future.done():  # a stream that has ended does not wait any more
            future.set_result(is_renewed)
