"""`regista audit`: who did what."""

import argparse
from collections.abc import Mapping
from typing import Any

from . import exits
from .calls import client_for
from .output import screen_for

#: For a person, where there is none.
_NOTHING = "No audit records."


async def listing(asked: argparse.Namespace) -> int:
    """The newest deeds."""
    screen = screen_for(asked)
    found = []
    async with client_for(asked) as client:
        wanted = {"actor": asked.actor, "action": asked.action, "target": asked.target}
        records = client.audit(**wanted, page=min(asked.limit, 1000))
        async for record in records:
            found.append(record)
            if len(found) == asked.limit:
                break
    if screen.json:
        screen.document({"items": found})
        return exits.OK
    columns = ["at", "actor", "action", "target", "address"]
    rows = [[*(str(record.get(name, "")) for name in columns), _facts(record)] for record in found]
    screen.table([*columns, "facts"], rows, _NOTHING)
    return exits.OK


def _facts(record: Mapping[str, Any]) -> str:
    """What else there is to tell: above all whether it was done, or refused."""
    return " ".join(f"{name}={value}" for name, value in (record.get("facts") or {}).items())
