"""ActionFactory: one wish per handler, checked at the call."""

from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import pytest
from msgspec import UNSET

from regista.blueprint.actions import ActionFactory
from regista.blueprint.arguments import Unstorable
from regista.blueprint.decisions import (
    Action,
    AskHuman,
    Dispatch,
    Fail,
    FanOut,
    Finish,
    RunChild,
    Sleep,
    Transition,
)
from regista.blueprint.graph import Graph, StateInfo
from regista.errors import ActionError
from regista.model import RetryPolicy

ANY = None
GRAPH = Graph(
    blueprint="b",
    version="v",
    start="start",
    states={
        info.name: info
        for info in [
            StateInfo(name="start", is_start=True, targets=ANY),
            StateInfo(name="narrow", targets=frozenset({"done"})),
            StateInfo(name="gather", is_aggregator=True, targets=frozenset({"done"})),
            StateInfo(name="collect", is_aggregator=True, targets=frozenset({"done"})),
            StateInfo(name="done", is_end=True),
            StateInfo(name="failed", is_end=True, outcome="failed"),
        ]
    },
)


def actions(state: str = "start", approval_token: Any = "") -> ActionFactory:
    return ActionFactory(GRAPH, state, approval_token)


def wish(call: Callable[[ActionFactory], object], state: str = "start") -> Action:
    factory = actions(state)
    call(factory)
    return factory.decision({}, 1.0).action


def refused(call: Callable[[ActionFactory], object], state: str = "start") -> str:
    factory = actions(state)
    with pytest.raises(ActionError) as caught:
        call(factory)
    # A refused wish leaves no trace: another may follow.
    factory.fail("after all")
    assert factory.decision({}).action == Fail("after all")
    return str(caught.value)


def test_each_action_becomes_its_value() -> None:
    assert wish(lambda a: a.transition_to("done")) == Transition("done")
    assert wish(lambda a: a.sleep(5, then="done")) == Sleep(5, "done")
    assert wish(lambda a: a.sleep(0)) == Sleep(0, "start")
    assert wish(lambda a: a.fail("no", code="mine")) == Fail("no", "mine")
    assert wish(lambda a: a.run_blueprint("child", {"x": 1}, {"success": "done"})) == RunChild(
        "child", {"x": 1}, {"success": "done"}
    )
    assert wish(
        lambda a: a.await_human_approval("ok?", {"approved": "done"}, integration="mail")
    ) == AskHuman("ok?", {"approved": "done"}, "mail")


def test_a_dispatch_carries_all_of_its_options() -> None:
    retry = RetryPolicy(max_attempts=2)
    action = wish(
        lambda a: a.dispatch_task(
            "resize",
            {"w": 1},
            {"success": "done"},
            priority=2,
            queue="q",
            dispatch_timeout=1,
            result_timeout=2,
            heartbeat_timeout=3,
            attempt_timeout=4,
            retry=retry,
            requirements={"gpu": 1},
            dispatch_strategy="cheapest",
            max_cost=0.5,
        )
    )
    assert isinstance(action, Dispatch)
    order = action.order
    assert (order.task_type, order.params, order.transitions) == ("resize", {"w": 1}, {"success": "done"})
    assert (order.priority, order.queue, order.strategy, order.max_cost) == (2, "q", "cheapest", 0.5)
    assert (order.dispatch_timeout_s, order.result_timeout_s) == (1, 2)
    assert (order.heartbeat_timeout_s, order.attempt_timeout_s) == (3, 4)
    assert (order.retry, order.requirements) == (retry, {"gpu": 1})


def test_the_names_of_before_still_work() -> None:
    action = wish(
        lambda a: a.dispatch_task(
            task_type="t",
            params={},
            transitions={"success": "done"},
            resource_requirements={"gpu": 1},
            timeout_seconds=1,
            dispatch_timeout_seconds=2,
            result_timeout_seconds=3,
        )
    )
    assert isinstance(action, Dispatch)
    order = action.order
    assert order.requirements == {"gpu": 1}
    assert (order.attempt_timeout_s, order.dispatch_timeout_s, order.result_timeout_s) == (1, 2, 3)


def test_an_old_and_a_new_name_together_are_refused() -> None:
    said = refused(
        lambda a: a.dispatch_task("t", {}, {"success": "done"}, attempt_timeout=1, timeout_seconds=2)
    )
    assert "'attempt_timeout' was given twice" in said


