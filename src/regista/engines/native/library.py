"""Library: the blueprints that this instance can run, by name and version."""

from ...blueprint import Graph, StateMachineBlueprint
from ...errors import BlueprintNotFound
from ...storage.base import Version


class Library:
    """Holds every version that was registered; the last one of a name is its newest."""

    def __init__(self) -> None:
        self._newest: dict[str, StateMachineBlueprint] = {}
        self._versions: dict[Version, StateMachineBlueprint] = {}

    def add(self, blueprint: StateMachineBlueprint) -> None:
        """Validate and register; a later one of the same name becomes the newest."""
        blueprint.validate()
        self._newest[blueprint.name] = blueprint
        self._versions[(blueprint.name, blueprint.version)] = blueprint

    def get(self, name: str) -> StateMachineBlueprint:
        """The newest of that name, or BlueprintNotFound."""
        blueprint = self._newest.get(name)
        if blueprint is None:
            raise BlueprintNotFound(name, list(self._newest))
        return blueprint

    def find(self, name: str, version: str) -> StateMachineBlueprint | None:
        """Exactly that version, if it is loaded here."""
        return self._versions.get((name, version))

    def newest_graph(self, name: str) -> Graph | None:
        """The graph of the newest of that name, if there is one."""
        blueprint = self._newest.get(name)
        return blueprint.graph if blueprint is not None else None

    def versions(self) -> tuple[Version, ...]:
        """What this instance can run."""
        return tuple(self._versions)

    def blueprints(self) -> list[StateMachineBlueprint]:
        """The newest of every name, in the order of their names."""
        return [self._newest[name] for name in sorted(self._newest)]
