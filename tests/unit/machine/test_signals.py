"""Signals from outside, as pure steps; those of a person are refused where they do not fit."""

from datetime import timedelta
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
    RunChild,
    Sleep,
    TaskOrder,
    Transition,
)
from regista.blueprint.graph import StateInfo
from regista.errors import ApprovalConflict, JobAlreadyTerminal, NotQuarantined
from regista.machine import signals, transitions
from regista.model import (
    AttemptState,
    AwaitBranches,
    AwaitVersion,
    EventType,
    Fault,
    Job,
    JobMessage,
    JobMessageKind,
    JobStatus,
)
from tests.unit.machine.walks import Walker, graphs

NAMES = ["s0", "a", "b", "join"]
STATES = {
    **{
        name: StateInfo(name=name, is_start=name == "s0", is_aggregator=name == "join", targets=None)
        for name in NAMES
    },
    "end": StateInfo(name="end", is_end=True),
}
GRAPH = Graph(blueprint="b", version="v", start="s0", states=STATES)
ORDER = TaskOrder(task_type="work", params={}, transitions={"success": "a"})
BRANCH = TaskOrder(task_type="work", params={}, transitions={"success": "join"})


def after(action: Any) -> Walker:
    walker = Walker(GRAPH)
    walker.take(transitions.decide(walker.job, Decision(action=action, data={"kept": 1}), walker.context()))
    return walker


def quarantined() -> Walker:
    walker = Walker(GRAPH)
    walker.take(transitions.quarantine(walker.job, Fault("broken", "very"), walker.context()))
    return walker


# -- deadlines -----------------------------------------------------------------------------------------


def test_nothing_is_due_before_its_time_and_a_timer_leads_on_after_it() -> None:
    walker = after(Sleep(10, "a"))
    assert signals.due(walker.job, [], walker.context()) is None
    walker.now += timedelta(seconds=10)
    walker.take(signals.due(walker.job, [], walker.context()))
    assert (walker.job.state, walker.job.wait) == ("a", None)
    assert signals.due(walker.job, [], walker.context()) is None


@settings(max_examples=60)
@given(seconds=st.floats(0, 1e6), early=st.floats(0.001, 1e5))
def test_a_deadline_holds_to_the_microsecond(seconds: float, early: float) -> None:
    walker = after(Sleep(seconds, "a"))
    deadline = walker.job.deadline
    assert deadline is not None
    walker.now = deadline - timedelta(seconds=early)
    assert signals.due(walker.job, [], walker.context()) is None
    walker.now = deadline
    assert signals.due(walker.job, [], walker.context()) is not None


# -- people --------------------------------------------------------------------------------------------


def test_a_decision_leads_on_once_and_the_same_again_is_nothing_new() -> None:
    walker = after(AskHuman("ok?", {"yes": "a", "no": "b"}))
    walker.take(signals.approve(walker.job, "yes", walker.context(), "fine", {"by": "ada"}))
    assert (walker.job.state, walker.job.data) == ("a", {"kept": 1, "by": "ada"})
    assert signals.approve(walker.job, "yes", walker.context()) is None
    with pytest.raises(ApprovalConflict):
        signals.approve(walker.job, "no", walker.context())


def test_the_same_word_for_a_new_question_is_a_new_decision() -> None:
    walker = after(AskHuman("ok?", {"yes": "a"}))
    walker.take(signals.approve(walker.job, "yes", walker.context()))
    again = Decision(action=AskHuman("really?", {"yes": "b"}), data={})
    walker.take(transitions.decide(walker.job, again, walker.context()))
    walker.take(signals.approve(walker.job, "yes", walker.context()))
    assert walker.job.state == "b"


def test_an_earlier_decision_is_accepted_again_after_a_second_question() -> None:
    walker = after(AskHuman("ok?", {"yes": "a"}))
    first = walker.job.visit
    walker.take(signals.approve(walker.job, "yes", walker.context()))
    walker.take(
        transitions.decide(
            walker.job, Decision(action=AskHuman("sure?", {"no": "b"}), data={}), walker.context()
        )
    )
    second = walker.job.visit
    assert signals.approve(walker.job, "yes", walker.context()) is None
    assert signals.approve(walker.job, "yes", walker.context(), visit=first) is None
    with pytest.raises(ApprovalConflict):
        signals.approve(walker.job, "no", walker.context(), visit=first)
    walker.take(signals.approve(walker.job, "no", walker.context(), visit=second))
    assert walker.job.state == "b"
    assert signals.approve(walker.job, "yes", walker.context()) is None
    assert signals.approve(walker.job, "yes", walker.context(), visit=first) is None
    with pytest.raises(ApprovalConflict):
        signals.approve(walker.job, "yes", walker.context(), visit=second)


