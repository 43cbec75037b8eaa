"""The version of a blueprint: a hash that may change only when the graph does."""

from typing import Any

from msgspec.structs import replace

from regista.blueprint.blueprint import StateMachineBlueprint
from regista.blueprint.graph import StateInfo, canonical, version_of

STATES = {
    info.name: info
    for info in [
        StateInfo(
            name="start",
            is_start=True,
            targets=frozenset({"gather", "done"}),
            conditions=("context.attempt == 1",),
        ),
        StateInfo(name="gather", is_aggregator=True, targets=None),
        StateInfo(name="done", is_end=True),
        StateInfo(name="failed", is_end=True, outcome="failed"),
    ]
}


def test_the_version_of_an_example_is_pinned() -> None:
    # If this fails, the release would re-version every job out there: add a "v2" instead.
    assert canonical(STATES) == (
        '["v1",[["done",false,true,"finished",false,[],[]],["failed",false,true,"failed",false,[],[]],'
        '["gather",false,false,"",true,"*",[]],'
        '["start",true,false,"",false,["done","gather"],["context.attempt == 1"]]]]'
    )
    assert version_of(STATES) == "2a48e971fb48f42f"


def test_the_version_of_a_blueprint_read_from_source_is_pinned() -> None:
    bp = StateMachineBlueprint("pinned")

    @bp.handler_for("start", is_start=True)
    async def start(context: Any, actions: Any) -> None:
        actions.dispatch_task("t", {}, {"success": "done", "failure": "failed"})

    @bp.handler_for("done", is_end=True)
    async def done(context: Any, actions: Any) -> None: ...

    @bp.handler_for("failed", is_end=True)
    async def failed(context: Any, actions: Any) -> None: ...

    assert bp.version == "03cd1f8bd9b43832"


def test_the_order_of_states_does_not_matter() -> None:
    assert version_of(dict(reversed(STATES.items()))) == version_of(STATES)


def test_everything_that_shapes_the_graph_matters() -> None:
    start, done = STATES["start"], STATES["done"]
    changed = [
        replace(start, is_start=False),
        replace(start, targets=None),
        replace(start, targets=frozenset({"done"})),
        replace(start, conditions=()),
        replace(start, conditions=("context.attempt == 2",)),
        replace(start, is_aggregator=True),
        replace(done, outcome="failed"),
        replace(done, is_end=False),
    ]
    versions = {version_of({**STATES, info.name: info}) for info in changed}
    assert len(versions | {version_of(STATES)}) == len(changed) + 1


def test_the_order_of_conditions_matters() -> None:
    start = STATES["start"]
    one, two = replace(start, conditions=("a", "b")), replace(start, conditions=("b", "a"))
    assert version_of({"start": one}) != version_of({"start": two})


def test_the_outcome_of_a_state_that_is_no_end_does_not_matter() -> None:
    start = STATES["start"]
    assert version_of({"start": replace(start, outcome="failed")}) == version_of({"start": start})


def test_a_version_is_16_hex_digits() -> None:
    assert len(version_of({})) == 16
    int(version_of({}), 16)
