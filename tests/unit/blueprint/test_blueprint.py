"""StateMachineBlueprint: declaring, choosing, compiling."""

from pathlib import Path
from typing import Any

import pytest

from regista.blueprint import JobContext, StateMachineBlueprint
from regista.blueprint.datastore import AsyncDictStore, DataStores
from regista.clock import SystemClock
from regista.errors import BlueprintInvalid, ConditionError
from regista.model import ClientConfig, Job


def context(**initial_data: Any) -> JobContext:
    now = SystemClock().now()
    job = Job(
        id="j", blueprint="b", version="v", state="s", created_at=now, updated_at=now, input=initial_data
    )
    return JobContext(job, job.data, ClientConfig(), DataStores())


def nothing(context: Any, actions: Any) -> None: ...


def go_done(context: Any, actions: Any) -> None:
    actions.transition_to("done")


def small() -> StateMachineBlueprint:
    bp = StateMachineBlueprint("small")
    bp.handler_for("start", is_start=True)(go_done)
    bp.handler_for("done", is_end=True)(nothing)
    return bp


def test_the_decorator_returns_the_function_unchanged() -> None:
    bp = StateMachineBlueprint("b")
    assert bp.handler_for("start")(nothing) is nothing
    assert bp.handler_for("start").when("context.attempt == 1")(nothing) is nothing
    assert bp.aggregator_for("gather")(nothing) is nothing
    assert bp.has_state("start")
    assert bp.has_state("gather")
    assert not bp.has_state("other")


def test_the_first_condition_that_holds_wins_then_the_default() -> None:
    bp = StateMachineBlueprint("b")

    @bp.handler_for("s")
    def default(context: Any, actions: Any) -> None: ...

    @bp.handler_for("s").when("context.initial_data.size > 10")
    def large(context: Any, actions: Any) -> None: ...

    @bp.handler_for("s").when("context.initial_data.size > 5")
    def middle(context: Any, actions: Any) -> None: ...

    def chosen(**data: Any) -> object:
        handler = bp.select("s", context(**data))
        return handler and handler.func

    assert chosen(size=11) is large
    assert chosen(size=6) is middle
    assert chosen(size=1) is default
    assert chosen() is default


def test_no_match_and_no_default_selects_nothing() -> None:
    bp = StateMachineBlueprint("b")
    bp.handler_for("s").when("context.initial_data.x == 1")(nothing)
    assert bp.select("s", context(x=2)) is None
    assert bp.select("unknown", context()) is None


def test_a_second_default_handler_is_refused_with_both_places() -> None:
    bp = StateMachineBlueprint("b")
    bp.handler_for("s")(nothing)
    with pytest.raises(BlueprintInvalid) as caught:
        bp.handler_for("s")(go_done)
    said = str(caught.value)
    assert "state 's'" in said
    assert f"{__file__}:{nothing.__code__.co_firstlineno}" in said
    assert f"{__file__}:{go_done.__code__.co_firstlineno}" in said
    assert [handler.func for handler in bp.handlers] == [nothing]


def test_a_wrong_condition_is_refused_at_once_and_names_the_state() -> None:
    bp = StateMachineBlueprint("b")
    with pytest.raises(ConditionError, match=r"state 's': condition 'context\.foo'"):
        bp.handler_for("s").when("context.foo")
    with pytest.raises(ConditionError, match="one condition"):
        bp.handler_for("s").when("True").when("True")


@pytest.mark.parametrize("name", ["", "a b", "ä", "a/b", "x" * 129, None, 5, "a\n"])
def test_odd_names_are_refused_at_once(name: Any) -> None:
    with pytest.raises(BlueprintInvalid, match="blueprint name: expected 1 to 128"):
        StateMachineBlueprint(name)
    bp = StateMachineBlueprint("b")
    with pytest.raises(BlueprintInvalid, match="state name: expected 1 to 128"):
        bp.handler_for(name)
    with pytest.raises(BlueprintInvalid, match="state name: expected 1 to 128"):
        bp.aggregator_for(name)


def test_sane_names_are_taken() -> None:
    bp = StateMachineBlueprint("team.video-2:transcode_all")
    bp.handler_for("step-1.a:b_c")(nothing)
    assert bp.has_state("step-1.a:b_c")


def test_wrong_arguments_of_the_decorator_are_refused_at_once() -> None:
    bp = StateMachineBlueprint("b")
    with pytest.raises(BlueprintInvalid, match="outcome: expected 'finished' or 'failed', got 'ok'"):
        bp.handler_for("s", outcome="ok")
    with pytest.raises(BlueprintInvalid, match="targets: expected a list of state names, got 'done'"):
        bp.handler_for("s", targets="done")
    with pytest.raises(BlueprintInvalid, match=r"targets: expected a list of state names, got \[5\]"):
        bp.handler_for("s", targets=[5])  # type: ignore[list-item]
    with pytest.raises(BlueprintInvalid, match="expected a function, got 5"):
        bp.handler_for("s")(5)  # type: ignore[type-var]
    assert not bp.has_state("s")


