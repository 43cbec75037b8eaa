"""What a client sends: the bodies of its requests, checked before they leave."""

import os
import time
from collections.abc import Mapping
from typing import Any


def wish(blueprint: str, input: Mapping[str, Any] | None, **options: Any) -> dict[str, Any]:
    """The body of a submission: what was left open is left out, and there is always a key."""
    said = {name: value for name, value in options.items() if value is not None}
    body = {"idempotency_key": new_key(), "blueprint": blueprint, "input": {}}
    return body | members("input", input) | said


def members(name: str, value: Mapping[str, Any] | None) -> dict[str, Any]:
    """A member of a body that is an object; none at all where nothing was given. TypeError for the rest."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise TypeError(f'{name}: expected a dict like {{"name": "Ada"}}, got {type(value).__name__}')
    return {name: dict(value)}


def new_key() -> str:
    """A key of the layout of UUID version 7: the id that follows from it sorts by time, as stores like best."""
    stamp = f"{time.time_ns() // 1_000_000:012x}"
    chance = os.urandom(9).hex()  # from the system: forked processes must not make the same
    return f"{stamp[:8]}-{stamp[8:]}-7{chance[:3]}-8{chance[3:6]}-{chance[6:]}"
