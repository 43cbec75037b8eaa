"""The Watcher: deadlines fire once, in time, and never before the grace is over. FENCES 12, 13."""

import asyncio
from datetime import timedelta
from typing import Any, cast

import pytest

from regista import Config, EventType, JobStatus, MemoryStorage, RetryPolicy
from regista.maintenance.chore import ChoreResult
from regista.maintenance.loop import ExpiryGrace
from regista.maintenance.watcher import Watcher
from regista.storage.base import DueKind
from regista.testing.clock import Clock
from regista.testing.orchestrator import TestOrchestrator
from tests.support import Puppet, one_task, only, script, types


def sleeping(seconds: float = 10) -> Any:
    return script(lambda context, actions: actions.sleep(seconds, then="done"), "done")


def watcher(kit: TestOrchestrator, limit: int = 500) -> Watcher:
    director = kit.director
    return Watcher(director.storage, director.engine, director.grace, limit=limit)


def run_once(kit: TestOrchestrator, later_s: float = 0.0, limit: int = 500) -> ChoreResult:
    """One run of the chore, as if it were `later_s` seconds later."""
    chore = watcher(kit, limit)
    return kit.call(lambda: chore.run_once(kit.now + timedelta(seconds=later_s)))


def test_due_never_pops_what_nobody_acted_on_is_due_again() -> None:
    with TestOrchestrator(sleeping()) as kit:
        job = kit.submit("script")
        storage = kit.director.storage
        later = kit.now + timedelta(seconds=11)
        for _ in range(3):
            (due,) = kit.call(lambda: storage.due(later, 10))
            assert (due.kind, due.job_id) == (DueKind.JOB, job.id)


def test_nothing_is_done_before_its_time() -> None:
    with TestOrchestrator(sleeping()) as kit:
        kit.submit("script")
        report = run_once(kit)
        assert report.done == 0
        assert report.run_again_in_s == pytest.approx(10)


def test_a_timer_fires_once_however_often_it_is_looked_at() -> None:
    with TestOrchestrator(sleeping()) as kit:
        job = kit.submit("script")
        kit.skip(10)
        assert run_once(kit).done == 0
        assert types(kit.events(job)).count("timer_fired") == 1


def test_a_retry_wakes_when_its_pause_is_over() -> None:
    with TestOrchestrator(one_task(retry=RetryPolicy(first_s=20, jitter=0))) as kit:
        puppet = Puppet(kit, lease_s=1000)
        puppet.join()
        kit.submit("script")
        puppet.settle()
        puppet.fail(puppet.tasks[0], "TRANSIENT_ERROR")
        kit.skip(19)
        assert len(puppet.tasks) == 1
        kit.skip(1)
        assert len(puppet.tasks) == 2


def test_expiries_wait_for_the_grace_and_alarms_do_not() -> None:
    with TestOrchestrator(sleeping(), one_task(name="timed", result_timeout=10)) as kit:
        alarm, expiry = kit.submit("script"), kit.submit("timed")
        kit.director.grace.restart()
        kit.skip(10)
        assert kit.get(alarm).status is JobStatus.FINISHED
        assert kit.get(expiry).status is JobStatus.WAITING_FOR_WORKER
        kit.skip(60)
        assert kit.get(expiry).status is JobStatus.FAILED


def test_expiries_that_wait_for_the_grace_hide_no_alarm_behind_them() -> None:
    with TestOrchestrator(sleeping(), one_task(name="timed", result_timeout=10)) as kit:
        expiries = [kit.submit("timed") for _ in range(7)]
        kit.skip(0.1)
        alarms = [kit.submit("script") for _ in range(5)]
        kit.director.grace.restart()
        chore = watcher(kit, limit=2)
        kit.director.maintenance.chores = []

        async def look() -> None:
            await asyncio.sleep(10.1)
            report = await chore.run_once(kit.clock.now())
            while report.run_again_in_s == 0.0:
                report = await chore.run_once(kit.clock.now())

        kit.call(look)
        assert [kit.get(job).status for job in alarms] == [JobStatus.FINISHED] * 5
        assert [kit.get(job).status for job in expiries] == [JobStatus.WAITING_FOR_WORKER] * 7

        async def after_the_grace() -> None:
            await asyncio.sleep(60)
            while (await chore.run_once(kit.clock.now())).run_again_in_s == 0.0:
                pass

        kit.call(after_the_grace)
        assert [kit.get(job).status for job in expiries] == [JobStatus.FAILED] * 7


def test_a_task_between_two_attempts_does_not_time_out_in_the_grace() -> None:
    with TestOrchestrator(one_task(retry=RetryPolicy(first_s=20, jitter=0), result_timeout=25)) as kit:
        puppet = Puppet(kit, lease_s=1000)
        puppet.join()
        job = kit.submit("script")
        puppet.settle()
        puppet.fail(puppet.tasks[0], "TRANSIENT_ERROR")
        chore = watcher(kit)
        kit.director.maintenance.chores = []

        async def look() -> None:
            await asyncio.sleep(30)
            kit.director.grace.restart()
            await chore.run_once(kit.clock.now())

        kit.call(look)
        assert kit.get(job).status is JobStatus.WAITING_FOR_WORKER


