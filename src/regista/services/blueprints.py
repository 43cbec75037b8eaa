"""Blueprints that can be run here. Every client may see and run all of them."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from ..blueprint import StateMachineBlueprint
from ..blueprint.registry import BlueprintRegistry, endpoint_version
from .caller import Caller


class BlueprintService:
    """Lists, finds and draws blueprints."""

    def __init__(self, registry: BlueprintRegistry) -> None:
        self._registry = registry

    def list_all(self, caller: Caller) -> list[StateMachineBlueprint]:
        """The newest version of every blueprint, by name."""
        return self._registry.blueprints()

    def get(self, caller: Caller, name: str) -> StateMachineBlueprint:
        """The newest version of this blueprint, or BlueprintNotFound."""
        return self._registry.get(name)

    def find_by_path(self, path: str) -> StateMachineBlueprint | None:
        """The blueprint whose jobs are created at this path below `/api/`."""
        return self._registry.find_by_path(path)

    def has_version_prefix(self, prefix: str) -> bool:
        """Some blueprint has its own path below this prefix."""
        return any(endpoint_version(one) == prefix for one in self._registry.blueprints() if one.api_endpoint)

    async def draw(self, caller: Caller, name: str, format: str) -> bytes:
        """The graph as a picture; BlueprintNotFound, GraphvizMissing. Graphviz runs in a thread."""
        return await asyncio.to_thread(_draw, self._registry.get(name), format)


def _draw(blueprint: StateMachineBlueprint, format: str) -> bytes:
    with TemporaryDirectory(prefix="regista-graph-") as folder:
        path = Path(folder) / f"graph.{format}"
        blueprint.render_graph(path, format)
        return path.read_bytes()
