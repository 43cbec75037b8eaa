import pytest

from regista.blueprint.arguments import order_of
from regista.errors import ActionError

TASK = {"type": "t", "transitions": {"s": "x"}}


def test_requirements_and_strategy_pass_when_they_can_be_followed() -> None:
    placed = order_of(
        "dispatch_task", {**TASK, "requirements": {"gpu": {"count": 1}}, "dispatch_strategy": "best_value"}
    )
    assert (placed.requirements, placed.strategy) == ({"gpu": {"count": 1}}, "best_value")


def test_an_unknown_requirement_is_refused_at_once() -> None:
    with pytest.raises(
        ActionError, match=r"dispatch_task: requirements: 'gpus' is no known.*did you mean 'gpu'"
    ):
        order_of("dispatch_task", {**TASK, "requirements": {"gpus": 1}})


def test_a_requirement_of_the_wrong_type_is_refused_at_once() -> None:
    with pytest.raises(ActionError, match="'ram_gb': expected a number >= 0, got 'much'"):
        order_of("dispatch_task", {**TASK, "requirements": {"ram_gb": "much"}})


def test_an_unknown_strategy_is_refused_at_once() -> None:
    with pytest.raises(ActionError, match="unknown name 'cheap'; did you mean 'cheapest'"):
        order_of("dispatch_task", {**TASK, "dispatch_strategy": "cheap"})
