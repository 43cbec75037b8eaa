"""`regista queues`: what waits, what runs, and how long."""

import argparse

from . import exit_codes
from .calls import connect
from .output import output_for, span

#: For a person, where there is no queue.
_NOTHING = "No tasks and no workers. Start some: regista worker APP"


async def listing(args: argparse.Namespace) -> int:
    """Every queue with something in it, or somebody at it."""
    output = output_for(args)
    async with connect(args) as client:
        found = await client.queues()
    if output.json:
        output.json_document({"items": found})
        return exit_codes.OK
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
    output.table(["queue", "waiting", "running", "oldest", "workers"], rows, _NOTHING)
    return exit_codes.OK
