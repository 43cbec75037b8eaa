import shutil
from collections.abc import Callable

import pytest

from regista import StateMachineBlueprint
from regista.errors import BlueprintNotFound
from tests.services_kit import ADA, orchestrator
from tests.support import one_task


def endpoint(name: str, version: str | None, path: str) -> StateMachineBlueprint:
    made = StateMachineBlueprint(name, api_version=version, api_endpoint=path)
    made.handler_for("start", is_start=True, is_end=True)(lambda context, actions: None)
    return made


async def test_every_client_sees_the_blueprints() -> None:
    async with orchestrator(one_task(name="b"), one_task(name="a")) as director:
        blueprints = director.services.blueprints
        assert [each.name for each in blueprints.list_all(ADA)] == ["a", "b"]
        assert blueprints.get(ADA, "a").name == "a"
        with pytest.raises(BlueprintNotFound):
            blueprints.get(ADA, "absent")


async def test_a_blueprint_is_found_by_its_own_path() -> None:
    async with orchestrator(endpoint("greet", "v2", "/greet"), endpoint("bare", None, "/bare")) as director:
        blueprints = director.services.blueprints
        found = blueprints.find_by_path("v2/greet")
        assert found is not None
        assert found.name == "greet"
        assert blueprints.find_by_path("greet") is None
        assert blueprints.has_version_prefix("v2")
        assert not blueprints.has_version_prefix("v3")


async def test_a_graph_is_drawn_in_another_thread(require: Callable[[str], None]) -> None:
    require("dot")
    assert shutil.which("dot")
    async with orchestrator(one_task()) as director:
        assert b"<svg" in await director.services.blueprints.draw(ADA, "script", "svg")
