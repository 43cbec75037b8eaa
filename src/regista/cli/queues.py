"""`regista queues`: what waits, what runs, and how long."""

import argparse

from . import exits
from .calls import client_for
from .output import screen_for, span

#: For a person, where there is no queue.
_NOTHING = "No tasks and no workers. Start some: regista worker APP"


async def listing(asked: argparse.Namespace) -> int:
    """Every queue with something in it, or somebody at it."""
    screen = screen_for(asked)
    async with client_for(asked) as client:
        found = await client.queues()
    if screen.json:
        screen.document({"items": found})
        return exits.OK
    rows = [
        [
            str(queue.get("name", "")),
            str(queue.get("waiting", 0)),
            str(queue.get("running", 0)),
            "-" if queue.get("oldest") is None else span(float(queue["oldest"])),
            str(queue.get("workers", 0)),
        ]
        for queue in found
    ]
    screen.table(["queue", "waiting", "running", "oldest", "workers"], rows, _NOTHING)
    return exits.OK
