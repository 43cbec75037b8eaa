"""The test kit for users: time that is skipped, crashes, and promises that are checked."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from regista import EventType, JobStatus, Worker
from regista.blueprint import ActionFactory, JobContext
from regista.history.memory import MemoryHistory
from regista.history.sqlite import SqliteHistory
from regista.maintenance.recovery import RecoveryChore
from regista.model import OutboxEntry
from regista.testing.clock import BEGINNING
from regista.testing.conformance.history_kit import summary_of
from regista.testing.invariants import InvariantBroken
from regista.testing.life import When
from regista.testing.orchestrator import TestOrchestrator
from regista.testing.waiting import NotSettled
from tests.stopwatch import Stopwatch
from tests.support import Puppet, fault, one_task, script, types


def reminder(days: float = 14) -> Any:
    return script(lambda context, actions: actions.sleep(days * 86_400, then="done"), "done")


# -- time --------------------------------------------------------------------------------------------


def test_fourteen_days_cost_next_to_nothing() -> None:
    with TestOrchestrator(reminder()) as kit:
        kit.task("work")(lambda params: None)
        job = kit.submit("script")
        watch = Stopwatch()
        kit.skip(days=14)
        took_s = watch.elapsed_s()
        assert kit.get(job).status is JobStatus.FINISHED
        assert took_s < 0.25  # some milliseconds; the rest is for a busy machine


def test_time_stands_still_between_calls_and_begins_at_the_same_instant() -> None:
    with TestOrchestrator(one_task()) as kit:
        kit.task("work")(lambda params: None)
        assert kit.now == BEGINNING
        kit.run("script")
        assert kit.now == BEGINNING
        kit.skip(90)
        kit.skip(minutes=1, seconds=30)
        assert kit.now == BEGINNING + timedelta(minutes=3)


def test_time_does_not_go_backwards() -> None:
    with TestOrchestrator() as kit, pytest.raises(ValueError, match="forward"):
        kit.skip(-1)


def test_a_timer_fires_at_its_instant_and_not_a_second_earlier() -> None:
    with TestOrchestrator(reminder()) as kit:
        job = kit.submit("script")
        kit.skip(days=13, hours=23, minutes=59, seconds=59)
        assert kit.get(job).status is JobStatus.WAITING_FOR_TIMER
        kit.skip(1)
        assert kit.get(job).status is JobStatus.FINISHED


def test_sleeping_in_handlers_and_tasks_is_skipped_too() -> None:
    async def start(context: JobContext, actions: ActionFactory) -> None:
        await asyncio.sleep(3600)
        actions.dispatch_task("work", transitions={"success": "done"}, attempt_timeout=100_000)

    with TestOrchestrator(script(start, "done")) as kit:

        @kit.task("work")
        async def work(params: dict[str, Any]) -> None:
            await asyncio.sleep(7200)

        watch = Stopwatch()
        assert kit.run("script").status is JobStatus.FINISHED
        assert kit.now - BEGINNING == timedelta(hours=3)
        assert watch.elapsed_s() < 2


def test_a_timeout_shorter_than_the_lease_expires_in_time_in_a_fresh_store() -> None:
    with TestOrchestrator(one_task(result_timeout=2)) as kit:
        assert kit.run("script").status is JobStatus.FAILED
        assert kit.now == BEGINNING + timedelta(seconds=2)


# -- running and waiting -----------------------------------------------------------------------------


def test_run_stops_where_only_a_person_can_move_the_job() -> None:
    asks = script(
        lambda context, actions: actions.await_human_approval("ok?", transitions={"yes": "done"}), "done"
    )
    parent = script(
        lambda context, actions: actions.run_blueprint("script", transitions={"success": "done"}),
        "done",
        name="parent",
    )
    with TestOrchestrator(asks, parent) as kit:
        assert kit.run("script").status is JobStatus.WAITING_FOR_HUMAN
        job = kit.run("parent")
        assert job.status is JobStatus.WAITING_FOR_CHILD
        assert kit.now == BEGINNING
        (child,) = [one for one in kit.jobs() if one.parent_id == job.id]
        kit.approve(child, "yes")
        assert kit.wait(job).status is JobStatus.FINISHED


def test_wait_names_the_decision_that_is_missing_and_lets_no_time_pass() -> None:
    asks = script(
        lambda context, actions: actions.await_human_approval(
            "ship it?", transitions={"yes": "done", "no": "done"}
        ),
        "done",
    )
    with TestOrchestrator(asks) as kit:
        job = kit.submit("script")
        with pytest.raises(NotSettled, match=r"a person's decision \(no, yes\): ship it\?"):
            kit.wait(job)
        assert kit.now == BEGINNING


def test_wait_names_the_task_that_nobody_does() -> None:
    with TestOrchestrator(one_task()) as kit:
        kit.task("other")(lambda params: None)
        job = kit.submit("script")
        with pytest.raises(
            NotSettled, match=r"task 'work' .*; tasks that somebody here can do: other"
        ) as caught:
            kit.wait(job)
        assert caught.value.job.status is JobStatus.WAITING_FOR_WORKER


def test_wait_names_the_quarantined_child() -> None:
    sick = script(lambda context, actions: 1 / 0, "done", name="child")
    parent = script(
        lambda context, actions: actions.run_blueprint("child", transitions={"success": "done"}), "done"
    )
    with TestOrchestrator(sick, parent) as kit:
        job = kit.run("script")
        with pytest.raises(
            NotSettled, match=r"its child .* is quarantined in state 'start'.*ZeroDivisionError"
        ):
            kit.wait(job)


def test_wait_gives_up_after_the_time_that_it_was_given() -> None:
    with TestOrchestrator(reminder()) as kit:
        job = kit.submit("script")
        with pytest.raises(NotSettled, match="AwaitTimer"):
            kit.wait(job, timeout_s=60)
        assert kit.now == BEGINNING + timedelta(seconds=60)


# -- the cast ------------------------------------------------------------------------------------------


def test_tasks_may_be_defined_before_and_after_the_first_job() -> None:
    with TestOrchestrator(one_task()) as kit:
        job = kit.submit("script")
        kit.task("work")(lambda params: {"late": True})
        assert kit.wait(job).data == {"late": True}
        kit.crash()
        assert kit.run("script").data == {"late": True}


def test_workers_of_the_users_own_take_part() -> None:
    mine = Worker("mine")
    mine.task("work")(lambda params: {"by": "mine"})
    with TestOrchestrator(one_task(), workers=[mine]) as kit:
        kit.task("other")(lambda params: None)
        assert kit.run("script").data == {"by": "mine"}


def test_the_same_seed_gives_the_same_ids_and_another_seed_others() -> None:
    def ids(seed: int) -> list[str]:
        with TestOrchestrator(one_task(), seed=seed) as kit:
            return [kit.submit("script").id for _ in range(3)]

    assert ids(1) == ids(1) != ids(2)


# -- accidents -----------------------------------------------------------------------------------------


def test_a_crash_forgets_memory_and_keeps_the_disk() -> None:
    with TestOrchestrator(one_task()) as kit:
        runs: list[int] = []

        @kit.task("work")
        async def work(params: dict[str, Any]) -> None:
            runs.append(1)
            await asyncio.sleep(60)

        job = kit.submit("script")
        kit.skip(30)
        before = kit.director
        kit.crash()
        assert kit.director is not before
        assert kit.crashes == 1
        assert kit.wait(job).status is JobStatus.FINISHED
        assert len(runs) == 2  # the work in hand was lost with the worker


@pytest.mark.parametrize(("when", "jobs"), [("before", 1), ("after", 2)])
def test_crash_before_loses_the_write_and_crash_after_keeps_it(when: When, jobs: int) -> None:
    with TestOrchestrator(one_task()) as kit:
        kit.crash_at(lambda event: event.type is EventType.JOB_CREATED, when)
        # asked again after the restart, and without a key that tells them apart
        kit.call(lambda: kit.director.submit("script"))
        assert (kit.crashes, len(kit.jobs())) == (1, jobs)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_submission_that_meets_a_crash_is_one_job(when: When) -> None:
    with TestOrchestrator(one_task()) as kit:
        kit.crash_at(1, when)
        job = kit.submit("script")
        assert (kit.crashes, len(kit.jobs())) == (1, 1)
        assert types(kit.events(job)).count("job_created") == 1


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_call_that_meets_a_crash_asks_again_as_a_client_would(when: When) -> None:
    asks = script(
        lambda context, actions: actions.await_human_approval(
            "ok?", transitions={"again": "start", "yes": "done"}
        ),
        "done",
    )
    sick = script(
        lambda context, actions: actions.dispatch_task("sick", transitions={"success": "done"}),
        "done",
        name="sick",
    )
    with TestOrchestrator(asks, sick) as kit:

        @kit.task("sick")
        async def fail(params: dict[str, Any]) -> dict[str, Any]:
            return {"error": {"code": "PERMANENT_ERROR"}}

        job = kit.run("script")
        kit.crash_at(1, when)
        assert kit.approve(job, "again").visit == job.visit + 1  # once, not twice
        kit.crash_at(1, when)
        assert kit.cancel(job).status is JobStatus.CANCELLED
        job = kit.run("sick")
        kit.crash_at(1, when)
        kit.release(job)
        assert kit.wait(job).visit == job.visit + 1
        kit.crash_at(1, when)
        assert kit.fail(job, "enough").status is JobStatus.FAILED
        assert kit.crashes == 4


@pytest.mark.parametrize(("boundary", "when"), [(0, "before"), (1, "during")])
def test_a_crash_that_makes_no_sense_is_refused(boundary: int, when: Any) -> None:
    with TestOrchestrator() as kit, pytest.raises(ValueError, match="expected"):
        kit.crash_at(boundary, when)


# -- the end -------------------------------------------------------------------------------------------


class Forgetful(MemoryHistory):
    """Loses one event of a kind."""

    async def record(self, entries: Any) -> None:
        kept: list[OutboxEntry] = []
        for entry in entries:
            events = tuple(e for e in entry.events if e.type is not EventType.JOB_FINISHED)
            kept.append(OutboxEntry(entry.number, entry.job_id, entry.first_seq, events, entry.summary))
        await super().record(kept)


def test_leaving_checks_the_promises() -> None:
    kit = TestOrchestrator(one_task(), history=Forgetful())
    kit.task("work")(lambda params: None)
    kit.run("script")
    kit.skip(10)
    with pytest.raises(InvariantBroken, match="promise 1"):
        kit.close()
    kit.close()  # twice is fine


def test_a_test_that_failed_is_not_blamed_twice() -> None:
    def fails() -> None:
        with TestOrchestrator(one_task(), history=Forgetful()) as kit:
            kit.task("work")(lambda params: None)
            kit.run("script")
            kit.skip(10)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()


def test_a_closed_kit_says_so() -> None:
    kit = TestOrchestrator(one_task())
    kit.close()
    with pytest.raises(RuntimeError, match="closed"):
        kit.submit("script")


def test_a_chore_that_fails_fails_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(self: RecoveryChore, now: Any) -> Any:
        raise ZeroDivisionError("a bug of ours")

    with TestOrchestrator(one_task()) as kit:
        kit.submit("script")
        monkeypatch.setattr(RecoveryChore, "run_once", broken)
        with pytest.raises(ZeroDivisionError):
            kit.skip(60)
        monkeypatch.undo()
        kit.close(check=False)


def test_history_can_be_read_beside_events() -> None:
    with TestOrchestrator(one_task()) as kit:
        kit.task("work")(lambda params: None)
        job = kit.run("script")
        kit.skip(5)
        assert kit.call(lambda: kit.history.events(job.id)) == kit.events(job)
        summary = kit.call(lambda: summary_of(kit.history, job.id))
        assert summary is not None
        assert summary.status == "finished"


def test_a_history_in_a_file_works_on_virtual_time_too(tmp_path: Path) -> None:
    with TestOrchestrator(one_task(), history=SqliteHistory(tmp_path / "history.db")) as kit:
        kit.task("work")(lambda params: None)
        job = kit.run("script")
        kit.skip(5)
        kit.crash()
        kit.skip(5)
        told = kit.call(lambda: kit.history.events(job.id))
        assert [event.seq for event in told] == list(range(1, len(told) + 1))


def test_many_events_are_read_to_the_last() -> None:
    def start(context: JobContext, actions: ActionFactory) -> None:
        rounds = context.state_history["rounds"] = context.state_history.get("rounds", 0) + 1
        if rounds < 400:
            actions.sleep(1)
        else:
            actions.transition_to("done")

    with TestOrchestrator(script(start, "done")) as kit:
        job = kit.run("script")
        events = kit.events(job)
        assert len(events) > 1500
        assert events[-1].type is EventType.JOB_FINISHED


def test_a_job_in_quarantine_counts_as_settled() -> None:
    with TestOrchestrator(one_task()) as kit:
        puppet = Puppet(kit)
        puppet.join()
        job = kit.submit("script")
        puppet.settle()
        puppet.fail(puppet.tasks[0], "PERMANENT_ERROR", "broken")
        assert fault(kit.wait(job)) == "PERMANENT_ERROR"
