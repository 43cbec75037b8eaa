"""What people, clocks and other jobs do to a job: cancel, approval, children, quarantine, timers.

DESIGN 5; FENCES 15, 16, 18.
"""

import asyncio
from typing import Any

import pytest

from regista import (
    Config,
    EventType,
    Job,
    JobAlreadyTerminal,
    JobStatus,
    OrchestratorEngine,
    PermanentError,
    StateMachineBlueprint,
)
from regista.blueprint import ActionFactory, JobContext
from regista.engines.base import Submission
from regista.engines.native.submissions import body_hash, job_id_for_key
from regista.errors import (
    ApprovalConflict,
    NotQuarantined,
    OrchestratorStopped,
)
from regista.model import ResultVerdict
from regista.testing.orchestrator import TestOrchestrator
from tests.support import Puppet, fan_out, fault, one_task, only, script, types

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
        lambda context, actions: actions.await_human_approval(
            "ok?", transitions={"yes": "over", "no": "other"}
        ),
        "over",
        "other",
        name="child",
    )


WAYS = {
    "human": lambda c, a: a.await_human_approval("ok?", transitions={"yes": "done"}),
    "timer": lambda c, a: a.sleep(1000, then="done"),
    "queued": lambda c, a: a.dispatch_task("nobody", transitions={"success": "done"}),
    "queued branches": lambda c, a: [
        a.dispatch_task("nobody", transitions={"success": "join"}) for _ in range(3)
    ],
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
        assert puppet.finish(puppet.tasks[0], status="cancelled") is ResultVerdict.ACCEPTED
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
        assert puppet.finish(puppet.tasks[0], {"n": 1}) is ResultVerdict.ACCEPTED
        job = kit.get(job)
        assert (job.status, job.state, job.data) == (JobStatus.CANCELLED, "start", {})
        assert types(kit.events(job)).count("task_finished") == 1
        assert puppet.finish(puppet.tasks[0], {"n": 1}) is ResultVerdict.ACCEPTED


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
        assert puppet.finish(puppet.tasks[0]) is ResultVerdict.JOB_CANCELLED


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
        assert puppet.finish(task, {"n": 1}) is ResultVerdict.ACCEPTED
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
        lambda context, actions: actions.run_blueprint("middle", transitions={"success": "done"}),
        "done",
        name="top",
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
        lambda context, actions: actions.await_human_approval(
            "ship it?", transitions={"yes": "nap", "no": "done"}
        ),
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
        lambda context, actions: actions.await_human_approval(
            "ok?", transitions={"again": "start", "yes": "done"}
        ),
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

        async def both() -> tuple[Job | BaseException, Job | BaseException]:
            return await asyncio.gather(
                kit.director.approve(job.id, "yes"),
                kit.director.approve(job.id, "no"),
                return_exceptions=True,
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
        lambda context, actions: actions.run_blueprint("child", {"n": 7}, transitions=transitions),
        *ends,
        name="parent",
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
        actions.dispatch_task(
            "work", {"codec": context.state_history.get("codec")}, transitions={"success": "done"}
        )

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
        assert (after.status, after.error, after.data) == (
            JobStatus.FINISHED,
            None,
            {"codec": "av1", "ok": True},
        )
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


# -- many at once ------------------------------------------------------------------------------------


def test_waiting_for_any_answers_with_those_that_settled_and_with_none_when_the_time_is_up() -> None:
    with TestOrchestrator(script(lambda context, actions: actions.sleep(60, then="done"), "done")) as kit:
        slow = kit.submit("script")
        kit.skip(30)
        late = kit.submit("script")
        ids = [slow.id, late.id, "nobody"]
        assert kit.call(lambda: kit.director.engine.wait(ids, 10)) == ({}, ["nobody"])
        ended, unknown = kit.call(lambda: kit.director.engine.wait(ids, 100))
        assert {job_id: job.status for job_id, job in ended.items()} == {slow.id: JobStatus.FINISHED}
        assert unknown == ["nobody"]
        began = kit.now
        again, _ = kit.call(lambda: kit.director.engine.wait(ids, 100))
        assert (list(again), kit.now) == ([slow.id], began)
        nobody = kit.call(lambda: kit.director.engine.wait(["nobody"], 100))
        strangers = kit.call(lambda: kit.director.engine.wait([late.id], 100, owner="acme"))
        assert (nobody, strangers, kit.now) == (({}, ["nobody"]), ({}, [late.id]), began)


def test_waiting_for_any_lingers_for_those_that_settle_soon_after() -> None:
    with TestOrchestrator(script(lambda context, actions: actions.sleep(60, then="done"), "done")) as kit:
        first = kit.submit("script")
        kit.skip(2)
        second = kit.submit("script")
        kit.skip(20)
        third = kit.submit("script")
        ids = [third.id, first.id, second.id]
        ended, _ = kit.call(lambda: kit.director.engine.wait(ids, 100, collect_s=5))
        assert set(ended) == {first.id, second.id}


def test_who_lingers_is_answered_when_the_last_one_settles() -> None:
    with TestOrchestrator(script(lambda context, actions: actions.sleep(60, then="done"), "done")) as kit:
        ids = []
        for _ in range(3):
            ids.append(kit.submit("script").id)
            kit.skip(1)
        began = kit.now
        ended, unknown = kit.call(
            lambda: kit.director.engine.wait([*ids, "nobody"], 100, collect_s=30, owner="")
        )
        assert (list(ended), unknown) == (ids, ["nobody"])
        assert (kit.now - began).total_seconds() < 62


def test_one_who_waits_for_the_same_jobs_may_leave_before_the_others() -> None:
    with TestOrchestrator(script(lambda context, actions: actions.sleep(60, then="done"), "done")) as kit:
        job, other = kit.submit("script"), kit.submit("script")
        engine = kit.director.engine

        async def together() -> tuple[Any, ...]:
            return await asyncio.gather(
                engine.wait([job.id, other.id], 10), engine.wait([job.id], 100), engine.wait_one(job.id)
            )

        left, stayed, waited = kit.call(together)
        assert (left, list(stayed.ended), waited.status) == (({}, []), [job.id], JobStatus.FINISHED)


async def test_nobody_waits_for_an_orchestrator_that_has_stopped() -> None:
    director = OrchestratorEngine("memory", Config(instance_id="x"))
    director.register_blueprint(one_task())
    await director.start()
    job = await director.submit("script")
    waits = [
        asyncio.ensure_future(director.engine.wait_one(job.id)),
        asyncio.ensure_future(director.engine.wait_one(job.id, 60)),
        asyncio.ensure_future(director.engine.wait([job.id], 60)),
    ]
    await asyncio.sleep(0)
    await director.stop()
    for error in await asyncio.gather(*waits, return_exceptions=True):
        assert isinstance(error, OrchestratorStopped)


def test_what_is_wrong_with_one_submission_is_told_in_its_place() -> None:
    with TestOrchestrator(one_task()) as kit:
        wishes = [
            Submission(blueprint="script", input={"n": 1}),
            Submission(blueprint="scirpt"),
            Submission(blueprint="script", input={"n": 2**70}),
            Submission(blueprint="script", input={"n": 2}),
        ]
        answers = kit.call(lambda: kit.director.engine.submit(wishes))
        assert [type(answer).__name__ for answer in answers] == [
            "Job",
            "BlueprintNotFound",
            "NotSerializable",
            "Job",
        ]
        assert len(kit.jobs()) == 2
        assert kit.call(lambda: kit.director.engine.submit([])) == []


def test_a_key_that_begins_with_its_time_gives_an_id_that_does() -> None:
    key = "019b76da-a800-7abc-b8f9-c1a0c2094cac"

    assert job_id_for_key("ada", key)[:13] == key[:13]
    assert job_id_for_key("ada", key) == job_id_for_key("ada", key) != job_id_for_key("bob", key)
    assert job_id_for_key("ada", key) != job_id_for_key("ada", key[:-1] + "d")
    assert len(job_id_for_key("ada", key)) == len(job_id_for_key("ada", "any other key")) == 36


def test_a_decision_that_is_meant_for_one_question_answers_no_later_one() -> None:
    def ask(context: JobContext, actions: ActionFactory) -> None:
        actions.await_human_approval("sure?", transitions={"yes": "done", "no": "start"})

    with TestOrchestrator(script(ask, "done")) as kit:
        job = kit.run("script")
        first = job.visit
        engine = kit.director.engine
        kit.call(lambda: engine.approve(job.id, "no", visit=first))
        with pytest.raises(ApprovalConflict):
            kit.call(lambda: engine.approve(job.id, "yes", visit=first))
        second = kit.get(job).visit
        kit.call(lambda: engine.approve(job.id, "yes", visit=second))
        assert kit.get(job).status is JobStatus.FINISHED


def test_a_body_has_the_hash_that_older_releases_stored_for_it() -> None:
    plain = Submission(blueprint="b")
    full = Submission(
        blueprint="b",
        input={"z": 1, "a": [1, {"k": 2.5, "b": None}]},
        client="c",
        idempotency_key="k",
        priority=2.0,
        dispatch_timeout_s=3.0,
        webhook_url="http://x",
        search_attributes={"q": "r"},
        tracing_context={"traceparent": "not part of it"},
    )
    assert body_hash(plain) == "a496540319b388218ac555e51c4690d7"
    assert body_hash(full) == "6f7acfd239c0e2522e840c6e866f2329"


async def test_many_that_are_submitted_at_once_are_answered_in_their_order() -> None:
    async def slow(context: JobContext, actions: ActionFactory) -> None:
        await asyncio.sleep(0.05 if context.initial_data["n"] == 1 else 0)
        actions.transition_to("done")

    director = OrchestratorEngine("memory")
    director.register_blueprint(script(slow, "done"))
    await director.start()
    # when
    wishes = [Submission(blueprint="script", input={"n": n}) for n in range(5)]
    jobs = await director.submit_many(wishes)
    # then
    assert [job.input["n"] for job in jobs if isinstance(job, Job)] == [0, 1, 2, 3, 4]
    assert await director.submit_many([]) == []
    await director.stop()


async def test_many_that_are_submitted_to_one_who_stops_are_told_so() -> None:
    director = OrchestratorEngine("memory")
    director.register_blueprint(script(lambda context, actions: actions.transition_to("done"), "done"))
    await director.start()
    # when
    wishes = [Submission(blueprint="script") for _ in range(3)]
    waiting = asyncio.create_task(director.submit_many(wishes))
    await asyncio.sleep(0)
    await director.stop()
    # then
    try:
        jobs = await waiting
    except OrchestratorStopped:
        return
    assert len(jobs) == 3
