"""Validation: every problem at once, each with the name of its state."""

from typing import Any

import pytest

from regista.blueprint import StateMachineBlueprint
from regista.errors import BlueprintInvalid


def nothing(context: Any, actions: Any) -> None: ...


def to_done(context: Any, actions: Any) -> None:
    actions.transition_to("done")


def to_middle(context: Any, actions: Any) -> None:
    actions.transition_to("middle")


def anywhere(context: Any, actions: Any) -> None:
    actions.transition_to(context.initial_data["next"])


def fails(context: Any, actions: Any) -> None:
    actions.fail("no")


def problems(bp: StateMachineBlueprint) -> list[str]:
    with pytest.raises(BlueprintInvalid) as caught:
        bp.validate()
    assert all(problem in str(caught.value) for problem in caught.value.problems)
    return caught.value.problems


def blueprint(*, start: Any = to_done, end: Any = nothing) -> StateMachineBlueprint:
    bp = StateMachineBlueprint("b")
    bp.handler_for("start", is_start=True)(start)
    bp.handler_for("done", is_end=True)(end)
    return bp


def test_a_small_blueprint_is_valid() -> None:
    blueprint().validate()


def test_exactly_one_start_is_expected() -> None:
    assert "expected exactly one start state, got none" in problems(StateMachineBlueprint("b"))[0]
    bp = blueprint()
    bp.handler_for("other", is_start=True)(to_done)
    assert problems(bp) == ["expected exactly one start state, got 2: 'start', 'other'"]


def test_a_literal_target_that_does_not_exist_is_named_with_line_and_hint() -> None:
    bp = StateMachineBlueprint("b")

    @bp.handler_for("start", is_start=True)
    def start(context: Any, actions: Any) -> None:
        actions.dispatch_task("t", {}, {"success": "doen"})

    bp.handler_for("done", is_end=True)(nothing)
    line = start.__code__.co_firstlineno + 2
    [problem] = problems(bp)
    assert problem.startswith("state 'start': ")
    assert f"{__file__}:{line} leads to 'doen', which is not a state; did you mean 'done'?" in problem


def test_all_problems_are_listed_at_once() -> None:
    bp = StateMachineBlueprint("b")
    bp.handler_for("a")(to_done)
    bp.handler_for("c")(to_middle)
    found = problems(bp)
    assert len(found) == 3
    assert "start" in found[0]
    assert "state 'a'" in found[1]
    assert "state 'c'" in found[2]


def test_a_state_that_nothing_leads_to_is_a_problem() -> None:
    bp = blueprint()
    bp.handler_for("island")(to_done)
    assert problems(bp) == ["state 'island': nothing leads to it"]


def test_a_computed_target_counts_as_an_edge_to_every_state() -> None:
    bp = blueprint(start=anywhere)
    bp.handler_for("island")(to_done)
    bp.validate()


def test_a_computed_target_that_is_itself_unreachable_saves_nobody() -> None:
    bp = blueprint()
    bp.handler_for("island")(anywhere)
    bp.handler_for("beach")(to_done)
    assert problems(bp) == ["state 'island': nothing leads to it", "state 'beach': nothing leads to it"]


def test_failed_counts_as_reachable_and_so_does_what_it_leads_to() -> None:
    bp = blueprint()
    bp.handler_for("failed")(to_middle)
    bp.handler_for("middle", is_end=True)(nothing)
    bp.validate()


def test_a_state_without_a_way_to_an_end_is_a_problem() -> None:
    bp = StateMachineBlueprint("b")

    @bp.handler_for("start", is_start=True)
    def start(context: Any, actions: Any) -> None:
        actions.transition_to("done" if context.attempt == 1 else "spin")

    @bp.handler_for("spin")
    def spin(context: Any, actions: Any) -> None:
        actions.sleep(1)

    bp.handler_for("done", is_end=True)(nothing)
    assert problems(bp) == ["state 'spin': no end state can be reached from it"]


def test_a_blueprint_without_any_end_is_one_problem() -> None:
    bp = StateMachineBlueprint("b")

    @bp.handler_for("start", is_start=True)
    def start(context: Any, actions: Any) -> None:
        actions.sleep(1)

    assert problems(bp) == ["expected at least one end state, got none; mark one with is_end=True"]


def test_a_handler_that_can_fail_can_end() -> None:
    bp = StateMachineBlueprint("b")
    bp.handler_for("start", is_start=True)(fails)
    bp.validate()


def test_an_end_state_that_leads_on_is_a_problem() -> None:
    bp = blueprint(end=to_middle)
    bp.handler_for("middle", is_end=True)(nothing)
    [problem] = problems(bp)
    assert "state 'done'" in problem
    assert "leads to 'middle', but an end state cannot lead on" in problem


def test_an_end_state_may_fail() -> None:
    bp = blueprint(end=fails)
    bp.handler_for("failed", is_end=True)(fails)
    bp.validate()


def test_declared_targets_must_exist_and_name_all_that_the_source_shows() -> None:
    bp = StateMachineBlueprint("b")
    bp.handler_for("start", is_start=True, targets=["middel"])(to_done)
    bp.handler_for("middle")(to_done)
    bp.handler_for("done", is_end=True)(nothing)
    found = problems(bp)
    assert "targets=[...] names 'middel', which is not a state; did you mean 'middle'?" in found[0]
    assert "leads to 'done', which its targets=[...] do not name" in found[1]


def test_declared_targets_win_over_computed_ones() -> None:
    bp = StateMachineBlueprint("b")
    bp.handler_for("start", is_start=True, targets=["done"])(anywhere)
    bp.handler_for("done", is_end=True)(nothing)
    bp.handler_for("island")(to_done)
    assert problems(bp) == ["state 'island': nothing leads to it"]


def test_a_handler_that_cannot_be_called_is_a_problem() -> None:
    def one(context: Any) -> None: ...

    bp = blueprint(end=one)
    [problem] = problems(bp)
    assert "state 'done'" in problem
    assert "expected to be callable with (context, actions), got (context" in problem


def test_an_outcome_without_an_end_is_a_problem() -> None:
    bp = StateMachineBlueprint("b")
    bp.handler_for("start", is_start=True, outcome="failed")(to_done)
    bp.handler_for("done", is_end=True)(nothing)
    assert "state 'start': outcome='failed' is for end states only" in problems(bp)[0]