def test_a_cancel_that_nobody_confirms_waits_for_the_grace_as_well() -> None:
    with TestOrchestrator(one_task()) as kit:
        puppet = Puppet(kit, lease_s=1000)
        puppet.join()
        job = kit.submit("script")
        puppet.settle()
        kit.cancel(job)
        kit.skip(20)
        kit.director.grace.restart()
        kit.skip(15)
        assert kit.get(job).status is JobStatus.CANCELLING
        kit.skip(60)
        assert kit.get(job).status is JobStatus.CANCELLED


def test_what_began_after_the_outage_expires_in_its_own_time() -> None:
    with TestOrchestrator(one_task(result_timeout=2)) as kit:
        kit.director.grace.restart()
        kit.skip(0.1)
        job = kit.submit("script")
        kit.skip(2)
        assert kit.get(job).status is JobStatus.FAILED


def test_a_cancel_waits_for_the_grace_only_where_the_work_began_before_the_outage() -> None:
    with TestOrchestrator(one_task(), config=Config(instance_id="test", cancel_grace_s=5)) as kit:
        puppet = Puppet(kit, lease_s=1000)
        puppet.join()
        before = kit.submit("script")
        puppet.settle()
        kit.director.grace.restart()
        kit.skip(0.1)
        after = kit.submit("script")
        puppet.settle()
        kit.cancel(before)
        kit.cancel(after)
        kit.skip(5)
        assert kit.get(before).status is JobStatus.CANCELLING
        assert kit.get(after).status is JobStatus.CANCELLED


def test_what_stays_due_in_spite_of_the_watcher_does_not_make_it_spin() -> None:
    with TestOrchestrator(one_task(result_timeout=10)) as kit:
        kit.submit("script")
        kit.director.grace.restart()
        kit.skip(10)
        assert run_once(kit) == ChoreResult(done=0, run_again_in_s=None)


def test_a_full_page_is_followed_by_the_next_one_at_once() -> None:
    with TestOrchestrator(sleeping()) as kit:
        jobs = [kit.submit("script") for _ in range(5)]
        chore = watcher(kit, limit=2)

        async def look() -> list[ChoreResult]:
            await asyncio.sleep(10)  # before anybody else wakes up at this instant
            now = kit.clock.now()
            return [await chore.run_once(now) for _ in range(4)]

        reports = kit.call(look)
        assert sum(report.done for report in reports) <= 5
        assert all(kit.get(job).status is JobStatus.FINISHED for job in jobs)


def test_two_watchers_at_once_fire_every_deadline_once() -> None:
    with TestOrchestrator(sleeping(), one_task(name="timed", result_timeout=10)) as kit:
        jobs = [kit.submit(name) for name in ("script", "timed") for _ in range(5)]
        first, second = watcher(kit), watcher(kit)

        async def race() -> tuple[ChoreResult, ChoreResult]:
            now = kit.clock.now() + timedelta(seconds=10)
            return await asyncio.gather(first.run_once(now), second.run_once(now))

        # when: the clock itself has not moved, the machine says no to both
        assert sum(report.done for report in kit.call(race)) == 0
        kit.skip(9.999)

        async def race_in_time() -> tuple[ChoreResult, ChoreResult]:
            await asyncio.sleep(0.001)
            return await asyncio.gather(first.run_once(kit.clock.now()), second.run_once(kit.clock.now()))

        kit.call(race_in_time)
        for job in jobs:
            fired = only(kit.events(job), EventType.TIMER_FIRED) + only(
                kit.events(job), EventType.TASK_TIMED_OUT
            )
            assert len(fired) == 1
            assert kit.get(job).status.terminal


def test_a_deadline_of_a_job_that_is_gone_is_no_matter() -> None:
    with TestOrchestrator(one_task(result_timeout=10)) as kit:
        job = kit.submit("script")
        kit.cancel(job)
        kit.skip(100)
        assert kit.get(job).status is JobStatus.CANCELLED


def test_the_grace_is_one_lease_long_and_starts_again_with_every_outage() -> None:
    clock = Clock()
    grace = ExpiryGrace(clock, 30)
    seen = []
    for seconds in (29, 1):
        clock.move(seconds)
        seen.append(grace.over)
    grace.restart()
    seen.append(grace.over)
    assert seen == [False, True, False]


def test_a_record_that_nobody_can_read_keeps_no_other_timer_from_ringing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with TestOrchestrator(sleeping()) as kit:
        spoiled = kit.submit("script")
        kit.skip(0.1)
        others = [kit.submit("script") for _ in range(3)]
        state = cast(MemoryStorage, kit.director.storage)._state
        body, state._jobs[spoiled.id].body = state._jobs[spoiled.id].body, b"\xc1"
        kit.skip(20)
        assert [kit.get(job).status for job in others] == [JobStatus.FINISHED] * 3
        assert f"job {spoiled.id} is due and cannot be acted on" in caplog.text
        state._jobs[spoiled.id].body = body
        kit.skip(5)
        assert kit.get(spoiled).status is JobStatus.FINISHED