def test_what_a_task_says_is_fixed_at_the_call() -> None:
    factory = actions()
    params: dict[str, Any] = {"deep": [1]}
    factory.dispatch_task("t", params, {"success": "done"})
    params["deep"].append(2)
    action = factory.decision({}).action
    assert isinstance(action, Dispatch)
    assert action.order.params == {"deep": [1]}


@pytest.mark.parametrize(
    "more",
    [
        {"params": {"odd": object()}},
        {"params": {"half": "\ud800"}},
        {"params": {"big": 2**70}},
        {"task_type": "\ud800"},
        {"priority": 10**30},
        {"requirements": {"zone": "\ud800"}},
    ],
)
def test_a_task_that_no_store_can_keep_is_refused_at_the_call(more: dict[str, Any]) -> None:
    factory = actions()
    with pytest.raises(Unstorable, match=r"state 'start': dispatch_task: the task: expected plain data"):
        factory.dispatch_task(**{"task_type": "t", "transitions": {"success": "done"}, **more})
    factory.transition_to("done")  # a wish that was refused leaves no trace


def test_params_are_copied_so_a_loop_may_reuse_its_dict() -> None:
    factory, params = actions(), {"i": 0}
    for index in range(3):
        params["i"] = index
        factory.dispatch_task("t", params, {"success": "gather"})
    action = factory.decision({}).action
    assert isinstance(action, FanOut)
    assert [order.params["i"] for order in action.orders] == [0, 1, 2]


def test_one_dispatch_to_an_aggregator_is_a_fan_out_of_one() -> None:
    action = wish(lambda a: a.dispatch_task("t", {}, {"success": "gather", "failure": "gather"}))
    assert isinstance(action, FanOut)
    assert (len(action.orders), action.aggregator) == (1, "gather")


def test_all_transitions_of_a_branch_lead_to_its_aggregator() -> None:
    said = refused(lambda a: a.dispatch_task("t", {}, {"success": "gather", "failure": "failed"}))
    assert "'failure' leads to 'failed'" in said
    assert "'gather'" in said


@pytest.mark.parametrize(("first", "second"), [("gather", "collect"), ("gather", "done"), ("done", "done")])
def test_parallel_tasks_that_do_not_meet_are_refused_with_both_targets(first: str, second: str) -> None:
    factory = actions()
    factory.dispatch_task("a", {}, {"success": first})
    with pytest.raises(ActionError, match=f"earlier call leads to '{first}', this one to '{second}'"):
        factory.dispatch_task("b", {}, {"success": second})


def test_dispatch_parallel_is_a_fan_out() -> None:
    action = wish(
        lambda a: a.dispatch_parallel(
            tasks=[
                {"type": "a", "params": {"x": 1}, "priority": 3},
                {"task_type": "b", "timeout_seconds": 9},
            ],
            aggregate_into="gather",
        )
    )
    assert isinstance(action, FanOut)
    first, second = action.orders
    assert (first.task_type, first.params, first.priority, first.transitions) == (
        "a",
        {"x": 1},
        3,
        {"success": "gather"},
    )
    assert (second.task_type, second.params, second.attempt_timeout_s) == ("b", {}, 9)


@pytest.mark.parametrize(
    ("tasks", "into", "said"),
    [
        ("t", "gather", "tasks: expected a list of dicts"),
        ([{"params": {}}], "gather", r"tasks[0]: task_type: expected a non-empty str"),
        ([{"type": "t", "prams": {}}], "gather", "unknown key 'prams'; did you mean 'params'"),
        (["t"], "gather", "tasks[0]: expected a dict, got str 't'"),
        ([{"type": "t"}], "done", "'done' is not an aggregator"),
        ([{"type": "t"}], "gatherr", "no state 'gatherr'; did you mean 'gather'"),
        ([{"type": "t", "transitions": {"success": "done"}}], "gather", "leads to 'done'"),
    ],
)
def test_dispatch_parallel_says_what_is_wrong(tasks: Any, into: str, said: str) -> None:
    assert said in refused(lambda a: a.dispatch_parallel(tasks, into))


