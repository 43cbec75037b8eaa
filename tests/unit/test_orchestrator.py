"""What clients and people can do to a job, from submission to its end. DESIGN 5; FENCES 15 to 18, 20."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from regista import (
    Config,
    EventType,
    Job,
    JobAlreadyTerminal,
    JobNotFound,
    JobStatus,
    MemoryStorage,
    OrchestratorEngine,
    PermanentError,
    SqliteStorage,
    StateMachineBlueprint,
    Worker,
)
from regista.blueprint import ActionFactory, JobContext
from regista.engines.base import Submission, Verdict
from regista.errors import (
    ApprovalConflict,
    BlueprintInvalid,
    BlueprintNotFound,
    ConfigError,
    IdempotencyConflict,
    NotQuarantined,
    StorageFailed,
)
from regista.history.sqlite import SqliteHistory
from regista.model import AwaitVersion
from regista.orchestrator import build_history, build_storage
from regista.testing.clock import LoopClock
from regista.testing.disk import SimulatedDisk
from regista.testing.loop import VirtualLoop
from regista.testing.orchestrator import TestOrchestrator
from tests.support import Puppet, answer, fan_out, fault, one_task, only, script, types

# -- submitting (FENCES 17) ------------------------------------------------------------------------


def test_an_unknown_blueprint_is_refused_and_the_known_ones_are_named() -> None:
    with TestOrchestrator(one_task()) as kit, pytest.raises(BlueprintNotFound, match="registered: script"):
        kit.submit("scirpt")


def test_an_invalid_blueprint_is_refused_at_registration() -> None:
    with TestOrchestrator() as kit, pytest.raises(BlueprintInvalid):
        kit.director.register_blueprint(StateMachineBlueprint("empty"))


def test_input_that_no_store_can_keep_is_refused_and_nothing_is_stored() -> None:
    with TestOrchestrator(one_task()) as kit:
        for odd in ({"odd": object()}, {"big": 2**70}):
            with pytest.raises(ValueError, match="plain data"):
                kit.submit("script", odd)
        assert kit.jobs() == []


def test_an_acknowledged_submission_survives_a_power_cut() -> None:
    with TestOrchestrator(one_task()) as kit:
        job = kit.submit("script", {"n": 1})
        kit.crash()
        kept = kit.get(job)
        assert (kept.input, kept.status) == ({"n": 1}, JobStatus.WAITING_FOR_WORKER)


def test_the_same_key_and_body_return_the_same_job_also_after_it_ended_and_after_a_restart() -> None:
    with TestOrchestrator(one_task()) as kit:
        kit.task("work")(lambda params: None)
        first = kit.submit("script", {"n": 1}, idempotency_key="k")
        assert kit.submit("script", {"n": 1}, idempotency_key="k").id == first.id
        assert kit.wait(first).status is JobStatus.FINISHED
        replayed = kit.submit("script", {"n": 1}, idempotency_key="k")
        assert (replayed.id, replayed.status) == (first.id, JobStatus.FINISHED)
        kit.crash()
        assert kit.submit("script", {"n": 1}, idempotency_key="k").id == first.id
        assert types(kit.events(first)).count("job_created") == 1


def test_the_same_key_with_another_body_is_a_conflict_also_after_a_restart() -> None:
    with TestOrchestrator(one_task()) as kit:
        kit.submit("script", {"n": 1}, idempotency_key="k")
        for _ in range(2):
            with pytest.raises(IdempotencyConflict):
                kit.submit("script", {"n": 2}, idempotency_key="k")
            kit.crash()


def test_the_same_key_of_another_client_is_another_job() -> None:
    with TestOrchestrator(one_task()) as kit:
        ours = kit.submit("script", {"n": 1}, idempotency_key="k", client="us")
        theirs = kit.submit("script", {"n": 2}, idempotency_key="k", client="them")
        assert ours.id != theirs.id


def test_the_same_key_twice_at_once_is_one_job() -> None:
    with TestOrchestrator(one_task()) as kit:

        async def both() -> list[Job]:
            ask = kit.director.submit
            return await asyncio.gather(*(ask("script", {"n": 1}, idempotency_key="k") for _ in range(5)))

        assert len({job.id for job in kit.call(both)}) == 1
        assert len(kit.jobs()) == 1


def test_a_batch_is_one_flush_and_answers_per_item() -> None:
    with TestOrchestrator(one_task()) as kit:
        kit.task("work")(lambda params: {"n": params["n"]})
        kit.skip(0)
        before = kit.writes
        wishes = [Submission(blueprint="script", input={"n": n}, idempotency_key=f"k{n}") for n in range(50)]
        wishes.append(wishes[0])
        jobs = kit.call(lambda: kit.director.submit_many(wishes))
        assert kit.writes - before <= 2  # the batch itself; its handlers may already share the next one
        assert jobs[-1].id == jobs[0].id
        assert [kit.wait(job).data["n"] for job in jobs[:50]] == list(range(50))


def test_a_batch_with_one_wrong_item_writes_nothing() -> None:
    with TestOrchestrator(one_task()) as kit:
        wishes = [Submission(blueprint="script"), Submission(blueprint="nobody")]
        with pytest.raises(BlueprintNotFound):
            kit.call(lambda: kit.director.submit_many(wishes))
        assert kit.jobs() == []


def test_jobs_can_be_started_from_inside() -> None:
    with TestOrchestrator(one_task()) as kit:
        kit.task("work")(lambda params: None)
        job_id = kit.call(lambda: kit.director.create_background_job("script", {"n": 1}, source="cron"))
        assert kit.wait(job_id).client == "cron"
        assert kit.call(lambda: kit.director.run_job("script")).status is JobStatus.FINISHED


def test_nobody_knows_a_job_that_never_was() -> None:
    with TestOrchestrator(one_task()) as kit:
        for ask in (kit.get, kit.cancel, kit.wait):
            with pytest.raises(JobNotFound):
                ask("nobody")


# -- cancel (FENCES 15) --------------------------------------------------------------------------------


def parent_of(child: str = "child") -> StateMachineBlueprint:
    return script(
        lambda context, actions: actions.run_blueprint(
            "child", dict(context.initial_data), transitions={"success": "done", "cancelled": "sorry"}
        ),
        "done",
        "sorry",
        name="parent",
    )


def waiting_child() -> StateMachineBlueprint:
    return script(
        lambda context, actions: actions.await_human_approval("ok?", transitions={"yes": "over", "no": "other"}),
        "over",
        "other",
        name="child",
    )


WAYS = {
    "human": lambda c, a: a.await_human_approval("ok?", transitions={"yes": "done"}),
    "timer": lambda c, a: a.sleep(1000, then="done"),
    "queued": lambda c, a: a.dispatch_task("nobody", transitions={"success": "done"}),
    "queued branches": lambda c, a: [a.dispatch_task("nobody", transitions={"success": "join"}) for _ in range(3)],
    "retry": lambda c, a: 1 / 0,
}


@pytest.mark.parametrize("way", WAYS)
def test_cancel_ends_a_job_at_once_when_nobody_works_for_it(way: str) -> None:
    def join(context: JobContext, actions: ActionFactory) -> None:
        actions.transition_to("done")

    with TestOrchestrator(script(WAYS[way], "done", aggregators=["join"], join=join)) as kit:
        job = kit.submit("script")
        after = kit.cancel(job, "changed my mind")
        assert (after.status, after.state, after.unconfirmed) == (JobStatus.CANCELLED, "start", False)
        assert fault(after) == "cancelled"
        (asked,) = only(kit.events(job), EventType.CANCEL_REQUESTED)
        assert asked.message == "changed my mind"
        kit.skip(days=1)
        assert kit.get(job) == after


def test_cancel_of_a_quarantined_job_ends_it() -> None:
    with TestOrchestrator(script(lambda context, actions: actions.set_result(object()), "done")) as kit:
        job = kit.run("script")
        assert job.status is JobStatus.QUARANTINED
        assert kit.cancel(job).status is JobStatus.CANCELLED


def test_cancel_waits_for_the_word_of_the_worker_and_is_then_confirmed() -> None:
    with TestOrchestrator(one_task()) as kit:
        puppet = Puppet(kit)
        puppet.join()
        job = kit.submit("script")
        puppet.settle()
        assert kit.cancel(job).status is JobStatus.CANCELLING
        assert kit.cancel(job).status is JobStatus.CANCELLING  # twice is fine
        assert puppet.cancels == [puppet.tasks[0].attempt_id]
        kit.skip(10)
        assert puppet.finish(puppet.tasks[0], status="cancelled") is Verdict.ACCEPTED
        job = kit.get(job)
        assert (job.status, job.unconfirmed) == (JobStatus.CANCELLED, False)


def test_cancel_stops_a_task_function_of_the_local_worker() -> None:
    stopped: list[bool] = []
    with TestOrchestrator(one_task()) as kit:

        @kit.task("work")
        async def work(params: dict[str, Any]) -> None:
            try:
                await asyncio.sleep(100)
            finally:
                stopped.append(True)

        job = kit.submit("script")
        kit.skip(1)
        job = kit.cancel(job)
        assert (job.status, job.unconfirmed, stopped) == (JobStatus.CANCELLED, False, [True])


def test_once_requested_cancel_wins_over_a_later_success_which_is_recorded_and_not_followed() -> None:
    with TestOrchestrator(one_task()) as kit:
        puppet = Puppet(kit)
        puppet.join()
        job = kit.submit("script")
        puppet.settle()
        kit.cancel(job)
        assert puppet.finish(puppet.tasks[0], {"n": 1}) is Verdict.ACCEPTED
        job = kit.get(job)
        assert (job.status, job.state, job.data) == (JobStatus.CANCELLED, "start", {})
        assert types(kit.events(job)).count("task_finished") == 1
        assert puppet.finish(puppet.tasks[0], {"n": 1}) is Verdict.ACCEPTED


def test_a_retry_is_not_waited_for_once_a_cancel_was_requested() -> None:
    with TestOrchestrator(one_task()) as kit:
        puppet = Puppet(kit)
        puppet.join()
        job = kit.submit("script")
        puppet.settle()
        kit.cancel(job)
        puppet.fail(puppet.tasks[0], "TRANSIENT_ERROR")
        assert kit.get(job).status is JobStatus.CANCELLED


def test_without_a_word_the_job_is_cancelled_at_the_deadline_as_unconfirmed() -> None:
    with TestOrchestrator(one_task()) as kit:
        puppet = Puppet(kit, lease_s=1000)
        puppet.join()
        job = kit.submit("script")
        puppet.settle()
        kit.cancel(job)
        kit.skip(29)
        assert kit.get(job).status is JobStatus.CANCELLING
        kit.skip(1)
        job = kit.get(job)
        assert (job.status, job.unconfirmed) == (JobStatus.CANCELLED, True)
        assert puppet.finish(puppet.tasks[0]) is Verdict.JOB_CANCELLED


def test_a_fan_out_is_cancelled_when_its_last_branch_has_answered() -> None:
    with TestOrchestrator(fan_out(3)) as kit:
        puppet = Puppet(kit, capacity=2)
        puppet.join()
        job = kit.submit("script")
        puppet.settle()
        first, second = puppet.tasks
        assert kit.cancel(job).status is JobStatus.CANCELLING
        puppet.finish(first, status="cancelled")
        assert kit.get(job).status is JobStatus.CANCELLING
        puppet.finish(second, {"n": 1})
        job = kit.get(job)
        assert (job.status, job.state, job.unconfirmed) == (JobStatus.CANCELLED, "start", False)


def test_a_fan_out_that_does_not_answer_is_cancelled_at_the_deadline() -> None:
    with TestOrchestrator(fan_out(3)) as kit:
        puppet = Puppet(kit, capacity=2, lease_s=1000)
        puppet.join()
        job = kit.submit("script")
        puppet.settle()
        kit.cancel(job)
        puppet.finish(puppet.tasks[0], status="cancelled")
        kit.skip(31)
        job = kit.get(job)
        assert (job.status, job.unconfirmed) == (JobStatus.CANCELLED, True)


def test_cancel_of_a_worker_that_died_is_confirmed_by_its_lapsed_lease() -> None:
    with TestOrchestrator(one_task(), config=Config(instance_id="test", cancel_grace_s=1000)) as kit:
        puppet = Puppet(kit, lease_s=10)
        puppet.join()
        job = kit.submit("script")
        puppet.settle()
        kit.cancel(job)
        kit.skip(100)
        assert kit.get(job).status is JobStatus.CANCELLED


def test_cancel_survives_a_crash_and_still_wins() -> None:
    with TestOrchestrator(one_task()) as kit:
        puppet = Puppet(kit, lease_s=1000)
        puppet.join()
        job = kit.submit("script")
        puppet.settle()
        (task,) = puppet.tasks
        kit.cancel(job)
        kit.crash()
        puppet.join(task.attempt_id)
        assert puppet.finish(task, {"n": 1}) is Verdict.ACCEPTED
        assert kit.get(job).status is JobStatus.CANCELLED


def test_cancel_of_an_ended_job_is_refused() -> None:
    with TestOrchestrator(one_task()) as kit:
        kit.task("work")(lambda params: None)
        job = kit.run("script")
        with pytest.raises(JobAlreadyTerminal, match="already finished"):
            kit.cancel(job)
        cancelled = kit.submit("script", result_timeout_s=5)
        kit.wait(cancelled)
        with pytest.raises(JobAlreadyTerminal):
            kit.cancel(cancelled)


def test_cancel_goes_down_to_the_child_and_its_end_comes_up() -> None:
    with TestOrchestrator(parent_of(), waiting_child()) as kit:
        parent = kit.run("parent")
        (child,) = [job for job in kit.jobs() if job.parent_id == parent.id]
        after = kit.cancel(parent, "stop all of it")
        assert (after.status, after.unconfirmed) == (JobStatus.CANCELLED, False)
        assert kit.get(child).status is JobStatus.CANCELLED


def test_cancel_goes_down_three_floors_and_waits_for_the_worker_at_the_bottom() -> None:
    top = script(
        lambda context, actions: actions.run_blueprint("middle", transitions={"success": "done"}), "done", name="top"
    )
    middle = script(
        lambda context, actions: actions.run_blueprint("script", transitions={"success": "done"}),
        "done",
        name="middle",
    )
    with TestOrchestrator(top, middle, one_task()) as kit:
        puppet = Puppet(kit)
        puppet.join()
        job = kit.submit("top")
        puppet.settle()
        assert kit.cancel(job).status is JobStatus.CANCELLING
        puppet.finish(puppet.tasks[0], status="cancelled")
        kit.skip(0)
        assert {job.status for job in kit.jobs()} == {JobStatus.CANCELLED}


def test_a_child_that_was_cancelled_by_itself_leads_its_parent_on() -> None:
    with TestOrchestrator(parent_of(), waiting_child()) as kit:
        parent = kit.run("parent")
        (child,) = [job for job in kit.jobs() if job.parent_id == parent.id]
        kit.cancel(child)
        after = kit.wait(parent)
        assert (after.status, after.state) == (JobStatus.FINISHED, "sorry")


# -- approval (FENCES 18) --------------------------------------------------------------------------


def asking() -> StateMachineBlueprint:
    return script(
        lambda context, actions: actions.await_human_approval("ship it?", transitions={"yes": "nap", "no": "done"}),
        "done",
        nap=lambda context, actions: actions.sleep(100, then="done"),
    )


def test_a_decision_leads_on_and_its_data_is_merged() -> None:
    with TestOrchestrator(asking()) as kit:
        job = kit.run("script")
        assert job.status is JobStatus.WAITING_FOR_HUMAN
        after = kit.approve(job, "yes", "looks good", {"by": "ada"})
        assert (after.state, after.data) == ("nap", {"by": "ada"})
        (given,) = only(kit.events(job), EventType.APPROVAL_GIVEN)
        assert (given.code, given.message, given.detail) == ("yes", "looks good", {"by": "ada"})


def test_the_same_decision_twice_is_fine_and_another_is_a_conflict() -> None:
    with TestOrchestrator(asking()) as kit:
        job = kit.run("script")
        kit.approve(job, "yes")
        kit.approve(job, "yes")
        with pytest.raises(ApprovalConflict, match="waiting_for_timer"):
            kit.approve(job, "no")
        kit.wait(job)
        kit.approve(job, "yes")
        with pytest.raises(ApprovalConflict, match="finished"):
            kit.approve(job, "no")
        assert types(kit.events(job)).count("approval_given") == 1


def test_an_unknown_decision_is_refused_and_the_known_ones_are_named() -> None:
    with TestOrchestrator(asking()) as kit:
        job = kit.run("script")
        with pytest.raises(ApprovalConflict, match="expected one of no, yes; got 'maybe'"):
            kit.approve(job, "maybe")
        assert kit.get(job).status is JobStatus.WAITING_FOR_HUMAN


def test_a_decision_that_lost_to_cancel_is_a_conflict_with_the_current_status() -> None:
    with TestOrchestrator(asking()) as kit:
        job = kit.run("script")
        kit.cancel(job)
        with pytest.raises(ApprovalConflict, match="cancelled"):
            kit.approve(job, "yes")


def test_a_decision_nobody_asked_for_is_a_conflict() -> None:
    with TestOrchestrator(one_task()) as kit:
        job = kit.submit("script")
        with pytest.raises(ApprovalConflict, match="waiting_for_worker"):
            kit.approve(job, "yes")


def test_a_question_that_is_asked_again_needs_a_new_decision() -> None:
    blueprint = script(
        lambda context, actions: actions.await_human_approval("ok?", transitions={"again": "start", "yes": "done"}),
        "done",
    )
    with TestOrchestrator(blueprint) as kit:
        job = kit.run("script")
        for _ in range(3):
            visit = kit.get(job).visit
            assert kit.approve(job, "again").visit == visit + 1
        assert kit.approve(job, "yes").status is JobStatus.FINISHED


def test_two_people_at_once_only_one_decides() -> None:
    with TestOrchestrator(asking()) as kit:
        job = kit.run("script")

        async def both() -> list[Any]:
            return await asyncio.gather(
                kit.director.approve(job.id, "yes"), kit.director.approve(job.id, "no"), return_exceptions=True
            )

        first, second = kit.call(both)
        assert isinstance(first, Job)
        assert isinstance(second, ApprovalConflict)


def test_decision_data_that_no_store_can_keep_is_refused() -> None:
    with TestOrchestrator(asking()) as kit:
        job = kit.run("script")
        with pytest.raises(ValueError, match="plain data"):
            kit.approve(job, "yes", data={"odd": object()})


# -- children --------------------------------------------------------------------------------------------


def child_ending(state: str) -> StateMachineBlueprint:
    blueprint = StateMachineBlueprint("child")

    @blueprint.handler_for("begin", is_start=True, targets=["good", "bad", "failed"])
    def begin(context: JobContext, actions: ActionFactory) -> None:
        actions.set_result({"echo": context.initial_data.get("n")})
        actions.transition_to(state)

    blueprint.handler_for("good", is_end=True)(lambda context, actions: None)
    blueprint.handler_for("bad", is_end=True, outcome="failed")(lambda context, actions: None)
    blueprint.handler_for("failed", is_end=True)(lambda context, actions: None)
    return blueprint


def parent_with(transitions: dict[str, str], *ends: str) -> StateMachineBlueprint:
    return script(
        lambda context, actions: actions.run_blueprint("child", {"n": 7}, transitions=transitions), *ends, name="parent"
    )


@pytest.mark.parametrize(
    ("ends_in", "transitions", "parent_state"),
    [
        ("good", {"good": "a", "success": "b"}, "a"),
        ("good", {"other": "a", "success": "b"}, "b"),
        ("bad", {"bad": "a", "failure": "b"}, "a"),
        ("failed", {"success": "a", "failure": "b"}, "b"),
    ],
)
def test_the_end_state_of_a_child_is_the_key_else_its_outcome(
    ends_in: str, transitions: dict[str, str], parent_state: str
) -> None:
    with TestOrchestrator(parent_with(transitions, "a", "b"), child_ending(ends_in)) as kit:
        job = kit.run("parent")
        assert (job.status, job.state) == (JobStatus.FINISHED, parent_state)
        outcome = job.data["child_child"]
        assert (outcome["final_state"], outcome["result"]) == (ends_in, {"echo": 7})
        (child,) = [one for one in kit.jobs() if one.parent_id]
        assert (child.parent_id, child.id) == (job.id, outcome["child_id"])


@pytest.mark.parametrize("ends", [("a",), ("a", "failed")])
def test_a_child_whose_end_has_no_key_fails_its_parent(ends: tuple[str, ...]) -> None:
    with TestOrchestrator(parent_with({"success": "a"}, *ends), child_ending("bad")) as kit:
        job = kit.run("parent")
        assert (job.status, fault(job)) == (JobStatus.FAILED, "child_failed")
        assert job.state == ("failed" if "failed" in ends else "start")


def test_a_quarantined_child_keeps_its_parent_waiting_until_a_person_has_decided() -> None:
    child = script(lambda context, actions: actions.set_result(object()), "done", name="child")
    with TestOrchestrator(parent_with({"success": "a", "failure": "b"}, "a", "b"), child) as kit:
        job = kit.run("parent")
        assert job.status is JobStatus.WAITING_FOR_CHILD
        kit.skip(days=3)
        assert kit.get(job).status is JobStatus.WAITING_FOR_CHILD
        (sick,) = [one for one in kit.jobs() if one.parent_id]
        kit.fail(sick, "hopeless")
        after = kit.wait(job)
        assert (after.status, after.state) == (JobStatus.FINISHED, "b")


def test_a_child_of_an_unknown_blueprint_quarantines_and_names_it() -> None:
    with TestOrchestrator(parent_with({"success": "a"}, "a")) as kit:
        job = kit.run("parent")
        assert (job.status, fault(job)) == (JobStatus.QUARANTINED, "blueprint_not_found")
        assert "'child'" in str(job.error)


def test_a_blueprint_that_runs_itself_for_ever_is_stopped() -> None:
    endless = script(
        lambda context, actions: actions.run_blueprint("endless", transitions={"success": "done"}),
        "done",
        name="endless",
    )
    with TestOrchestrator(endless) as kit:
        kit.run("endless")
        kit.skip(0)
        deepest = max(kit.jobs(), key=lambda job: job.depth)
        assert (deepest.status, fault(deepest), deepest.depth) == (JobStatus.QUARANTINED, "too_deep", 16)


# -- quarantine (FENCES 16) --------------------------------------------------------------------------


def picky() -> StateMachineBlueprint:
    def start(context: JobContext, actions: ActionFactory) -> None:
        actions.dispatch_task("work", {"codec": context.state_history.get("codec")}, transitions={"success": "done"})

    return script(start, "done")


def only_av1(params: dict[str, Any]) -> dict[str, Any]:
    if params["codec"] != "av1":
        raise PermanentError("no such codec")
    return {"ok": True}


def test_a_quarantined_job_is_settled_keeps_its_state_and_answers_waiters() -> None:
    with TestOrchestrator(picky()) as kit:
        kit.task("work")(only_av1)
        job = kit.run("script")
        assert (job.status, job.state, job.status.terminal) == (JobStatus.QUARANTINED, "start", False)
        assert kit.call(lambda: kit.director.wait(job.id, 5)).status is JobStatus.QUARANTINED
        kit.crash()
        kit.skip(days=10)
        assert kit.get(job).status is JobStatus.QUARANTINED


def test_a_released_job_runs_its_state_again() -> None:
    with TestOrchestrator(picky()) as kit:
        kit.task("work")(only_av1)
        job = kit.run("script")
        kit.release(job)
        again = kit.wait(job)
        assert (again.status, again.visit) == (JobStatus.QUARANTINED, job.visit + 1)


def test_an_edited_and_released_job_goes_on_with_what_was_mended() -> None:
    with TestOrchestrator(picky()) as kit:
        kit.task("work")(only_av1)
        job = kit.run("script")
        kit.release(job, {"codec": "av1"})
        after = kit.wait(job)
        assert (after.status, after.error, after.data) == (JobStatus.FINISHED, None, {"codec": "av1", "ok": True})
        (released,) = only(kit.events(job), EventType.JOB_RELEASED)
        assert released.detail == {"codec": "av1"}


def test_a_quarantined_job_can_be_failed_by_hand() -> None:
    with TestOrchestrator(picky()) as kit:
        kit.task("work")(only_av1)
        job = kit.run("script")
        after = kit.fail(job, "not worth it")
        assert (after.status, after.state, str(after.error)) == (
            JobStatus.FAILED,
            "start",
            "Fault(code='failed_by_hand', message='not worth it')",
        )


def test_only_a_quarantined_job_can_be_released_or_failed_by_hand() -> None:
    with TestOrchestrator(one_task()) as kit:
        job = kit.submit("script")
        for ask in (kit.release, kit.fail):
            with pytest.raises(NotQuarantined, match="waiting_for_worker"):
                ask(job)
        kit.cancel(job)
        for ask in (kit.release, kit.fail):
            with pytest.raises(NotQuarantined, match="cancelled"):
                ask(job)


# -- timers ------------------------------------------------------------------------------------------


def test_sleep_leads_on_after_its_time_and_without_a_target_runs_the_state_again() -> None:
    def start(context: JobContext, actions: ActionFactory) -> None:
        rounds = context.state_history["rounds"] = context.state_history.get("rounds", 0) + 1
        if rounds < 3:
            actions.sleep(3600)
        else:
            actions.transition_to("done")

    with TestOrchestrator(script(start, "done")) as kit:
        began = kit.now
        job = kit.run("script")
        assert (job.data, (kit.now - began).total_seconds()) == ({"rounds": 3}, 7200)
        assert kit.states(job) == ["start", "start", "start", "done"]


def test_a_sleep_of_zero_seconds_goes_on_at_once() -> None:
    with TestOrchestrator(script(lambda context, actions: actions.sleep(0, then="done"), "done")) as kit:
        began = kit.now
        assert kit.run("script").status is JobStatus.FINISHED
        assert kit.now == began


def test_a_timer_survives_a_crash_and_rings_when_it_should() -> None:
    with TestOrchestrator(script(lambda context, actions: actions.sleep(100, then="done"), "done")) as kit:
        job = kit.submit("script")
        kit.skip(60)
        kit.crash()
        kit.skip(39)
        assert kit.get(job).status is JobStatus.WAITING_FOR_TIMER
        kit.skip(1)
        assert kit.get(job).status is JobStatus.FINISHED


# -- versions (FENCES 20) --------------------------------------------------------------------------


def version(extra: str | None = None, state: str = "middle") -> StateMachineBlueprint:
    """A job that waits for the task "work" in `state`; `extra` is one more state, so another version."""
    blueprint = StateMachineBlueprint("script")

    @blueprint.handler_for("start", is_start=True, targets=[state])
    def start(context: JobContext, actions: ActionFactory) -> None:
        actions.transition_to(state)

    @blueprint.handler_for(state, targets=["check", *([extra] if extra else [])])
    def middle(context: JobContext, actions: ActionFactory) -> None:
        actions.dispatch_task("work", transitions={"success": "check"})

    @blueprint.handler_for("check", targets=["done"])
    def check(context: JobContext, actions: ActionFactory) -> None:
        context.state_history["checked_by"] = extra or "first"
        actions.transition_to("done")

    if extra:
        blueprint.handler_for(extra, is_end=True)(answer)
    blueprint.handler_for("done", is_end=True)(answer)
    return blueprint


def test_a_job_stays_with_the_version_it_was_born_with_while_somebody_has_it() -> None:
    old, new = version(), version("extra")
    assert old.version != new.version
    with TestOrchestrator(old) as kit:
        puppet = Puppet(kit)
        puppet.join()
        job = kit.submit("script")
        kit.register(new)
        fresh = kit.submit("script")
        puppet.settle()
        for task in puppet.tasks:
            puppet.finish(task)
        assert kit.get(job).data == {"checked_by": "first"}
        assert kit.get(fresh).data == {"checked_by": "extra"}


def test_a_result_on_an_instance_without_the_version_is_kept_without_the_handler() -> None:
    old, new = version(), version("extra")
    with TestOrchestrator(old) as kit:
        puppet = Puppet(kit, lease_s=1000)
        puppet.join()
        job = kit.submit("script")
        puppet.settle()
        (task,) = puppet.tasks
        kit.forget(old)
        kit.crash()
        puppet.join(task.attempt_id)
        # when: nobody has any version
        assert puppet.finish(task, {"n": 1}) is Verdict.ACCEPTED
        kept = kit.get(job)
        assert (kept.state, kept.data, kept.status) == ("check", {"n": 1}, JobStatus.RUNNING)
        # then: it goes on with the newest as soon as there is one that knows its state
        kit.register(new)
        after = kit.wait(job)
        assert after.data == {"n": 1, "checked_by": "extra"}
        assert (after.version, types(kit.events(job)).count("job_migrated")) == (new.version, 1)


def test_a_version_that_nobody_has_and_nobody_can_take_over_is_named() -> None:
    old, new = version(), version("extra", state="elsewhere")
    stuck = script(lambda context, actions: actions.sleep(10, then="middle"), "done", middle=answer_later)
    with TestOrchestrator(stuck) as kit:
        job = kit.submit("script")
        kit.forget(stuck)
        kit.register(new)
        kit.crash()
        kit.skip(60)
        waiting = kit.get(job)
        assert isinstance(waiting.wait, AwaitVersion)
        assert (waiting.wait.reason, waiting.wait.version) == ("blueprint_version_missing", stuck.version)
        # and it is picked up again when the version comes back
        kit.register(stuck)
        assert kit.wait(job).status is JobStatus.FINISHED
        assert old.version != stuck.version


def answer_later(context: JobContext, actions: ActionFactory) -> None:
    actions.transition_to("done")


def test_a_timer_of_a_job_without_its_version_still_rings() -> None:
    blueprint = script(lambda context, actions: actions.sleep(10, then="done"), "done")
    with TestOrchestrator(blueprint) as kit:
        job = kit.submit("script")
        kit.forget(blueprint)
        kit.crash()
        kit.skip(11)
        assert kit.get(job).state == "done"
        kit.register(blueprint)
        assert kit.wait(job).status is JobStatus.FINISHED


def test_an_unknown_status_on_an_instance_without_the_version_finds_the_state_failed() -> None:
    blueprint = one_task("done", "failed")
    with TestOrchestrator(blueprint) as kit:
        puppet = Puppet(kit, lease_s=1000)
        puppet.join()
        job = kit.submit("script")
        puppet.settle()
        (task,) = puppet.tasks
        kit.forget(blueprint)
        kit.crash()
        puppet.join(task.attempt_id)
        puppet.finish(task, status="sideways")
        assert kit.get(job).state == "failed"
        kit.register(blueprint)
        assert kit.wait(job).status is JobStatus.FAILED


# -- life ------------------------------------------------------------------------------------------------


def played(main: Any, storage: MemoryStorage | None = None) -> None:
    """Run `main(director)` on a virtual loop, with the real upkeep and the real recorder."""
    loop = VirtualLoop()
    clock = LoopClock(loop)

    async def run() -> None:
        director = OrchestratorEngine(storage or MemoryStorage(clock, SimulatedDisk()), clock=clock)
        await main(director)

    loop.run_until_complete(run())
    loop.close()


def test_the_engine_runs_a_job_with_its_own_upkeep_and_recorder() -> None:
    async def main(director: OrchestratorEngine) -> None:
        blueprint = script(lambda context, actions: actions.sleep(5, then="more"), "done", more=retried)
        director.register_blueprint(blueprint)
        async with director:
            job = await director.run_job("script")
            assert job.status is JobStatus.FINISHED
            await asyncio.sleep(3)
            told = await director.history.events(job.id)
            assert [event.seq for event in told] == list(range(1, len(told) + 1))
            assert told[-1].type is EventType.JOB_FINISHED

    played(main)


def retried(context: JobContext, actions: ActionFactory) -> None:
    if context.attempt == 1:
        raise RuntimeError("once")
    actions.transition_to("done")


def test_start_and_stop_twice_are_fine_and_so_is_stop_before_start() -> None:
    async def main(director: OrchestratorEngine) -> None:
        await director.stop()
        await director.start()
        await director.start()
        await director.stop()
        await director.stop()
        await director.wait_stopped()

    played(main)


def test_what_is_unfinished_at_stop_goes_on_with_the_next_start() -> None:
    loop = VirtualLoop()
    clock = LoopClock(loop)
    disk = SimulatedDisk()
    blueprint = script(lambda context, actions: actions.sleep(100, then="done"), "done")

    async def first() -> str:
        director = OrchestratorEngine(MemoryStorage(clock, disk), clock=clock)
        director.register_blueprint(blueprint)
        async with director:
            return (await director.submit("script")).id

    async def second(job_id: str) -> Job:
        director = OrchestratorEngine(MemoryStorage(clock, disk), clock=clock)
        director.register_blueprint(blueprint)
        async with director:
            return await director.wait(job_id)

    job_id = loop.run_until_complete(first())
    assert loop.run_until_complete(second(job_id)).status is JobStatus.FINISHED
    loop.close()


def test_a_failed_flush_is_final_and_stops_the_orchestrator_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    disk = SimulatedDisk()
    loop = VirtualLoop()
    clock = LoopClock(loop)

    async def main() -> None:
        director = OrchestratorEngine(MemoryStorage(clock, disk), clock=clock)
        director.register_blueprint(one_task())
        await director.start()
        asking = asyncio.ensure_future(director.submit("script"))
        await asyncio.sleep(0.0001)
        disk.pull_the_plug()
        with pytest.raises(StorageFailed):
            await asking
        with pytest.raises(StorageFailed):
            await director.wait_stopped()

    with caplog.at_level(logging.CRITICAL):
        loop.run_until_complete(main())
    loop.close()
    assert "storage failed, stopping" in caplog.text


def test_two_workers_of_one_name_are_refused() -> None:
    async def main(director: OrchestratorEngine) -> None:
        director.add_worker(Worker("twin"))
        with pytest.raises(ValueError, match="twin"):
            director.add_worker(Worker("twin"))

    played(main)


def test_blueprints_are_loaded_from_their_directory(tmp_path: Path) -> None:
    (tmp_path / "hello.py").write_text(
        "from regista import StateMachineBlueprint\n"
        "hello = StateMachineBlueprint('hello')\n"
        "@hello.handler_for('start', is_start=True, is_end=True)\n"
        "def start(context, actions):\n"
        "    actions.set_result('hi')\n"
    )
    config = Config(instance_id="test", blueprints_dir=str(tmp_path))
    with TestOrchestrator(config=config) as kit:
        assert kit.run("hello").result == "hi"


def test_the_store_and_the_history_follow_their_settings(tmp_path: Path) -> None:
    clock = LoopClock(VirtualLoop())
    clock._loop.close()
    assert type(build_storage("memory", clock)) is MemoryStorage
    sqlite = build_storage(f"sqlite:{tmp_path}/jobs.db", clock)
    assert isinstance(sqlite, SqliteStorage)
    beside = build_history("", sqlite)
    assert isinstance(beside, SqliteHistory)
    for wrong in ("redis", "memory:x", "sqlite:"):
        with pytest.raises(ConfigError):
            build_storage(wrong, clock)
    with pytest.raises(ConfigError):
        build_history("postgres:x", sqlite)
