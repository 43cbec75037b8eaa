"""`regista audit`: who did what."""

import argparse

from . import exits
from .calls import client_for
from .output import screen_for

#: For a person, where there is none.
_NOTHING = "nobody did anything that is told here; a job's own history says who submitted it"


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
    screen.table(columns, [[str(record.get(name, "")) for name in columns] for record in found], _NOTHING)
    return exits.OK
