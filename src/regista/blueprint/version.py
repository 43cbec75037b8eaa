"""The version of a blueprint: a hash of its graph.

Jobs are pinned to it, so it may change only when the graph does. Whoever must change the canonical form
adds a "v2" beside this one: jobs of "v1" are out there.
"""

import json
from collections.abc import Mapping
from hashlib import sha256

from .graph import StateInfo

#: Hex digits of a version; 64 bits are plenty for the versions of one name.
_DIGITS = 16


def canonical(states: Mapping[str, StateInfo]) -> str:
    """The text that is hashed: free of dict order, source positions and Regista's own version."""
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
