"""Analysis: where a handler leads, read from its source."""

import functools
import inspect
from collections.abc import Callable
from enum import Enum, StrEnum
from typing import Any

import pytest

from regista.blueprint.actions import ActionFactory
from regista.blueprint.name_resolution import STATE_ARGUMENTS, TRANSITIONS_ARGUMENTS
from regista.blueprint.source_analysis import SourceEdges, read_handler

DONE = "done"
ROUTES = {"success": "done", "failure": "repair"}
SECRET: Any = 5


class State(StrEnum):
    DONE = "done"


class Plain(Enum):
    REPAIR = "repair"


def read(func: Callable[..., Any]) -> SourceEdges:
    return read_handler(func, "here")


def labelled(func: Callable[..., Any]) -> set[tuple[str, str]]:
    reading = read(func)
    assert reading.computed is None
    return {(edge.label, edge.target) for edge in reading.edges}


def targets(func: Callable[..., Any]) -> set[str]:
    return {target for _, target in labelled(func)}


def computed(func: Callable[..., Any]) -> str:
    reason = read(func).computed
    assert reason is not None
    return reason


def test_the_table_of_arguments_matches_the_actions() -> None:
    for name, (position, keyword) in {**STATE_ARGUMENTS, **TRANSITIONS_ARGUMENTS}.items():
        parameters = list(inspect.signature(getattr(ActionFactory, name)).parameters)
        assert parameters[position + 1] == keyword  # after self


def test_literal_targets_of_every_action_are_found() -> None:
    def handler(context: Any, actions: Any) -> None:
        actions.transition_to("a")
        actions.transition_to(state="b")
        actions.dispatch_task("t", {}, {"success": "c"})
        actions.dispatch_task(task_type="t", params={}, transitions={"failure": "d"}, **context.options)
        actions.dispatch_parallel([{"type": "t"}], aggregate_into="e")
        actions.await_human_approval("?", {"approved": "f"})
        actions.run_blueprint("c", {}, transitions={"success": "g"})
        actions.sleep(5, "h")
        actions.set_result(1)
        actions.set_search_attributes({})

    assert labelled(handler) == {
        ("", "a"),
        ("", "b"),
        ("success", "c"),
        ("failure", "d"),
        ("all", "e"),
        ("approved", "f"),
        ("success", "g"),
        ("sleep", "h"),
    }


def test_sleeping_without_a_target_leads_back_here() -> None:
    def handler(context: Any, actions: Any) -> None:
        actions.sleep(5)

    def explicit(context: Any, actions: Any) -> None:
        actions.sleep(5, then=None if context else "there")

    assert targets(handler) == {"here"}
    assert targets(explicit) == {"here", "there"}


def test_fail_is_noted_and_leads_nowhere_else() -> None:
    def handler(context: Any, actions: Any) -> None:
        actions.fail("no")

    assert read(handler) == SourceEdges(fails=True)


def test_the_second_parameter_counts_whatever_its_name() -> None:
    async def handler(c: Any, act: Any) -> None:
        act.transition_to("a")
        c.actions.transition_to("b")

    assert targets(handler) == {"a", "b"}


def test_a_local_alias_of_actions_is_followed() -> None:
    def handler(context: Any, actions: Any) -> None:
        act = context.actions
        other = actions
        act.transition_to("a")
        other.transition_to("b")

    assert targets(handler) == {"a", "b"}


def test_constants_of_module_class_and_enclosing_function_are_followed() -> None:
    closed_over = "repair"

    def handler(context: Any, actions: Any) -> None:
        actions.transition_to(DONE)
        actions.transition_to(State.DONE)
        actions.transition_to(Plain.REPAIR.value)
        actions.transition_to(closed_over)
        actions.dispatch_task("t", {}, ROUTES)
        actions.dispatch_task("t", {}, {**ROUTES, State.DONE: "x"})

    assert targets(handler) == {"done", "repair", "x"}


def test_conditional_expressions_and_plain_local_names_are_followed() -> None:
    def handler(context: Any, actions: Any) -> None:
        way = "a"
        if context.initial_data:
            way = "b" if context.job_id else "c"
        routes: dict[str, str] = {"success": "d", "failure": "e"}
        actions.transition_to(way)
        actions.dispatch_task("t", {}, routes if context else {"success": "f"})

    assert targets(handler) == {"a", "b", "c", "d", "e", "f"}


