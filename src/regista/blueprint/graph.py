"""Graph: the shape of a blueprint, without its code. Pure data, so the machine can be pure too."""

from msgspec import Struct

#: The state that unknown statuses, invalid input and expired timeouts lead to, where it exists.
FAILED_STATE = "failed"


class StateInfo(Struct, frozen=True, kw_only=True):
    """What the graph knows of one state."""

    name: str
    is_start: bool = False
    is_end: bool = False
    #: How the job ends here: "finished" or "failed". Only for end states.
    outcome: str = "finished"
    is_aggregator: bool = False
    #: Where its handlers may lead; None when a target is computed, so any state counts.
    targets: frozenset[str] | None = frozenset()
    #: The conditions of its handlers in their order, for people to see.
    conditions: tuple[str, ...] = ()


class Graph(Struct, frozen=True, kw_only=True):
    """The shape of one version of a blueprint."""

    blueprint: str
    version: str
    start: str
    states: dict[str, StateInfo]

    @property
    def failed_state(self) -> str | None:
        """The state named `failed`, when the blueprint has it."""
        return FAILED_STATE if FAILED_STATE in self.states else None

    def allows(self, source: str, target: str) -> bool:
        """`source` → `target` is an edge. `failed` can be reached from everywhere; a state from itself
        only when it says so.
        """
        if target not in self.states or source not in self.states:
            return False
        targets = self.states[source].targets
        return targets is None or target in targets or target == FAILED_STATE
