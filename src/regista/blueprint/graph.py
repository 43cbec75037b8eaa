"""Graph: the shape of a blueprint, without its code, and its version: a hash of that shape.

Jobs are pinned to the version, so it may change only when the graph does. A new canonical form needs a "v2" beside "v1":
jobs of "v1" are stored.
"""

import json
from collections.abc import Mapping
from hashlib import sha256

from msgspec import Struct

#: The state that unknown statuses, invalid input and expired timeouts lead to, where it exists.
FAILED_STATE = "failed"
#: Hex digits of a version; 64 bits are plenty for the versions of one name.
_DIGITS = 16


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
        only when it declares that.
        """
        if target not in self.states or source not in self.states:
            return False
        targets = self.states[source].targets
        return targets is None or target in targets or target == FAILED_STATE


def canonical(states: Mapping[str, StateInfo]) -> str:
    """The text that is hashed. It does not depend on dict order, source positions or Regista's own version."""
    rows = [
        [
            info.name,
            info.is_start,
            info.is_end,
            info.outcome if info.is_end else "",
            info.is_aggregator,
            "*" if info.targets is None else sorted(info.targets),
            list(info.conditions),
        ]
        for _, info in sorted(states.items())
    ]
    return json.dumps(["v1", rows], separators=(",", ":"), ensure_ascii=True)


def version_of(states: Mapping[str, StateInfo]) -> str:
    """The first 16 hex digits of the hash of the canonical form."""
    return sha256(canonical(states).encode()).hexdigest()[:_DIGITS]
