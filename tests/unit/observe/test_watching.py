from collections.abc import Sequence
from typing import Any

import pytest

from regista.clock import SystemClock
from regista.errors import StorageUnavailable
from regista.model import Change, CommitOutcome
from regista.observe.commit_metrics import CommitMetrics
from regista.observe.engine_observer import EngineTelemetry
from regista.observe.metrics import Metrics
from regista.observe.watching import watched
from regista.storage.base import StorageBackend
from regista.storage.memory import MemoryStorage
from regista.testing.conformance.storage.kit import shown
from tests.unit.observe.test_commit_metrics import job


class Away(MemoryStorage):
    async def commit(self, changes: Sequence[Change], instance: str) -> list[CommitOutcome]:
        raise StorageUnavailable("away")


class Clumsy(CommitMetrics):
    def committed(self, *_: Any) -> None:
        raise ZeroDivisionError


def before(storage: MemoryStorage, of: Metrics, book: CommitMetrics | None = None) -> StorageBackend:
    clock = SystemClock()
    commits = book or CommitMetrics(of, lambda _: None)
    return watched(storage, EngineTelemetry(of, commits, None, lambda _: None, clock), clock)


async def test_a_commit_is_counted_and_timed_and_answered_as_ever() -> None:
    of, storage = Metrics(), MemoryStorage(SystemClock())
    seen = before(storage, of)
    await seen.start()

    (outcome,) = await seen.commit([Change(job_id="j", token="t", job=job())], "one")

    assert outcome.ok
    assert await shown(storage, "j") is not None
    assert of.jobs.values == {("b",): 1}
    assert of.flush.values[()].counts[0] + sum(of.flush.values[()].counts[1:]) == 1
    await seen.stop()


async def test_a_store_that_does_not_take_it_is_counted_and_says_so_itself() -> None:
    of = Metrics()

    with pytest.raises(StorageUnavailable):
        await before(Away(SystemClock()), of).commit([], "one")

    assert of.store_errors.values == {(): 1}


async def test_whoever_waits_is_answered_though_the_counting_fails(caplog: pytest.LogCaptureFixture) -> None:
    of, storage = Metrics(), MemoryStorage(SystemClock())
    seen = before(storage, of, Clumsy(of, lambda _: None))
    await seen.start()

    (outcome,) = await seen.commit([Change(job_id="j", token="t", job=job())], "one")

    assert outcome.ok
    assert "counting a commit failed" in caplog.text
    await seen.stop()


def test_everything_else_is_the_stores_own() -> None:
    storage = MemoryStorage(SystemClock())
    seen = before(storage, Metrics())

    assert seen.shared is storage.shared
    assert seen.lanes == storage.lanes
    assert not hasattr(seen, "path")
