"""What schemathesis may send: JSON whose numbers everybody reads alike."""

from typing import Any

import schemathesis

#: Parameters whose right values no schema can tell; they have tests of their own.
MADE_UP = ("next", "query", "group_by")
#: A name that no name server knows, by its very ending.
NOBODY = "https://hooks.invalid/"


def clipped(value: Any) -> Any:
    """JSON has integers of any size, and no two readers agree on those beyond 64 bits: ours says 400."""
    if isinstance(value, dict):
        return {name: clipped(part) for name, part in value.items()}
    if isinstance(value, list):
        return [clipped(part) for part in value]
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # 5.0 is an integer to a schema, and a float to most readers: ours says 400
    if isinstance(value, int) and not isinstance(value, bool):
        return max(-(2**63), min(value, 2**64 - 1))
    return value


def told_elsewhere(value: Any) -> Any:
    """Whether a URL may be told cannot be said by a pattern: every one that could is that of nobody."""
    if isinstance(value, dict):
        return {
            name: NOBODY if name == "webhook_url" and is_url(part) else told_elsewhere(part)
            for name, part in value.items()
        }
    return [told_elsewhere(part) for part in value] if isinstance(value, list) else value


def is_url(value: Any) -> bool:
    return isinstance(value, str) and value.startswith(("http://", "https://")) and len(value) <= 2000


@schemathesis.hook
def map_query(context: Any, query: Any) -> Any:
    """A page's `next` cannot be made up, and a search has a grammar: no schema tells which words are refused."""
    return {name: value for name, value in query.items() if name not in MADE_UP} if query else query


@schemathesis.hook
def map_body(context: Any, body: Any) -> Any:
    return told_elsewhere(clipped(body))


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """What is meant to be valid and cannot be, since no schema tells what is: left out, or a plain name."""
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    for name in MADE_UP:
        (case.query or {}).pop(name, None)
    if isinstance(case.body, dict):
        case.body = told_elsewhere(case.body)  # the host of a URL may be an address that is refused
    if "file" in (case.path_parameters or {}):
        case.path_parameters["file"] = "report.txt"
    if case.path.endswith("/schedules") and isinstance(case.body, dict):
        # Exactly one of five members says when; what is right in each has a grammar.
        case.body = {"name": case.body["name"], "blueprint": case.body["blueprint"], "interval_seconds": 3600}
