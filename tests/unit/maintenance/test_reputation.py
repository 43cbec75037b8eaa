"""Reputation: from what history tells, weighted to the recent, and kept by the worker's name."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regista.errors import HistoryUnavailable
from regista.history.memory import MemoryHistory
from regista.history.store_only import NoHistory
from regista.maintenance.reputation import MOST, SHELF, ReputationCalculator, Standing, tally
from regista.model import Event, EventType, OutboxEntry
from regista.storage.base import find_worker
from regista.testing.orchestrator import TestOrchestrator
from tests.support import Puppet, one_task

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


def end(kind: EventType = EventType.TASK_FINISHED, worker: str = "w", **more: Any) -> Event:
    return Event(type=kind, at=more.pop("at", NOON), worker_id=worker, **more)


def test_a_new_worker_has_the_best_reputation() -> None:
    assert Standing(NOON).reputation == 1.0


def test_one_failure_does_not_ruin_anybody_and_many_do() -> None:
    assert Standing(NOON, 0, 1).reputation == pytest.approx(0.85)
    assert Standing(NOON, 0, 95).reputation == pytest.approx(0.05)
    assert Standing(NOON, 95, 5).reputation == pytest.approx(0.95)


@given(st.floats(0, 1e9), st.floats(0, 1e9), st.floats(0, 1e9))
def test_it_lies_between_0_and_1_and_fades_towards_1(good: float, bad: float, later_s: float) -> None:
    standing = Standing(NOON, good, bad)
    aged = standing.aged(NOON + timedelta(seconds=later_s))

    assert 0 <= standing.reputation <= aged.reputation <= 1


def test_what_happened_yesterday_weighs_half() -> None:
    yesterday = NOON - timedelta(days=1)

    assert tally([end(), end(at=yesterday)], NOON) == {"w": (1.5, 0.0)}


@pytest.mark.parametrize(
    ("event", "counts"),
    [
        (end(), (1.0, 0.0)),
        (end(EventType.TASK_FAILED, code="TRANSIENT_ERROR"), (0.0, 1.0)),
        (end(EventType.TASK_FAILED, code="PERMANENT_ERROR"), (0.0, 1.0)),
        (end(EventType.TASK_FAILED, code="INVALID_INPUT_ERROR"), None),
        (end(EventType.TASK_FINISHED, status="cancelled"), None),
        (end(EventType.TASK_LOST), (0.0, 1.0)),
        (end(EventType.TASK_UNDELIVERED), (0.0, 1.0)),
        (end(EventType.TASK_TIMED_OUT, code="attempt_timeout"), (0.0, 1.0)),
        (end(EventType.TASK_STARTED), None),
    ],
)
def test_what_counts_for_and_against_a_worker(event: Event, counts: tuple[float, float] | None) -> None:
    assert tally([event], NOON).get("w") == counts


def calculator(kit: TestOrchestrator, storage: Any = None) -> ReputationCalculator:
    director = kit.director
    return ReputationCalculator(
        storage or director.storage, director.history, director.workers.set_reputation, 0
    )


def run_once(kit: TestOrchestrator, chore: ReputationCalculator | None = None) -> int:
    kit.call(kit.director.recorder.drain)
    return kit.call(lambda: (chore or calculator(kit)).run_once(kit.now)).done


def reputation(kit: TestOrchestrator, worker_id: str = "puppet") -> float:
    worker = kit.call(lambda: find_worker(kit.director.storage, worker_id))
    assert worker is not None
    return worker.profile.reputation


def spoil(kit: TestOrchestrator, puppet: Puppet, times: int) -> None:
    for _ in range(times):
        kit.submit("script")
        puppet.settle()
        puppet.fail(puppet.tasks[-1], "PERMANENT_ERROR")


def test_failures_lower_it_in_the_record_and_at_the_seat() -> None:
    with TestOrchestrator(one_task()) as kit:
        puppet = Puppet(kit)
        puppet.join()
        spoil(kit, puppet, 5)

        assert run_once(kit) == 1
        assert reputation(kit) == 0.5
        connected = kit.director.dispatcher.find("puppet")
        assert connected is not None
        assert connected.worker.profile.reputation == 0.5
        assert run_once(kit) == 0


def test_a_reputation_floor_then_keeps_tasks_away() -> None:
    with TestOrchestrator(one_task(requirements={"min_reputation": 0.6}), one_task(name="any")) as kit:
        puppet = Puppet(kit)
        puppet.join()
        for _ in range(5):
            kit.submit("any")
            puppet.settle()
            puppet.fail(puppet.tasks[-1], "PERMANENT_ERROR")
        run_once(kit)
        job = kit.submit("script")
        puppet.settle()

        assert kit.get(job).status == "waiting_for_worker"
        assert len(puppet.tasks) == 5


def test_it_survives_a_new_session_and_an_absence() -> None:
    with TestOrchestrator(one_task()) as kit:
        puppet = Puppet(kit)
        puppet.join()
        spoil(kit, puppet, 5)
        run_once(kit)
        puppet.leave()
        kit.crash()
        again = Puppet(kit)
        again.join()

        assert reputation(kit) == 0.5


def test_bad_marks_fade_although_nothing_is_done() -> None:
    with TestOrchestrator(one_task()) as kit:
        puppet = Puppet(kit, lease_s=10**9)
        puppet.join()
        spoil(kit, puppet, 5)
        run_once(kit)
        kit.skip(days=3)

        run_once(kit)
        assert reputation(kit) > 0.85


def test_two_at_once_count_everything_once() -> None:
    with TestOrchestrator(one_task()) as kit:
        puppet = Puppet(kit)
        puppet.join()
        spoil(kit, puppet, 5)
        kit.call(kit.director.recorder.drain)
        one, two = calculator(kit), calculator(kit)

        async def both() -> None:
            await asyncio.gather(one.run_once(kit.clock.now()), two.run_once(kit.clock.now()))

        kit.call(both)
        run_once(kit)
        assert reputation(kit) == 0.5


def test_a_drained_worker_stays_drained() -> None:
    with TestOrchestrator(one_task()) as kit:
        puppet = Puppet(kit)
        puppet.join()
        spoil(kit, puppet, 5)
        kit.call(lambda: kit.director.workers.ask_to_drain("puppet"))
        run_once(kit)

        worker = kit.call(lambda: find_worker(kit.director.storage, "puppet"))
        assert worker is not None
        assert (worker.draining, worker.profile.reputation) == (True, 0.5)


def test_it_is_throttled() -> None:
    with TestOrchestrator(one_task()) as kit:
        puppet = Puppet(kit)
        puppet.join()
        spoil(kit, puppet, 5)
        kit.call(kit.director.recorder.drain)
        chore = ReputationCalculator(
            kit.director.storage, kit.director.history, kit.director.workers.set_reputation, 60
        )

        assert kit.call(lambda: chore.run_once(kit.now)).done == 0
        assert kit.call(lambda: chore.run_once(kit.now + timedelta(seconds=59))).done == 0
        assert kit.call(lambda: chore.run_once(kit.now + timedelta(seconds=60))).done == 1


def test_of_a_long_history_only_the_newest_part_is_read() -> None:
    with TestOrchestrator(one_task()) as kit:
        history = MemoryHistory()
        old = OutboxEntry(1, "j", 1, (end(EventType.TASK_FAILED, "old"),))
        new = OutboxEntry(MOST + 5, "k", 1, (end(EventType.TASK_FAILED, "new"),))
        kit.call(lambda: history.record([old, new]))
        storage = kit.director.storage
        chore = ReputationCalculator(storage, history, kit.director.workers.set_reputation, 0)
        kit.call(lambda: chore.run_once(kit.now))

        items = kit.call(lambda: storage.records(SHELF))
        assert [item.key for item in items] == ["new"]


def test_without_a_history_the_outbox_tells() -> None:
    with TestOrchestrator(one_task(), history=Forgetful()) as kit:
        puppet = Puppet(kit)
        puppet.join()
        spoil(kit, puppet, 5)
        storage = kit.director.storage

        async def newest() -> int:
            return ((await storage.outbox(0, 10_000)).entries)[-1].number

        chore = ReputationCalculator(storage, NoHistory(newest), kit.director.workers.set_reputation, 0)
        assert kit.call(lambda: chore.run_once(kit.now)).done == 1
        assert reputation(kit) == 0.5
        assert kit.call(lambda: chore.run_once(kit.now)).done == 0


class Forgetful(MemoryHistory):
    """Never says that anything is safe, so the outbox keeps it."""

    async def sync(self) -> int:
        return 0


def test_a_history_that_is_away_changes_nothing() -> None:
    class Away(MemoryHistory):
        async def cursor(self) -> int:
            raise HistoryUnavailable("away")

    with TestOrchestrator(one_task()) as kit:
        chore = ReputationCalculator(kit.director.storage, Away(), kit.director.workers.set_reputation, 0)

        assert kit.call(lambda: chore.run_once(kit.now)).done == 0
