"""What a worker's word does to a job. DESIGN 5 rules; FENCES 6, 8, 15."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from regista import (
    EventType,
    InvalidInputError,
    Job,
    JobStatus,
    PermanentError,
    RetryPolicy,
    TaskResult,
    TransientError,
)
from regista.blueprint import ActionFactory, JobContext, StateMachineBlueprint
from regista.config import Config
from regista.machine.step import DecisionContext
from regista.machine.task_results import attempt_due
from regista.model import AttemptState, ResultVerdict, Task
from regista.testing.clock import BEGINNING
from regista.testing.orchestrator import TestOrchestrator
from tests.support import Puppet, fan_out, fault, one_task, only, script, types

TWICE = RetryPolicy(max_attempts=2, first_s=1.0, jitter=0.0)


# -- statuses and data -----------------------------------------------------------------------------


def test_no_status_means_success_and_a_dict_of_data_merges_into_state_history() -> None:
    def start(context: JobContext, actions: ActionFactory) -> None:
        context.state_history.update(kept=1, replaced="old")
        actions.dispatch_task("work", transitions={"success": "done"})

    with TestOrchestrator(script(start, "done")) as kit:
        kit.task("work")(lambda params: {"replaced": "new", "more": [1]})
        assert kit.run("script").data == {"kept": 1, "replaced": "new", "more": [1]}


@pytest.mark.parametrize("data", [7, "text", [1, 2], False])
def test_data_that_is_no_dict_is_kept_under_the_tasks_type(data: Any) -> None:
    with TestOrchestrator(one_task()) as kit:
        kit.task("work")(lambda params: data)
        job = kit.run("script")
        assert (job.status, job.data) == (JobStatus.FINISHED, {"work": data})


def test_a_task_that_returns_nothing_leaves_nothing() -> None:
    with TestOrchestrator(one_task()) as kit:
        kit.task("work")(lambda params: None)
        assert kit.run("script").data == {}


def test_a_fan_out_of_nothing_runs_its_aggregator_over_nothing() -> None:
    blueprint = StateMachineBlueprint("none")

    @blueprint.handler_for("split", is_start=True)
    def split(context: JobContext, actions: ActionFactory) -> None:
        actions.dispatch_parallel([], "join")

    @blueprint.aggregator_for("join", is_end=True)
    def join(context: JobContext, actions: ActionFactory) -> None:
        actions.set_result(len(context.aggregation_results))

    with TestOrchestrator(blueprint) as kit:
        job = kit.run("none")
        assert (job.status, job.result) == (JobStatus.FINISHED, 0)


def test_the_status_is_the_key_into_transitions() -> None:
    with TestOrchestrator(
        one_task("done", "blurred", transitions={"success": "done", "blurry": "blurred"})
    ) as kit:
        kit.task("work")(lambda params: {"status": "blurry", "data": {"sharpness": 0.1}})
        job = kit.run("script")
        assert (job.status, job.state, job.data) == (JobStatus.FINISHED, "blurred", {"sharpness": 0.1})


def test_an_unknown_status_ends_the_job_as_failed_and_says_what_was_expected() -> None:
    with TestOrchestrator(one_task()) as kit:
        kit.task("work")(lambda params: {"status": "sideways"})
        job = kit.run("script")
        assert (job.status, job.state, fault(job)) == (JobStatus.FAILED, "start", "unknown_status")
        assert "'sideways'; expected one of success" in str(job.error)


def test_an_unknown_status_leads_to_the_state_failed_whose_handler_runs() -> None:
    with TestOrchestrator(one_task("done", "failed")) as kit:
        kit.task("work")(lambda params: {"status": "sideways", "data": {"ignored": True}})
        job = kit.run("script")
        assert (job.status, job.state, fault(job)) == (JobStatus.FAILED, "failed", "unknown_status")
        assert (kit.states(job), job.result) == (["start", "failed"], {})


def test_failure_with_a_transition_of_its_own_is_followed_without_a_retry() -> None:
    with TestOrchestrator(
        one_task("done", "sorry", transitions={"success": "done", "failure": "sorry"})
    ) as kit:
        kit.task("work")(lambda params: {"status": "failure"})
        job = kit.run("script")
        assert (job.status, job.state) == (JobStatus.FINISHED, "sorry")
        assert only(kit.events(job), EventType.TASK_RETRIED) == []


# -- error kinds -------------------------------------------------------------------------------------


def test_a_transient_error_is_retried_with_backoff_and_then_quarantines() -> None:
    runs: list[float] = []
    with TestOrchestrator(one_task()) as kit:

        @kit.task("work")
        def work(params: dict[str, Any]) -> None:
            runs.append(kit.clock.elapsed())
            raise TransientError("busy")

        job = kit.run("script")
        # then: JOB_MAX_RETRIES=3 means three retries
        assert (job.status, fault(job), job.state) == (JobStatus.QUARANTINED, "TRANSIENT_ERROR", "start")
        pauses = [after - before for before, after in pairwise(runs)]
        assert pauses == [pytest.approx(1, rel=0.11), pytest.approx(2, rel=0.11), pytest.approx(4, rel=0.11)]


def test_job_max_retries_counts_retries_and_max_attempts_counts_runs() -> None:
    runs: list[int] = []

    def always_fails(params: dict[str, Any]) -> None:
        runs.append(1)
        raise RuntimeError("any exception is transient")

    with TestOrchestrator(one_task(), config=Config(instance_id="test", job_max_retries=5)) as kit:
        kit.task("work")(always_fails)
        assert kit.run("script").status is JobStatus.QUARANTINED
        assert len(runs) == 6
    runs.clear()
    with TestOrchestrator(one_task(retry=RetryPolicy(max_attempts=3))) as kit:
        kit.task("work")(always_fails)
        assert kit.run("script").status is JobStatus.QUARANTINED
        assert len(runs) == 3


def test_failure_with_neither_a_code_nor_a_transition_is_retried_like_a_transient_error() -> None:
    runs: list[int] = []
    with TestOrchestrator(one_task()) as kit:

        @kit.task("work")
        def work(params: dict[str, Any]) -> dict[str, Any]:
            runs.append(1)
            return {"status": "failure" if len(runs) < 3 else "success"}

        assert kit.run("script").status is JobStatus.FINISHED
        assert len(runs) == 3


def test_a_permanent_error_quarantines_without_a_retry() -> None:
    with TestOrchestrator(one_task()) as kit:

        @kit.task("work")
        def work(params: dict[str, Any]) -> None:
            raise PermanentError("no such codec", codec="av2")

        job = kit.run("script")
        assert (job.status, fault(job), job.state) == (JobStatus.QUARANTINED, "PERMANENT_ERROR", "start")
        assert only(kit.events(job), EventType.TASK_RETRIED) == []


@pytest.mark.parametrize("with_failed_state", [True, False])
def test_invalid_input_fails_the_job_through_the_state_failed_where_there_is_one(
    with_failed_state: bool,
) -> None:
    ends = ("done", "failed") if with_failed_state else ("done",)
    with TestOrchestrator(one_task(*ends)) as kit:

        @kit.task("work")
        def work(params: dict[str, Any]) -> None:
            raise InvalidInputError("not a video")

        job = kit.run("script")
        assert (job.status, fault(job)) == (JobStatus.FAILED, "INVALID_INPUT_ERROR")
        assert job.state == ("failed" if with_failed_state else "start")


@pytest.mark.parametrize(
    ("error", "code", "runs_expected"),
    [(PermanentError, "PERMANENT_ERROR", 1), (InvalidInputError, "INVALID_INPUT_ERROR", 1)],
)
def test_a_transition_named_after_an_error_code_wins_over_its_kind(
    error: type[Exception], code: str, runs_expected: int
) -> None:
    runs: list[int] = []
    with TestOrchestrator(one_task("done", "repair", transitions={"success": "done", code: "repair"})) as kit:

        @kit.task("work")
        def work(params: dict[str, Any]) -> None:
            runs.append(1)
            raise error("broken")

        job = kit.run("script")
        assert (job.status, job.state, len(runs)) == (JobStatus.FINISHED, "repair", runs_expected)


def test_a_transition_named_after_the_transient_error_comes_after_the_retries() -> None:
    runs: list[int] = []
    leads = {"success": "done", "TRANSIENT_ERROR": "repair"}
    with TestOrchestrator(one_task("done", "repair", transitions=leads, retry=TWICE)) as kit:

        @kit.task("work")
        def work(params: dict[str, Any]) -> None:
            runs.append(1)
            raise TransientError("busy")

        job = kit.run("script")
        assert (job.status, job.state, len(runs)) == (JobStatus.FINISHED, "repair", 2)


def test_a_code_of_the_users_own_is_retried_and_then_followed() -> None:
    leads = {"success": "done", "PAPER_JAM": "repair"}
    with TestOrchestrator(one_task("done", "repair", transitions=leads, retry=TWICE)) as kit:
        kit.task("work")(lambda params: {"error": {"code": "PAPER_JAM", "message": "tray 2"}})
        job = kit.run("script")
        assert (job.state, types(kit.events(job)).count("task_failed")) == ("repair", 2)


def test_a_result_that_no_store_can_keep_is_a_permanent_failure() -> None:
    with TestOrchestrator(one_task()) as kit:
        kit.task("work")(lambda params: {"thing": object()})
        job = kit.run("script")
        assert (job.status, fault(job)) == (JobStatus.QUARANTINED, "PERMANENT_ERROR")
        assert "plain data" in str(job.error)


# -- timeouts ------------------------------------------------------------------------------------------


def test_dispatch_timeout_starts_at_the_dispatching_commit_and_fails_the_job() -> None:
    with TestOrchestrator(one_task(dispatch_timeout=60)) as kit:
        job = kit.submit("script")
        kit.skip(59)
        assert kit.get(job).status is JobStatus.WAITING_FOR_WORKER
        kit.skip(1)
        job = kit.get(job)
        assert (job.status, fault(job)) == (JobStatus.FAILED, "dispatch_timeout")


def test_dispatch_timeout_is_over_once_a_worker_has_the_task() -> None:
    with TestOrchestrator(one_task(dispatch_timeout=60, attempt_timeout=1000)) as kit:

        @kit.task("work")
        async def work(params: dict[str, Any]) -> None:
            await asyncio.sleep(500)

        assert kit.run("script").status is JobStatus.FINISHED


@pytest.mark.parametrize("limit", ["dispatch_timeout", "result_timeout"])
def test_an_expired_timeout_takes_the_transition_named_timeout_or_the_state_failed(limit: str) -> None:
    options: dict[str, Any] = {limit: 9}
    named = one_task("done", "late", "failed", transitions={"success": "done", "timeout": "late"}, **options)
    plain = one_task("done", "failed", name="plain", **options)
    with TestOrchestrator(named, plain) as kit:
        late = kit.run("script")
        assert (late.status, late.state) == (JobStatus.FINISHED, "late")
        failed = kit.run("plain")
        assert (failed.status, failed.state, fault(failed)) == (JobStatus.FAILED, "failed", limit)


def test_result_timeout_spans_retries() -> None:
    runs: list[float] = []
    policy = RetryPolicy(max_attempts=100, first_s=10, factor=1, jitter=0)
    with TestOrchestrator(one_task(result_timeout=35, retry=policy)) as kit:

        @kit.task("work")
        def work(params: dict[str, Any]) -> None:
            runs.append(kit.clock.elapsed())
            raise TransientError("busy")

        began = kit.now
        job = kit.run("script")
        assert (job.status, fault(job), len(runs)) == (JobStatus.FAILED, "result_timeout", 4)
        assert (kit.now - began).total_seconds() == pytest.approx(35)


def test_the_timeouts_of_a_submission_hold_for_tasks_that_have_none() -> None:
    with TestOrchestrator(one_task()) as kit:
        job = kit.run("script", result_timeout_s=12)
        assert (job.status, fault(job)) == (JobStatus.FAILED, "result_timeout")
        job = kit.run("script", dispatch_timeout_s=7)
        assert (job.status, fault(job)) == (JobStatus.FAILED, "dispatch_timeout")


def test_worker_timeout_bounds_one_attempt_which_is_then_retried() -> None:
    with TestOrchestrator(one_task(), config=Config(instance_id="test", worker_timeout_s=50)) as kit:
        stopped: list[int] = []

        @kit.task("work")
        async def work(params: dict[str, Any], context: Any) -> dict[str, Any]:
            try:
                await asyncio.sleep(1000 if context.attempt == 1 else 1)
            except asyncio.CancelledError:
                stopped.append(context.attempt)
                raise
            return {"attempt": context.attempt}

        job = kit.run("script")
        assert (job.status, job.data, stopped) == (JobStatus.FINISHED, {"attempt": 2}, [1])
        timed_out = only(kit.events(job), EventType.TASK_TIMED_OUT)
        assert [(event.attempt, event.code) for event in timed_out] == [(1, "attempt_timeout")]


def test_a_timeout_of_less_than_a_microsecond_more_is_still_a_timeout() -> None:
    held = Task(
        id="j_1_0",
        job_id="j",
        type="work",
        transitions={"success": "done"},
        state=AttemptState.STARTED,
        worker_id="w",
        offered_at=BEGINNING,
        attempt_timeout_s=0.1234564,  # the deadline is kept in whole microseconds
    )
    assert held.deadline is not None
    job = Job(id="j", blueprint="b", version="v", state="s", created_at=BEGINNING, updated_at=BEGINNING)
    step = attempt_due(
        job, held, DecisionContext(now=held.deadline, graph=None, find_graph=lambda name: None)
    )
    assert step is not None
    assert step.events[0].type is EventType.TASK_TIMED_OUT


def test_attempts_that_time_out_spend_the_retry_policy_and_then_quarantine() -> None:
    with TestOrchestrator(one_task(attempt_timeout=50, retry=TWICE)) as kit:

        @kit.task("work")
        async def work(params: dict[str, Any]) -> None:
            await asyncio.sleep(1000)

        job = kit.run("script")
        assert (job.status, fault(job)) == (JobStatus.QUARANTINED, "TIMEOUT_ERROR")
        assert types(kit.events(job)).count("task_timed_out") == 2


# -- sent again, late, or somebody else's (FENCES 6) -------------------------------------------------


def test_a_resend_of_an_accepted_result_is_accepted_again_even_after_the_job_ended_and_after_a_crash() -> (
    None
):
    with TestOrchestrator(one_task()) as kit:
        puppet = Puppet(kit)
        puppet.join()
        job = kit.submit("script")
        puppet.settle()
        result = puppet.result(puppet.tasks[0], {"n": 1})
        assert puppet.deliver(result) is ResultVerdict.ACCEPTED
        events = len(kit.events(job))
        assert puppet.deliver(result) is ResultVerdict.ACCEPTED
        kit.crash()
        assert puppet.deliver(result) is ResultVerdict.ACCEPTED
        assert (len(kit.events(job)), kit.get(job).data) == (events, {"n": 1})


def test_a_resend_is_accepted_while_the_job_goes_on_elsewhere() -> None:
    def start(context: JobContext, actions: ActionFactory) -> None:
        actions.dispatch_task("work", transitions={"success": "more"})

    def more(context: JobContext, actions: ActionFactory) -> None:
        actions.dispatch_task("work", transitions={"success": "done"})

    with TestOrchestrator(script(start, "done", more=more)) as kit:
        puppet = Puppet(kit)
        puppet.join()
        job = kit.submit("script")
        puppet.settle()
        first = puppet.result(puppet.tasks[0], {"first": 1})
        assert puppet.deliver(first) is ResultVerdict.ACCEPTED
        assert puppet.deliver(first) is ResultVerdict.ACCEPTED
        assert kit.get(job).state == "more"
        assert puppet.finish(puppet.tasks[1]) is ResultVerdict.ACCEPTED
        assert puppet.deliver(first) is ResultVerdict.ACCEPTED
        assert kit.get(job).status is JobStatus.FINISHED


def test_a_resend_of_a_branch_is_accepted_before_and_after_the_aggregator_and_counts_once() -> None:
    with TestOrchestrator(fan_out(2)) as kit:
        puppet = Puppet(kit)
        puppet.join()
        job = kit.submit("script")
        puppet.settle()
        first, second = (puppet.result(task, task.index) for task in puppet.tasks)
        assert puppet.deliver(first) is ResultVerdict.ACCEPTED
        assert puppet.deliver(first) is ResultVerdict.ACCEPTED
        assert kit.get(job).status is JobStatus.WAITING_FOR_PARALLEL
        kit.crash()
        puppet.join(second.task_id)
        assert puppet.deliver(first) is ResultVerdict.ACCEPTED
        assert puppet.deliver(second) is ResultVerdict.ACCEPTED
        assert puppet.deliver(first) is ResultVerdict.ACCEPTED
        assert puppet.deliver(second) is ResultVerdict.ACCEPTED
        assert kit.get(job).status is JobStatus.FINISHED


def test_the_same_result_twice_in_one_frame_is_accepted_twice_and_counts_once() -> None:
    with TestOrchestrator(fan_out(2), one_task(name="single")) as kit:
        puppet = Puppet(kit)
        puppet.join()
        for name, after in (("script", JobStatus.WAITING_FOR_PARALLEL), ("single", JobStatus.FINISHED)):
            job = kit.submit(name)
            puppet.settle()
            task = next(task for task in puppet.tasks if task.job_id == job.id)
            result = puppet.result(task, 1)

            async def both(result: TaskResult = result) -> list[ResultVerdict]:
                deliver = kit.director.workers.deliver
                return list(await asyncio.gather(deliver(result), deliver(result)))

            assert kit.call(both) == [ResultVerdict.ACCEPTED, ResultVerdict.ACCEPTED]
            assert kit.get(job).status is after
            assert types(kit.events(job)).count("task_finished") == 1


def test_a_result_of_a_closed_other_attempt_is_stale() -> None:
    with TestOrchestrator(one_task(attempt_timeout=10, retry=RetryPolicy(first_s=0, jitter=0))) as kit:
        puppet = Puppet(kit)
        puppet.join()
        job = kit.submit("script")
        kit.skip(11)
        first, second = puppet.tasks
        assert (first.attempt, second.attempt) == (1, 2)
        assert puppet.finish(first, {"late": True}) is ResultVerdict.STALE_TASK
        assert puppet.finish(second, {"late": False}) is ResultVerdict.ACCEPTED
        assert kit.get(job).data == {"late": False}
        # and a word from the past is no better after the end
        assert puppet.finish(first, {"late": True}) is ResultVerdict.JOB_ALREADY_TERMINATED


def test_a_late_result_after_the_task_timed_out_is_refused_and_changes_nothing() -> None:
    leads = {"success": "done", "timeout": "wait"}

    def start(context: JobContext, actions: ActionFactory) -> None:
        actions.dispatch_task("work", transitions=leads, result_timeout=10)

    blueprint = script(start, "done", wait=lambda context, actions: actions.sleep(100, then="done"))
    with TestOrchestrator(blueprint) as kit:
        puppet = Puppet(kit)
        puppet.join()
        job = kit.submit("script")
        kit.skip(11)
        assert kit.get(job).state == "wait"
        assert puppet.cancels == [puppet.tasks[0].attempt_id]
        assert puppet.finish(puppet.tasks[0], {"late": True}) is ResultVerdict.STALE_TASK
        assert kit.wait(job).data == {}


def test_a_result_of_a_worker_that_does_not_hold_the_attempt_is_refused() -> None:
    with TestOrchestrator(one_task()) as kit:
        puppet, stranger = Puppet(kit), Puppet(kit, "nothing", id="stranger")
        puppet.join()
        stranger.join()
        job = kit.submit("script")
        puppet.settle()
        assert stranger.finish(puppet.tasks[0], {"forged": True}) is ResultVerdict.WORKER_MISMATCH
        assert puppet.finish(puppet.tasks[0]) is ResultVerdict.ACCEPTED
        assert kit.get(job).data == {}


def test_a_result_of_an_attempt_that_was_never_offered_is_refused() -> None:
    with TestOrchestrator(one_task()) as kit:
        stranger, puppet = Puppet(kit, "nothing", id="stranger"), Puppet(kit)
        stranger.join()
        job = kit.submit("script")
        queued = TaskResult(
            task_id=f"{job.id}_1_0-1", job_id=job.id, worker_id="stranger", data={"forged": True}
        )
        assert stranger.deliver(queued) is ResultVerdict.WORKER_MISMATCH
        puppet.join()
        assert puppet.finish(puppet.tasks[0]) is ResultVerdict.ACCEPTED
        assert kit.get(job).data == {}


def test_a_result_for_a_job_that_nobody_knows_is_told_so() -> None:
    with TestOrchestrator(one_task()) as kit:
        stray = TaskResult(task_id="nobody_1_0-1", job_id="nobody", worker_id="w")
        assert kit.call(lambda: kit.director.workers.deliver(stray)) is ResultVerdict.JOB_NOT_FOUND
        nonsense = TaskResult(task_id="nonsense", job_id="", worker_id="w")
        assert kit.call(lambda: kit.director.workers.deliver(nonsense)) is ResultVerdict.JOB_NOT_FOUND


# -- fan-out (FENCES 8) ----------------------------------------------------------------------------


def test_the_aggregator_runs_once_after_all_branches_with_their_results_in_dispatch_order() -> None:
    with TestOrchestrator(fan_out(12)) as kit:

        @kit.task("work")
        async def work(params: dict[str, Any]) -> dict[str, Any]:
            await asyncio.sleep(100 - params["n"])  # the last one is the first to be ready
            return {"square": params["n"] ** 2}

        job = kit.run("script")
        assert [result["data"]["square"] for result in job.data["results"]] == [n * n for n in range(12)]
        assert job.data["keys"] == [f"{job.id}_1_{n}" for n in range(12)]
        assert kit.states(job) == ["start", "join", "done"]


def test_the_data_of_branches_is_not_merged_into_state_history() -> None:
    with TestOrchestrator(fan_out(2)) as kit:
        kit.task("work")(lambda params: {"loud": params["n"]})
        assert kit.run("script").data.keys() == {"results", "keys"}


def test_one_dispatch_to_an_aggregator_is_a_fan_out_of_one() -> None:
    with TestOrchestrator(fan_out(1)) as kit:
        puppet = Puppet(kit)
        puppet.join()
        job = kit.submit("script")
        assert kit.get(job).status is JobStatus.WAITING_FOR_PARALLEL
        puppet.finish(puppet.tasks[0], {"n": 1})
        job = kit.get(job)
        assert [result["data"] for result in job.data["results"]] == [{"n": 1}]


@pytest.mark.parametrize(("error", "runs_expected"), [(TransientError, 2), (PermanentError, 1)])
def test_a_branch_is_retried_like_any_task_and_its_final_failure_is_data(
    error: type[Exception], runs_expected: int
) -> None:
    runs: list[int] = []
    with TestOrchestrator(fan_out(3, retry=TWICE)) as kit:

        @kit.task("work")
        def work(params: dict[str, Any]) -> str:
            if params["n"] == 1:
                runs.append(1)
                raise error("broken")
            return "fine"

        job = kit.run("script")
        assert (job.status, len(runs)) == (JobStatus.FINISHED, runs_expected)
        results = job.data["results"]
        assert [result["status"] for result in results] == ["success", "failure", "success"]
        assert results[1]["error"] == {"code": f"{error.__name__[:-5].upper()}_ERROR", "message": "broken"}


def test_a_branch_that_times_out_or_says_something_unknown_is_data_too() -> None:
    with TestOrchestrator(fan_out(3, result_timeout=100)) as kit:

        @kit.task("work")
        async def work(params: dict[str, Any]) -> dict[str, Any]:
            await asyncio.sleep(200 if params["n"] == 2 else 1)
            return {"status": "sideways" if params["n"] == 1 else "success"}

        job = kit.run("script")
        assert job.status is JobStatus.FINISHED
        assert [result["status"] for result in job.data["results"]] == ["success", "sideways", "timeout"]


def test_a_branch_that_is_lost_too_often_is_data_too() -> None:
    with TestOrchestrator(fan_out(2, retry=RetryPolicy(lost_budget=0))) as kit:
        steady, doomed = Puppet(kit, id="steady", capacity=1), Puppet(kit, id="doomed", capacity=1)
        steady.join()
        doomed.join()
        job = kit.submit("script")
        steady.settle()
        doomed.leave()
        steady.finish(steady.tasks[0], "fine")
        job = kit.wait(job)
        assert job.status is JobStatus.FINISHED
        statuses = sorted(result["status"] for result in job.data["results"])
        assert statuses == ["failure", "success"]


def test_a_branch_with_invalid_input_fails_the_job_and_the_siblings_are_cancelled() -> None:
    stopped: list[int] = []
    with TestOrchestrator(fan_out(3, ends=("done", "failed"))) as kit:

        @kit.task("work")
        async def work(params: dict[str, Any]) -> None:
            if params["n"] == 1:
                raise InvalidInputError("not a video")
            try:
                await asyncio.sleep(200)
            except asyncio.CancelledError:
                stopped.append(params["n"])
                raise

        began = kit.now
        job = kit.run("script")
        kit.skip(0)
        assert (job.status, job.state, fault(job)) == (JobStatus.FAILED, "failed", "INVALID_INPUT_ERROR")
        assert kit.now == began
        assert stopped == [0, 2]


def test_results_of_one_job_that_arrive_in_one_frame_are_one_change() -> None:
    with TestOrchestrator(fan_out(50)) as kit:
        puppet = Puppet(kit, capacity=100)
        puppet.join()
        job = kit.submit("script")
        puppet.settle()
        before = kit.writes

        async def frame() -> list[ResultVerdict]:
            deliver = kit.director.workers.deliver
            return await asyncio.gather(*(deliver(puppet.result(task, 1)) for task in puppet.tasks))

        assert set(kit.call(frame)) == {ResultVerdict.ACCEPTED}
        assert kit.get(job).status is JobStatus.FINISHED
        assert kit.writes - before == 2  # all the branches, then the aggregator


def test_an_aggregator_that_raises_sees_the_same_results_when_it_runs_again() -> None:
    seen: list[list[Any]] = []

    def aggregate(context: JobContext, actions: ActionFactory) -> None:
        seen.append([result["data"] for result in context.aggregation_results.values()])
        if context.attempt == 1:
            raise RuntimeError("not yet")
        actions.transition_to("done")

    with TestOrchestrator(fan_out(3, aggregate=aggregate)) as kit:
        kit.task("work")(lambda params: params["n"])
        assert kit.run("script").status is JobStatus.FINISHED
        assert seen == [[0, 1, 2], [0, 1, 2]]


def test_an_aggregator_may_fan_out_again() -> None:
    rounds: list[list[str]] = []

    def start(context: JobContext, actions: ActionFactory) -> None:
        for n in range(2):
            actions.dispatch_task("work", {"n": n}, transitions={"success": "join"})

    def join(context: JobContext, actions: ActionFactory) -> None:
        rounds.append(list(context.aggregation_results))
        if len(rounds) == 3:
            actions.transition_to("done")
            return
        for n in range(len(rounds) + 2):
            actions.dispatch_task("work", {"n": n}, transitions={"success": "join"})

    with TestOrchestrator(script(start, "done", aggregators=["join"], join=join)) as kit:
        kit.task("work")(lambda params: params["n"])
        job = kit.run("script")
        assert (job.status, [len(keys) for keys in rounds]) == (JobStatus.FINISHED, [2, 3, 4])
        assert len({key for keys in rounds for key in keys}) == 9  # task ids never come back


@pytest.mark.parametrize("how", ["cancel", "fail"])
def test_a_branch_that_was_heard_is_accepted_again_after_its_job_was_called_off(how: str) -> None:
    blueprint = StateMachineBlueprint("script")

    @blueprint.handler_for("split", is_start=True)
    def split(context: JobContext, actions: ActionFactory) -> None:
        actions.dispatch_task("work", {}, {"success": "join"})
        actions.dispatch_task("nobody_can", {}, {"success": "join"}, dispatch_timeout=60)

    @blueprint.aggregator_for("join", targets=["done"])
    def join(context: JobContext, actions: ActionFactory) -> None:
        raise RuntimeError("not today")

    @blueprint.handler_for("done", is_end=True)
    def done(context: JobContext, actions: ActionFactory) -> None:
        return None

    with TestOrchestrator(blueprint) as kit:
        kit.task("work")(lambda params: None)
        job = kit.submit("script")
        kit.skip(1)
        job = kit.cancel(job) if how == "cancel" else kit.fail(kit.wait(job))
        worker = kit.director.dispatcher.connected_workers()[0].worker.id
        again = TaskResult(task_id=f"{job.id}_1_0-1", job_id=job.id, worker_id=worker)
        assert kit.call(lambda: kit.director.workers.deliver(again)) is ResultVerdict.ACCEPTED
