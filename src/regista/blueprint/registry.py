"""BlueprintRegistry: the blueprints that this instance can run, by name and version."""

from ..errors import BlueprintInvalid, BlueprintNotFound
from ..model.attributes import Attributes, AttributeType
from .blueprint import StateMachineBlueprint
from .graph import Graph

#: (blueprint name, version hash)
Version = tuple[str, str]


class BlueprintRegistry:
    """Every registered version of every blueprint. The version that was registered last is the newest of its name."""

    def __init__(self, declared: Attributes | None = None) -> None:
        #: Search attributes that every blueprint has.
        self._declared = dict(declared or {})
        self._newest: dict[str, StateMachineBlueprint] = {}
        self._versions: dict[Version, StateMachineBlueprint] = {}
        #: Endpoint path → newest blueprint; and blueprint name → its endpoint path.
        self._by_path: dict[str, StateMachineBlueprint] = {}
        self._paths: dict[str, str] = {}

    def add(self, blueprint: StateMachineBlueprint) -> None:
        """Validate and register; a later one of the same name becomes the newest."""
        blueprint.validate()
        self._agree(blueprint)
        before = self._paths.pop(blueprint.name, None)
        if before is not None:
            del self._by_path[before]
        path = endpoint_path(blueprint)
        if path is not None:
            self._paths[blueprint.name] = path
            self._by_path[path] = blueprint
        self._newest[blueprint.name] = blueprint
        self._versions[(blueprint.name, blueprint.version)] = blueprint

    def _agree(self, blueprint: StateMachineBlueprint) -> None:
        """Search attributes have one type each over all blueprints, and an endpoint path belongs to one blueprint."""
        known = self.attributes(but=blueprint.name)
        problems = [
            f"search attribute {name!r} is declared as {kind}, and elsewhere as {known[name]}; take one type, or two names"
            for name, kind in blueprint.search_attributes.items()
            if known.get(name, kind) is not kind
        ]
        path = endpoint_path(blueprint)
        other = None if path is None else self.find_by_path(path)
        if other is not None and other.name != blueprint.name:
            problems.append(
                f"api_endpoint {blueprint.api_endpoint!r} is that of {other.name!r} already; take another one"
            )
        if problems:
            raise BlueprintInvalid(blueprint.name, problems)

    def attributes(self, but: str = "") -> dict[str, AttributeType]:
        """The search attributes of all blueprints, except those of the blueprint `but`."""
        found = dict(self._declared)
        for name, blueprint in self._newest.items():
            if name != but:
                found |= blueprint.search_attributes
        return found

    def attributes_of(self, blueprint: StateMachineBlueprint) -> Attributes:
        """The search attributes that jobs of this blueprint may have; empty if none are declared."""
        own = blueprint.search_attributes
        return {**self._declared, **own} if self._declared else own

    def get(self, name: str) -> StateMachineBlueprint:
        """The newest of that name, or BlueprintNotFound."""
        blueprint = self._newest.get(name)
        if blueprint is None:
            raise BlueprintNotFound(name, list(self._newest))
        return blueprint

    def find_by_path(self, path: str) -> StateMachineBlueprint | None:
        """The blueprint whose jobs are created at this path below `/api/`."""
        return self._by_path.get(path)

    def find(self, name: str, version: str) -> StateMachineBlueprint | None:
        """Exactly this version; None if it is not registered here."""
        return self._versions.get((name, version))

    def newest_graph(self, name: str) -> Graph | None:
        """The graph of the newest of that name, if there is one."""
        blueprint = self._newest.get(name)
        return blueprint.graph if blueprint is not None else None

    def versions(self) -> tuple[Version, ...]:
        """All registered versions."""
        return tuple(self._versions)

    def blueprints(self) -> list[StateMachineBlueprint]:
        """The newest of every name, in the order of their names."""
        return [self._newest[name] for name in sorted(self._newest)]


def endpoint_path(blueprint: StateMachineBlueprint) -> str | None:
    """The path below `/api/` at which jobs of this blueprint can be created; None without an `api_endpoint`."""
    if not blueprint.api_endpoint:
        return None
    return f"{endpoint_version(blueprint)}/{blueprint.api_endpoint.strip('/')}".lstrip("/")


def endpoint_version(blueprint: StateMachineBlueprint) -> str:
    """The part of the path before the endpoint; empty without an `api_version`."""
    return (blueprint.api_version or "").strip("/")