CALLS: dict[str, Callable[[ActionFactory], object]] = {
    "transition_to": lambda a: a.transition_to("done"),
    "dispatch_task": lambda a: a.dispatch_task("t", {}, {"success": "gather"}),
    "dispatch_parallel": lambda a: a.dispatch_parallel([{"type": "t"}], "gather"),
    "await_human_approval": lambda a: a.await_human_approval("?", {"approved": "done"}),
    "run_blueprint": lambda a: a.run_blueprint("c", {}, {"success": "done"}),
    "sleep": lambda a: a.sleep(1),
    "fail": lambda a: a.fail("x"),
}


@pytest.mark.parametrize("first", CALLS)
@pytest.mark.parametrize("second", CALLS)
def test_a_second_action_is_refused_at_once_and_names_both(first: str, second: str) -> None:
    factory = actions()
    CALLS[first](factory)
    if first == second == "dispatch_task":
        CALLS[second](factory)
        return
    with pytest.raises(ActionError, match=f"state 'start': {second} was called after {first}"):
        CALLS[second](factory)


@pytest.mark.parametrize("name", [name for name in CALLS if name != "fail"])
def test_an_end_state_cannot_lead_on(name: str) -> None:
    assert "an end state cannot lead on" in refused(CALLS[name], state="done")


def test_an_end_state_finishes_by_itself_and_may_leave_a_result() -> None:
    factory = actions("done")
    factory.set_result({"ok": True})
    decision = factory.decision({"a": 1}, 2.5)
    assert decision.action == Finish()
    assert (decision.result, decision.data, decision.duration_ms) == ({"ok": True}, {"a": 1}, 2.5)


def test_no_action_in_a_non_end_state_is_an_error_that_names_it() -> None:
    factory = actions("narrow")
    factory.set_result(1)
    with pytest.raises(ActionError, match="state 'narrow': its handler took no action"):
        factory.decision({})


def test_a_target_that_does_not_exist_is_refused_with_close_matches() -> None:
    assert "state 'start': transition_to: there is no state 'dnoe'; did you mean 'done'?" in refused(
        lambda a: a.transition_to("dnoe")
    )
    assert "there is no state 'fnished'" in refused(
        lambda a: a.run_blueprint("c", {}, {"success": "done", "failure": "fnished"})
    )


def test_a_target_that_is_no_edge_is_refused_with_the_edges_that_are() -> None:
    said = refused(lambda a: a.transition_to("gather"), state="narrow")
    assert "'narrow' does not lead to 'gather' (it leads to: done)" in said


def test_failed_can_be_reached_from_everywhere() -> None:
    assert wish(lambda a: a.transition_to("failed"), state="narrow") == Transition("failed")