def test_an_unknown_decision_changes_nothing() -> None:
    walker = after(AskHuman("ok?", {"yes": "a"}))
    with pytest.raises(ApprovalConflict, match="expected one of yes"):
        signals.approve(walker.job, "maybe", walker.context())


def test_release_runs_the_state_again_under_a_new_visit() -> None:
    walker = quarantined()
    walker.take(signals.release(walker.job, walker.context(), {"mended": True}))
    job = walker.job
    assert (job.status, job.state, job.visit, job.data, job.error) == (
        JobStatus.RUNNING,
        "s0",
        2,
        {"mended": True},
        None,
    )


def test_failing_by_hand_keeps_the_reason_of_the_quarantine_unless_a_person_gives_one() -> None:
    for reason, code in (("", "broken"), ("hopeless", "failed_by_hand")):
        walker = quarantined()
        walker.take(signals.fail_quarantined(walker.job, walker.context(), reason))
        assert walker.job.status is JobStatus.FAILED
        assert walker.job.error is not None
        assert walker.job.error.code == code


@settings(max_examples=100)
@given(graph=graphs(), data=st.data())
def test_release_and_fail_are_for_quarantined_jobs_only(graph: Any, data: st.DataObject) -> None:
    walker = Walker(graph)
    for _ in range(data.draw(st.integers(0, 5))):
        walker.run_handler(data)
    for ask in (signals.release, signals.fail_quarantined):
        if walker.job.status is JobStatus.QUARANTINED:
            assert ask(walker.job, walker.context()) is not None
        else:
            with pytest.raises(NotQuarantined):
                ask(walker.job, walker.context())


# -- cancel --------------------------------------------------------------------------------------------


@settings(max_examples=120)
@given(graph=graphs(), data=st.data())
def test_cancel_in_every_status_ends_the_job_or_waits_for_somebody_with_a_deadline(
    graph: Any, data: st.DataObject
) -> None:
    walker = Walker(graph)
    for _ in range(data.draw(st.integers(0, 8))):
        walker.run_handler(data)
        walker.move_task(data)
    if walker.job.status.terminal:
        with pytest.raises(JobAlreadyTerminal):
            signals.request_cancel(walker.job, walker.listed, walker.context())
        return
    walker.take(signals.request_cancel(walker.job, walker.listed, walker.context(), "stop"))
    if walker.job.status is JobStatus.CANCELLING:
        assert signals.request_cancel(walker.job, walker.listed, walker.context()) is None
        assert walker.job.deadline is not None
        # nothing that anybody says from now on leads to anything but the end
        for _ in range(data.draw(st.integers(0, 6))):
            if not walker.job.status.terminal:
                walker.hear(data)
                walker.lose(data)
        if not walker.job.status.terminal:
            walker.now = walker.job.cancel.deadline  # type: ignore[union-attr]
            walker.take(signals.due(walker.job, walker.listed, walker.context()))
    assert walker.job.status is JobStatus.CANCELLED


def test_cancel_asks_the_worker_and_closes_what_no_worker_has() -> None:
    walker = after(FanOut((BRANCH, BRANCH, BRANCH), "join"))
    held = next(iter(walker.tasks.values()))
    walker.tasks[held.id] = replace(held, state=AttemptState.STARTED, worker_id="w")
    walker.take(signals.request_cancel(walker.job, walker.listed, walker.context()))
    assert (walker.job.status, walker.open) == (JobStatus.CANCELLING, 1)
    states = [(task.state, task.cancel_requested) for task in walker.listed]
    assert states == [
        (AttemptState.STARTED, True),
        (AttemptState.CLOSED, False),
        (AttemptState.CLOSED, False),
    ]


def test_cancel_sends_a_message_down_to_the_child() -> None:
    walker = after(RunChild("child", {}, {"success": "a"}))
    step = signals.request_cancel(walker.job, [], walker.context())
    assert step is not None
    (message,) = step.messages
    assert message.kind is JobMessageKind.CANCEL
    assert message.to_job == walker.job.wait.child_id  # type: ignore[union-attr]


# -- children ------------------------------------------------------------------------------------------


