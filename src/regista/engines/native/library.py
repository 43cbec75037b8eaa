"""Library: the blueprints that this instance can run, by name and version."""

from ...blueprint import Graph, StateMachineBlueprint
from ...errors import BlueprintInvalid, BlueprintNotFound
from ...model.attributes import Attributes, AttributeType
from ...storage.base import Version


class Library:
    """Holds every version that was registered; the last one of a name is its newest."""

    def __init__(self, declared: Attributes | None = None) -> None:
        #: Search attributes of no blueprint in particular.
        self._declared = dict(declared or {})
        self._newest: dict[str, StateMachineBlueprint] = {}
        self._versions: dict[Version, StateMachineBlueprint] = {}
        #: The newest that have a path of their own, by that path; and the path of each, as it was registered.
        self._places: dict[str, StateMachineBlueprint] = {}
        self._place: dict[str, str] = {}

    def add(self, blueprint: StateMachineBlueprint) -> None:
        """Validate and register; a later one of the same name becomes the newest."""
        blueprint.validate()
        self._agree(blueprint)
        before = self._place.pop(blueprint.name, None)
        if before is not None:
            del self._places[before]
        place = place_of(blueprint)
        if place is not None:
            self._place[blueprint.name] = place
            self._places[place] = blueprint
        self._newest[blueprint.name] = blueprint
        self._versions[(blueprint.name, blueprint.version)] = blueprint

    def _agree(self, blueprint: StateMachineBlueprint) -> None:
        """A search over all jobs needs one type for one name, and a path leads to one blueprint."""
        known = self.attributes(but=blueprint.name)
        problems = [
            f"search attribute {name!r} is declared as {kind}, and elsewhere as {known[name]}; take one type, or two names"
            for name, kind in blueprint.search_attributes.items()
            if known.get(name, kind) is not kind
        ]
        place = place_of(blueprint)
        other = None if place is None else self.at(place)
        if other is not None and other.name != blueprint.name:
            problems.append(
                f"api_endpoint {blueprint.api_endpoint!r} is that of {other.name!r} already; take another one"
            )
        if problems:
            raise BlueprintInvalid(blueprint.name, problems)

    def attributes(self, but: str = "") -> dict[str, AttributeType]:
        """Every search attribute that is declared here, for whatever blueprint (`but` one)."""
        found = dict(self._declared)
        for name, blueprint in self._newest.items():
            if name != but:
                found |= blueprint.search_attributes
        return found

    def attributes_of(self, blueprint: StateMachineBlueprint) -> Attributes:
        """What the jobs of this blueprint may be found by; empty where nothing is declared."""
        own = blueprint.search_attributes
        return {**self._declared, **own} if self._declared else own

    def get(self, name: str) -> StateMachineBlueprint:
        """The newest of that name, or BlueprintNotFound."""
        blueprint = self._newest.get(name)
        if blueprint is None:
            raise BlueprintNotFound(name, list(self._newest))
        return blueprint

    def at(self, place: str) -> StateMachineBlueprint | None:
        """The one whose jobs are created at this path below `/api/`, if there is one."""
        return self._places.get(place)

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


def place_of(blueprint: StateMachineBlueprint) -> str | None:
    """The path below `/api/` at which jobs of it can be created; None where it has none of its own."""
    if not blueprint.api_endpoint:
        return None
    return f"{version_of(blueprint)}/{blueprint.api_endpoint.strip('/')}".lstrip("/")


def version_of(blueprint: StateMachineBlueprint) -> str:
    """The part of the path before its endpoint; empty where it has none."""
    return (blueprint.api_version or "").strip("/")
