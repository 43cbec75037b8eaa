"""`regista workers …`: list and drain workers."""

import argparse
from typing import Any

from . import exit_codes
from .calls import connect
from .output import output_for

#: For a person, where there is none.
_NOTHING = "No workers. Start one: regista worker APP"


async def listing(args: argparse.Namespace) -> int:
    """Every worker that is known."""
    output = output_for(args)
    async with connect(args) as client:
        found = await client.workers()
    if output.json:
        output.json_document({"items": found})
    else:
        columns = ["worker", "state", "running", "skills", "queues", "transport"]
        output.table(columns, [_row(worker) for worker in found], _NOTHING)
    return exit_codes.OK


def _row(worker: dict[str, Any]) -> list[str]:
    queues = worker.get("queues")
    return [
        str(worker.get("id", "")),
        str(worker.get("state", "")),
        f"{worker.get('running', 0)}/{worker.get('capacity', 0)}",
        " ".join(worker.get("skills", [])),
        "any" if queues is None else " ".join(queues),
        str(worker.get("transport", "")),
    ]


async def drain(args: argparse.Namespace) -> int:
    """Let a worker finish what it has and take nothing new."""
    async with connect(args) as client:
        answer = await client.drain(args.worker_id)
    return _told(args, answer, "draining; running tasks will finish")


async def undrain(args: argparse.Namespace) -> int:
    """Let a worker that was drained take tasks again."""
    async with connect(args) as client:
        answer = await client.undrain(args.worker_id)
    return _told(args, answer, "takes tasks again")


def _told(args: argparse.Namespace, answer: dict[str, Any], words: str) -> int:
    output = output_for(args)
    if output.json:
        output.json_document(answer)
    else:
        output.line(f"{args.worker_id} {words}")
    return exit_codes.OK
