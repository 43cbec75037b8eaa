"""What schemathesis may send: JSON whose numbers everybody reads alike."""

from typing import Any

import schemathesis


def clipped(value: Any) -> Any:
    """JSON has integers of any size, and no two readers agree on those beyond 64 bits: ours says 400."""
    if isinstance(value, dict):
        return {name: clipped(part) for name, part in value.items()}
    if isinstance(value, list):
        return [clipped(part) for part in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return max(-(2**63), min(value, 2**64 - 1))
    return value


@schemathesis.hook
def map_query(context: Any, query: Any) -> Any:
    """A page's `next` cannot be made up: any other word is refused, whatever it looks like."""
    return {name: value for name, value in query.items() if name != "next"} if query else query


@schemathesis.hook
def map_body(context: Any, body: Any) -> Any:
    return clipped(body)