def test_two_outcomes_for_one_state_are_refused() -> None:
    bp = StateMachineBlueprint("b")
    bp.handler_for("s", is_end=True, outcome="failed").when("context.attempt == 1")(nothing)
    with pytest.raises(BlueprintInvalid, match="outcome is both 'failed' and 'finished'"):
        bp.handler_for("s", outcome="finished")(nothing)


def test_flags_may_stand_on_any_handler_of_a_state() -> None:
    bp = StateMachineBlueprint("b")
    bp.handler_for("s").when("context.attempt == 1")(go_done)
    bp.handler_for("s", is_start=True)(go_done)
    bp.handler_for("done").when("context.attempt == 1")(nothing)
    bp.handler_for("done", is_end=True, outcome="failed")(nothing)
    bp.validate()
    assert bp.graph.start == "s"
    assert bp.graph.states["s"].conditions == ("context.attempt == 1",)
    assert bp.graph.states["done"].is_end
    assert bp.graph.states["done"].outcome == "failed"


def test_an_end_state_named_failed_fails_unless_it_says_otherwise() -> None:
    bp = StateMachineBlueprint("b")
    bp.handler_for("failed", is_end=True)(nothing)
    assert bp.graph.states["failed"].outcome == "failed"
    other = StateMachineBlueprint("b")
    other.handler_for("failed", is_end=True, outcome="finished")(nothing)
    assert other.graph.states["failed"].outcome == "finished"


def test_the_graph_is_cached_and_recomputed_after_a_new_handler() -> None:
    bp = small()
    before = bp.graph
    assert bp.graph is before
    assert bp.version == before.version
    bp.handler_for("done").when("context.attempt == 2")(nothing)
    assert bp.graph is not before
    assert bp.version != before.version


def test_the_graph_shows_where_handlers_lead() -> None:
    bp = StateMachineBlueprint("b")

    @bp.handler_for("start", is_start=True)
    def start(context: Any, actions: Any) -> None:
        if context.initial_data:
            actions.fail("no")
        else:
            actions.dispatch_task("t", {}, {"success": "gather"})

    @bp.aggregator_for("gather", targets=["done"])
    def gather(context: Any, actions: Any) -> None:
        actions.transition_to(context.state_history["next"])

    @bp.handler_for("done", is_end=True)
    def done(context: Any, actions: Any) -> None: ...

    states = bp.graph.states
    assert states["start"].targets == frozenset({"gather"})
    assert states["gather"].targets == frozenset({"done"})
    assert states["gather"].is_aggregator
    bp.validate()

    # Once there is a state named failed, `fail` is an edge to it.
    bp.handler_for("failed", is_end=True)(nothing)
    assert bp.graph.states["start"].targets == frozenset({"gather", "failed"})


def test_an_end_state_never_counts_as_computed() -> None:
    bp = small()

    @bp.handler_for("done").when("context.attempt == 1")
    def helper_does_it(context: Any, actions: Any) -> None:
        nothing(context, actions)

    assert bp.graph.states["done"].targets == frozenset()
    bp.validate()


def test_data_stores_come_with_the_blueprint_or_later() -> None:
    client = object()
    bp = StateMachineBlueprint("b", data_stores={"cache": {"a": 1}, "client": client})
    bp.add_data_store("more", {})
    assert isinstance(bp.data_stores.cache, AsyncDictStore)
    cache = bp.data_stores.cache
    bp.add_data_store("again", AsyncDictStore())
    assert bp.data_stores.cache is cache
    assert bp.data_stores.client is client
    with pytest.raises(BlueprintInvalid, match="data store 'cache' is there already"):
        bp.add_data_store("cache", {})
    with pytest.raises(BlueprintInvalid, match="data store: expected a Python name"):
        bp.add_data_store("not a name", {})


def test_the_api_address_is_kept() -> None:
    bp = StateMachineBlueprint("b", api_endpoint="/jobs/b", api_version="v1")
    assert (bp.api_endpoint, bp.api_version) == ("/jobs/b", "v1")


def test_render_graph_gives_dot_text_without_a_file() -> None:
    bp = small()
    assert bp.render_graph() == bp.to_dot()


def test_render_graph_writes_the_text_formats_without_graphviz(tmp_path: Path) -> None:
    bp = small()
    bp.render_graph(tmp_path / "drawing", "dot")
    assert (tmp_path / "drawing.dot").read_text(encoding="utf-8") == bp.to_dot()