def child_message(walker: Walker, status: str, state: str, sender: str | None = None) -> JobMessage:
    child = sender or walker.job.wait.child_id  # type: ignore[union-attr]
    body = {"status": status, "state": state, "result": 7, "error": None}
    return JobMessage(f"ended:{child}", JobMessageKind.CHILD_ENDED, "j", child, body)


@pytest.mark.parametrize(
    ("ways", "status", "state", "leads_to"),
    [
        ({"good": "a", "success": "b"}, "finished", "good", "a"),
        ({"success": "b"}, "finished", "good", "b"),
        ({"failure": "b"}, "failed", "bad", "b"),
        ({"cancelled": "b"}, "cancelled", "mid", "b"),
    ],
)
def test_the_end_of_a_child_leads_its_parent_on(
    ways: dict[str, str], status: str, state: str, leads_to: str
) -> None:
    walker = after(RunChild("child", {}, ways))
    walker.take(signals.child_ended(walker.job, child_message(walker, status, state), walker.context()))
    assert walker.job.state == leads_to
    assert walker.job.data["child_child"]["result"] == 7


def test_the_end_of_a_child_that_nobody_waits_for_any_more_is_nothing() -> None:
    walker = after(RunChild("child", {}, {"success": "a"}))
    stranger = child_message(walker, "finished", "x", sender="stranger")
    assert signals.child_ended(walker.job, stranger, walker.context()) is None


# -- versions ------------------------------------------------------------------------------------------


def newer(*states: str) -> Graph:
    return Graph(
        blueprint="b", version="w", start="s0", states={name: StateInfo(name=name) for name in states}
    )


def test_a_job_moves_to_the_newest_version_that_knows_its_state() -> None:
    walker = after(Transition("a"))
    step = signals.migrate(walker.job, newer("s0", "a", "end"), walker.context())
    assert step is not None
    assert (step.job.version, step.job.wait) == ("w", None)
    assert [event.type for event in step.events] == [EventType.JOB_MIGRATED]


def test_a_job_whose_state_nobody_knows_waits_with_a_named_reason_and_says_so_once() -> None:
    walker = after(Transition("a"))
    walker.take(signals.migrate(walker.job, newer("s0", "end"), walker.context()))
    assert walker.job.wait == AwaitVersion("v")
    assert walker.job.wait.reason == "blueprint_version_missing"
    assert signals.migrate(walker.job, newer("s0", "end"), walker.context()) is None
    assert signals.migrate(walker.job, None, walker.context()) is None
    moved = signals.migrate(walker.job, newer("s0", "a"), walker.context())
    assert moved is not None
    assert (moved.job.version, moved.job.wait) == ("w", None)


def test_a_fan_out_needs_its_aggregator_in_the_new_version() -> None:
    walker = after(FanOut((BRANCH,), "join"))
    fits = signals.migrate(walker.job, newer("s0", "join"), walker.context())
    assert fits is not None
    assert (fits.job.version, fits.job.wait) == ("w", walker.job.wait)


def test_a_fan_out_whose_aggregator_nobody_knows_says_so_once_and_still_waits_for_it() -> None:
    walker = after(FanOut((BRANCH,), "join"))
    waited_for = walker.job.wait
    walker.take(signals.migrate(walker.job, newer("s0", "a"), walker.context()))
    assert walker.job.wait == AwaitBranches("join", 1, missing="v")
    assert signals.migrate(walker.job, newer("s0", "a"), walker.context()) is None
    fits = signals.migrate(walker.job, newer("s0", "join"), walker.context())
    assert fits is not None
    assert (fits.job.version, fits.job.wait) == ("w", waited_for)


# -- terminal ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CANCELLED])
def test_every_signal_to_an_ended_job_is_refused_or_nothing(status: JobStatus) -> None:
    walker = after(Dispatch(ORDER))
    walker.take(transitions.end(walker.job, status, walker.context()))
    job: Job = walker.job
    context = walker.context()
    walker.now += timedelta(days=1)
    with pytest.raises(JobAlreadyTerminal):
        signals.request_cancel(job, [], context)
    with pytest.raises(ApprovalConflict):
        signals.approve(job, "yes", context)
    for by_hand in (signals.release, signals.fail_quarantined):
        with pytest.raises(NotQuarantined):
            by_hand(job, context)
    assert signals.due(job, [], walker.context()) is None
    assert (
        signals.child_ended(job, JobMessage("m", JobMessageKind.CHILD_ENDED, "j", "c", {}), context) is None
    )
