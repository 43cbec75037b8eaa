"""Heartbeats of idle workers are renewed in batches."""

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from regista.api.worker_protocol.heartbeats import BATCH_SIZE, HeartbeatBatcher
from regista.dispatch.connected import CallbackConnection, ConnectedWorker
from regista.errors import StorageUnavailable
from regista.model import Worker
from regista.workers.service import WorkerService


class RecordingService:
    """Renews the leases of workers that are not busy, and records the batches."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.busy: set[str] = set()
        self.error: Exception | None = None

    async def renew(self, connected: Sequence[ConnectedWorker]) -> list[bool]:
        self.batches.append([one.worker.id for one in connected])
        if self.error is not None:
            raise self.error
        return [one.worker.id not in self.busy for one in connected]


def connected(name: str) -> ConnectedWorker:
    return ConnectedWorker(
        Worker(id=name, skills=("work",)), CallbackConnection(lambda tasks: None, lambda attempts: None)
    )


@pytest.fixture
def service() -> RecordingService:
    return RecordingService()


@pytest.fixture
def batcher(service: RecordingService) -> HeartbeatBatcher:
    return HeartbeatBatcher(cast(WorkerService, service), 1.0)


async def test_heartbeats_of_one_moment_are_renewed_together(
    service: RecordingService, batcher: HeartbeatBatcher
) -> None:
    assert await asyncio.gather(*(batcher.renew(connected(name)) for name in "abc")) == [True] * 3
    assert await batcher.renew(connected("b"))
    assert service.batches == [["a", "b", "c"], ["b"]]


async def test_busy_worker_is_not_renewed(service: RecordingService, batcher: HeartbeatBatcher) -> None:
    service.busy = {"b"}
    assert await asyncio.gather(*(batcher.renew(connected(name)) for name in "ab")) == [True, False]


@pytest.mark.parametrize("error", [StorageUnavailable("away"), ValueError("a mistake")])
async def test_failed_batch_leaves_each_heartbeat_to_its_stream(
    service: RecordingService, batcher: HeartbeatBatcher, error: Exception
) -> None:
    service.error = error
    assert await asyncio.gather(*(batcher.renew(connected(name)) for name in "ab")) == [False, False]
    service.error = None
    assert await batcher.renew(connected("a"))


async def test_many_heartbeats_are_renewed_in_batches_of_limited_size(
    service: RecordingService, batcher: HeartbeatBatcher
) -> None:
    names = [str(number) for number in range(BATCH_SIZE + 5)]
    assert all(await asyncio.gather(*(batcher.renew(connected(name)) for name in names)))
    assert [len(batch) for batch in service.batches] == [BATCH_SIZE, 5]


async def test_stream_that_ended_meanwhile_hinders_no_other(
    service: RecordingService, batcher: HeartbeatBatcher
) -> None:
    gone = asyncio.ensure_future(batcher.renew(connected("a")))
    stays = asyncio.ensure_future(batcher.renew(connected("b")))
    await asyncio.sleep(0)
    gone.cancel()
    assert await stays


async def test_stop_answers_those_who_wait(service: RecordingService, batcher: HeartbeatBatcher) -> None:
    waiting = asyncio.ensure_future(batcher.renew(connected("a")))
    await asyncio.sleep(0)
    await batcher.stop()
    assert not await waiting
    assert service.batches == []
