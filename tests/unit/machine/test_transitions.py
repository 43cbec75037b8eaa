"""The machine under random walks: it never raises, moves along edges, and leaves terminal jobs alone."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from regista.blueprint import Graph
from regista.blueprint.decisions import (
    AskHuman,
    Decision,
    Dispatch,
    FanOut,
    Finish,
    HandlerFailed,
    RunChild,
    Sleep,
    TaskOrder,
    Transition,
)
from regista.blueprint.graph import StateInfo
from regista.errors import JobError
from regista.machine import signals, transitions
from regista.machine.task_results import apply_result
from regista.model import AttemptState, AwaitBranches, AwaitTask, EventType, JobStatus, TaskResult
from tests.unit.machine.walks import Walker, graphs

SIGNALS: dict[str, Callable[[Walker, st.DataObject], Any]] = {
    "handler": Walker.run_handler,
    "worker": Walker.move_task,
    "result": Walker.hear,
    "loss": Walker.lose,
    "time": Walker.pass_time,
    "child": Walker.end_child,
    "approve": lambda walker, data: signals.approve(
        walker.job, data.draw(st.sampled_from(["success", "odd", "no"])), walker.context()
    ),
    "cancel": lambda walker, data: signals.request_cancel(walker.job, walker.listed, walker.context()),
    "release": lambda walker, data: signals.release(walker.job, walker.context(), {"mended": True}),
    "give up": lambda walker, data: signals.fail_quarantined(walker.job, walker.context()),
}
#: What usually happens to a job in each status; anything else may happen too, only less often.
USUAL = {
    JobStatus.PENDING: ["handler"],
    JobStatus.RUNNING: ["handler", "handler", "time"],
    JobStatus.WAITING_FOR_WORKER: ["worker", "result", "loss", "time"],
    JobStatus.WAITING_FOR_PARALLEL: ["worker", "worker", "result", "result", "loss", "handler", "cancel"],
    JobStatus.WAITING_FOR_HUMAN: ["approve"],
    JobStatus.WAITING_FOR_CHILD: ["child", "cancel"],
    JobStatus.WAITING_FOR_TIMER: ["time"],
    JobStatus.CANCELLING: ["result", "loss", "child", "handler", "worker", "time"],
    JobStatus.QUARANTINED: ["release", "give up"],
}


def next_signal(walker: Walker, data: st.DataObject) -> str:
    usual = USUAL.get(walker.job.status, [])
    return data.draw(st.sampled_from([*usual * 4, *SIGNALS]), label="signal")


@pytest.mark.timeout(60)  # two hundred walks take their time on a busy machine
@settings(max_examples=200)
@given(graph=graphs(), data=st.data())
def test_no_reachable_combination_of_decision_and_status_raises_and_every_transition_is_an_edge(
    graph: Any, data: st.DataObject
) -> None:
    walker = Walker(graph)
    for _ in range(data.draw(st.integers(1, 30), label="steps")):
        signal = SIGNALS[next_signal(walker, data)]
        try:
            walker.take(signal(walker, data))
        except JobError:
            pass  # a request that does not fit the job, said so
        walker.check_accounted_for()
        if walker.job.status.terminal:
            break
    _check_story(walker)


def _check_story(walker: Walker) -> None:
    """States are left before others are entered, and the end is the last word."""
    state: str | None = None
    for event in walker.events:
        if event.type is EventType.STATE_STARTED:
            assert state is None
            state = event.state
        elif event.type is EventType.STATE_FINISHED:
            assert event.state == state
            state = None
    ends = [event for event in walker.events if event.type is EventType.JOB_FINISHED]
    assert len(ends) == int(walker.job.status.terminal)
    if ends:
        assert walker.events[-1] is ends[0]
        assert walker.job.finished_at is not None


@settings(max_examples=100)
@given(graph=graphs(), data=st.data())
def test_terminal_is_final_whatever_comes(graph: Any, data: st.DataObject) -> None:
    walker = Walker(graph)
    for _ in range(data.draw(st.integers(0, 6))):
        walker.run_handler(data)
        walker.move_task(data)
    if not walker.job.status.terminal:
        status = data.draw(st.sampled_from([JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CANCELLED]))
        walker.take(transitions.end(walker.job, status, walker.context()))
    ended = walker.job
    for name, signal in SIGNALS.items():
        try:
            step = signal(walker, data)
        except JobError:
            continue
        assert step is None, name
        assert walker.job is ended


# -- the single decisions ------------------------------------------------------------------------------


def walker_in() -> Walker:
    names = ["s0", "a", "join"]
    states = {
        name: StateInfo(name=name, is_start=name == "s0", is_aggregator=name == "join", targets=None)
        for name in names
    }
    states["end"] = StateInfo(name="end", is_end=True)
    states["bad"] = StateInfo(name="bad", is_end=True, outcome="failed")
    return Walker(Graph(blueprint="b", version="v", start="s0", states=states))


def wish(walker: Walker, action: Any, **more: Any) -> None:
    decision = Decision(action=action, data=more.pop("data", {}), **more)
    walker.take(transitions.decide(walker.job, decision, walker.context()))


def order(**ways: str) -> TaskOrder:
    return TaskOrder(task_type="work", params={"n": 1}, transitions=ways or {"success": "a"})


def test_a_new_job_stands_at_the_start_and_can_run() -> None:
    walker = walker_in()
    assert (walker.job.status, walker.job.state, walker.job.visit) == (JobStatus.PENDING, "s0", 1)
    assert walker.job.runnable(0)
    assert [event.type for event in walker.events] == [EventType.JOB_CREATED, EventType.STATE_STARTED]


def test_a_transition_enters_the_next_state_with_a_new_visit() -> None:
    walker = walker_in()
    wish(walker, Transition("a"), data={"k": 1}, result=5, search_attributes={"x": 1})
    job = walker.job
    assert (job.status, job.state, job.visit, job.data, job.result) == (
        JobStatus.RUNNING,
        "a",
        2,
        {"k": 1},
        5,
    )
    assert walker.events[-1].snapshot == {"k": 1}


def test_a_dispatch_makes_one_task_whose_id_follows_from_job_visit_and_index() -> None:
    walker = walker_in()
    wish(walker, Dispatch(order()))
    (task,) = walker.listed
    assert (task.id, task.attempt_id, task.branch, task.state) == (
        "j_1_0",
        "j_1_0-1",
        False,
        AttemptState.QUEUED,
    )
    assert walker.job.wait == AwaitTask("j_1_0", None)


def test_a_fan_out_opens_its_branches_and_the_aggregator_closes_them() -> None:
    walker = walker_in()
    wish(walker, FanOut((order(success="join"), order(success="join")), "join"))
    assert (walker.open, [task.id for task in walker.listed]) == (2, ["j_1_0", "j_1_1"])
    assert walker.job.wait == AwaitBranches("join", 2)
    walker.tasks = {
        task.id: replace(
            task, state=AttemptState.CLOSED, result=TaskResult(task_id=task.attempt_id, job_id="j")
        )
        for task in walker.listed
    }
    walker.open = 0
    walker.take(signals.aggregate(walker.job, walker.context()))
    assert len(walker.listed) == 2  # they stay until the aggregator has decided
    step = transitions.decide(
        walker.job, Decision(action=Transition("end"), data={}), walker.context(), tuple(walker.listed)
    )
    walker.take(step)
    assert (walker.listed, len(walker.job.finished_tasks)) == ([], 1)


def test_the_end_state_says_how_the_job_ends() -> None:
    for state, status in (("end", JobStatus.FINISHED), ("bad", JobStatus.FAILED)):
        walker = walker_in()
        wish(walker, Transition(state))
        wish(walker, Finish())
        assert walker.job.status is status
        assert (walker.job.error is not None) == (status is JobStatus.FAILED)


def test_the_child_has_the_same_id_whenever_it_is_wished_for_in_one_visit_and_another_in_the_next() -> None:
    def child_of(walker: Walker) -> Any:
        decision = Decision(action=RunChild("child", {"n": 1}, {"success": "a"}), data={})
        (birth,) = transitions.decide(walker.job, decision, walker.context()).children
        return birth.job

    walker = walker_in()
    first = child_of(walker)
    assert first.id == child_of(walker).id
    assert (first.parent_id, first.depth, first.input, first.state) == ("j", 1, {"n": 1}, "s")
    wish(walker, Transition("a"))
    assert child_of(walker).id != first.id


def test_a_sleep_and_a_question_park_the_job() -> None:
    walker = walker_in()
    wish(walker, Sleep(60, "a"))
    assert walker.job.deadline is not None
    assert (walker.job.deadline - walker.now).total_seconds() == 60
    walker = walker_in()
    wish(walker, AskHuman("ok?", {"yes": "a"}))
    assert (walker.job.status, walker.job.deadline) == (JobStatus.WAITING_FOR_HUMAN, None)


def test_a_sleep_beyond_the_calendar_is_capped() -> None:
    walker = walker_in()
    wish(walker, Sleep(1e15, "a"))
    assert walker.job.deadline is not None
    assert walker.job.deadline.year == 9999


@pytest.mark.parametrize("final", [True, False])
def test_a_handler_that_failed_is_parked_for_a_retry_unless_that_is_pointless(final: bool) -> None:
    walker = walker_in()
    walker.take(
        transitions.handler_failed(walker.job, HandlerFailed(message="x", final=final), walker.context())
    )
    assert walker.job.status is (JobStatus.QUARANTINED if final else JobStatus.RUNNING)
    assert (walker.job.deadline is None) == final


def test_the_last_sixteen_waves_are_remembered() -> None:
    walker = walker_in()
    for _ in range(20):
        wish(walker, Dispatch(order(success="s0")))
        (task,) = walker.listed
        held = walker.tasks[task.id] = replace(task, state=AttemptState.STARTED, worker_id="w")
        result = TaskResult(task_id=held.attempt_id, job_id="j", worker_id="w")
        walker.take(apply_result(walker.job, held, result, walker.context()))
    assert len(walker.job.finished_tasks) == 16