def test_sleeping_in_place_needs_an_edge_to_itself() -> None:
    assert "'narrow' does not lead to 'narrow'" in refused(lambda a: a.sleep(1), state="narrow")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda a: a.transition_to(5), "a target state: expected a str, got int 5"),
        (lambda a: a.dispatch_task("", {}, {"s": "done"}), "task_type: expected a non-empty str, got str ''"),
        (lambda a: a.dispatch_task("t", [1], {"s": "done"}), "params: expected a dict, got list [1]"),
        (lambda a: a.dispatch_task("t", {1: 2}, {"s": "done"}), "params: expected a dict with str keys"),
        (lambda a: a.dispatch_task("t", {}), "transitions: expected a non-empty dict"),
        (lambda a: a.dispatch_task("t", {}, {}), "transitions: expected a non-empty dict"),
        (lambda a: a.dispatch_task("t", {}, {"s": 1}), "transitions: expected a dict of str → str"),
        (
            lambda a: a.dispatch_task("t", {}, {"s": "done"}, priority="9"),
            "priority: expected a finite number",
        ),
        (
            lambda a: a.dispatch_task("t", {}, {"s": "done"}, priority=True),
            "priority: expected a finite number",
        ),
        (
            lambda a: a.dispatch_task("t", {}, {"s": "done"}, result_timeout=0),
            "result_timeout: expected seconds > 0",
        ),
        (
            lambda a: a.dispatch_task("t", {}, {"s": "done"}, timeout_seconds=-1),
            "attempt_timeout: expected seconds",
        ),
        (
            lambda a: a.dispatch_task("t", {}, {"s": "done"}, retry=3),
            "retry: expected a RetryPolicy or None, got int",
        ),
        (lambda a: a.dispatch_task("t", {}, {"s": "done"}, max_cost=-1), "max_cost: expected a number >= 0"),
        (
            lambda a: a.dispatch_task("t", {}, {"s": "done"}, requirements=[1]),
            "requirements: expected a dict",
        ),
        (lambda a: a.dispatch_task("t", {}, {"s": "done"}, queue=""), "queue: expected a non-empty str"),
        (lambda a: a.sleep(-1), "seconds: expected seconds >= 0"),
        (lambda a: a.sleep(float("nan")), "seconds: expected seconds >= 0"),
        (lambda a: a.sleep(float("inf")), "seconds: expected seconds >= 0"),
        (lambda a: a.sleep(10**400), "seconds: expected seconds >= 0"),
        (lambda a: a.sleep("5"), "seconds: expected seconds >= 0 (and at most 100 years), got str '5'"),
        (lambda a: a.dispatch_task("t", {}, {"s": "done"}, priority=10**400), "priority: expected a finite"),
        (lambda a: a.fail(ValueError("x")), "reason: expected a str, got ValueError"),
        (lambda a: a.fail("x", code=""), "code: expected a non-empty str"),
        (lambda a: a.run_blueprint("", {}, {"s": "done"}), "blueprint_name: expected a non-empty str"),
        (lambda a: a.run_blueprint("c", {}), "transitions: expected a non-empty dict"),
        (lambda a: a.run_blueprint("c", 1, {"s": "done"}), "initial_data: expected a dict"),
        (lambda a: a.await_human_approval(1, {"s": "done"}), "message: expected a str, got int 1"),
        (
            lambda a: a.await_human_approval("?", {"s": "done"}, integration=""),
            "integration: expected a non-empty",
        ),
    ],
)
def test_wrong_arguments_say_expected_and_got(call: Callable[[ActionFactory], object], said: str) -> None:
    assert said in refused(call)


def test_approval_returns_the_token_it_was_given_or_makes_it_when_asked() -> None:
    assert actions(approval_token="t1").await_human_approval("?", {"approved": "done"}) == "t1"
    assert actions(approval_token=lambda: "t2").await_human_approval("?", {"approved": "done"}) == "t2"


def test_members_of_a_str_enum_become_plain_text() -> None:
    class State(StrEnum):
        DONE = "done"

    action = wish(lambda a: a.transition_to(State.DONE))
    assert isinstance(action, Transition)
    assert type(action.to) is str
    action = wish(lambda a: a.dispatch_task("t", {}, {"success": State.DONE}))
    assert isinstance(action, Dispatch)
    assert type(action.order.transitions["success"]) is str


def test_search_attributes_combine_with_any_action_and_add_up() -> None:
    factory, when = actions(), datetime(2026, 1, 1, tzinfo=UTC)
    factory.set_search_attributes({"a": "x", "b": 1, "c": 1.5, "d": True})
    factory.transition_to("done")
    factory.set_search_attributes({"a": "y", "e": when, "f": ["p", "q"]})
    decision = factory.decision({})
    assert decision.search_attributes == {"a": "y", "b": 1, "c": 1.5, "d": True, "e": when, "f": ["p", "q"]}
    assert decision.result is UNSET


@pytest.mark.parametrize(
    "value",
    [None, {"a": 1}, [1], b"x", float("nan"), 2**63, datetime(2026, 1, 1), object()],  # noqa: DTZ001
)
def test_a_search_attribute_that_cannot_be_indexed_is_refused(value: object) -> None:
    assert "set_search_attributes: kind: expected a str" in refused(
        lambda a: a.set_search_attributes({"kind": value})
    )


def test_search_attributes_are_a_dict_with_names() -> None:
    assert "attributes: expected a dict" in refused(lambda a: a.set_search_attributes([]))  # type: ignore[arg-type]
    assert "a name: expected a non-empty str" in refused(lambda a: a.set_search_attributes({"": 1}))


def test_a_state_history_that_is_no_dict_is_refused() -> None:
    factory = actions()
    factory.transition_to("done")
    with pytest.raises(ActionError, match=r"context\.state_history: expected a dict, got list"):
        factory.decision([])  # type: ignore[arg-type]