def test_an_edge_knows_the_line_of_its_file() -> None:
    def handler(context: Any, actions: Any) -> None:
        actions.transition_to("a")

    assert [edge.line for edge in read(handler).edges] == [handler.__code__.co_firstlineno + 1]


def test_lambdas_methods_callables_and_wrapped_functions_can_be_read() -> None:
    class Machine:
        def method(self, context: Any, actions: Any) -> None:
            actions.transition_to("a")

        def __call__(self, context: Any, actions: Any) -> None:
            actions.transition_to("b")

    def logged(func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def wrapper(*arguments: Any) -> Any:
            return func(*arguments)

        return wrapper

    @logged
    def handler(context: Any, actions: Any) -> None:
        actions.transition_to("c")

    assert targets(lambda c, a: a.transition_to("d")) == {"d"}
    assert targets(Machine().method) == {"a"}
    assert targets(Machine()) == {"b"}
    assert targets(handler) == {"c"}


def test_a_text_over_several_lines_does_not_disturb_an_indented_function() -> None:
    def handler(context: Any, actions: Any) -> None:
        actions.set_result("""
no indentation here
""")
        actions.transition_to("a")

    assert targets(handler) == {"a"}


def helper(*arguments: Any) -> Any: ...


def passes_actions(context: Any, actions: Any) -> None:
    helper(actions)


def takes_a_method(context: Any, actions: Any) -> None:
    go = actions.transition_to
    go("a")


def computes(context: Any, actions: Any) -> None:
    actions.transition_to(context.initial_data["next"])


def formats(context: Any, actions: Any) -> None:
    actions.transition_to(f"step_{context.visit}")


def computes_one_of_two(context: Any, actions: Any) -> None:
    actions.transition_to("a" if context else helper())


def hides_in_options(context: Any, actions: Any) -> None:
    actions.dispatch_task("t", **helper())


def hides_in_arguments(context: Any, actions: Any) -> None:
    actions.dispatch_task(*helper())


def changes_its_dict(context: Any, actions: Any) -> None:
    routes = {"success": "a"}
    routes["failure"] = helper()
    actions.dispatch_task("t", {}, routes)


def passes_its_dict(context: Any, actions: Any) -> None:
    routes = {"success": "a"}
    helper(routes)
    actions.dispatch_task("t", {}, routes)


def loops_over_targets(context: Any, actions: Any) -> None:
    for name in ("a", "b"):
        actions.transition_to(name)


def rebinds_actions(context: Any, actions: Any) -> None:
    actions = helper()
    actions.transition_to("a")


def uses_a_parameter(context: Any, actions: Any, target: str = "a") -> None:
    actions.transition_to(target)


def uses_a_global_that_is_no_text(context: Any, actions: Any) -> None:
    actions.transition_to(SECRET)


def chases_its_tail(context: Any, actions: Any) -> None:
    x = "a"
    y = x
    x = y
    actions.transition_to(x)


def takes_anything(*arguments: Any) -> None:
    arguments[1].transition_to("a")


def calls_no_action(context: Any, actions: Any) -> None:
    actions.go("a")


def names_nothing_known(context: Any, actions: Any) -> None:
    actions.transition_to(NOWHERE)  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    "func",
    [
        passes_actions,
        takes_a_method,
        computes,
        formats,
        computes_one_of_two,
        hides_in_options,
        hides_in_arguments,
        changes_its_dict,
        passes_its_dict,
        loops_over_targets,
        rebinds_actions,
        uses_a_parameter,
        uses_a_global_that_is_no_text,
        chases_its_tail,
        takes_anything,
        calls_no_action,
        names_nothing_known,
        functools.partial(computes),
        max,
    ],
)
def test_what_cannot_be_followed_is_computed(func: Callable[..., Any]) -> None:
    assert computed(func)


def test_the_reason_names_the_expression_and_its_line() -> None:
    line = computes.__code__.co_firstlineno + 1
    assert computed(computes) == f"a target is computed: context.initial_data['next'] (line {line})"


def test_source_that_is_not_there_is_computed() -> None:
    space: dict[str, Any] = {}
    exec("def handler(context, actions): actions.transition_to('a')", space)
    assert "source cannot be read" in computed(space["handler"])


def test_what_is_known_is_kept_beside_what_is_computed() -> None:
    def handler(context: Any, actions: Any) -> None:
        actions.transition_to("a")
        actions.transition_to(helper())

    reading = read(handler)
    assert reading.computed is not None
    assert [edge.target for edge in reading.edges] == ["a"]
