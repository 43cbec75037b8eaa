"""`regista workers …`: list and drain workers."""

import argparse
from typing import Any

from . import exits
from .calls import client_for
from .output import screen_for

#: For a person, where there is none.
_NOTHING = "No workers. Start one: regista worker APP"


async def listing(asked: argparse.Namespace) -> int:
    """Every worker that is known."""
    screen = screen_for(asked)
    async with client_for(asked) as client:
        found = await client.workers()
    if screen.json:
        screen.document({"items": found})
    else:
        columns = ["worker", "state", "running", "skills", "queues", "transport"]
        screen.table(columns, [_row(worker) for worker in found], _NOTHING)
    return exits.OK


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


async def drain(asked: argparse.Namespace) -> int:
    """Let a worker finish what it has and take nothing new."""
    async with client_for(asked) as client:
        answer = await client.drain(asked.worker_id)
    return _told(asked, answer, "draining; running tasks will finish")


async def undrain(asked: argparse.Namespace) -> int:
    """Let a worker that was drained take tasks again."""
    async with client_for(asked) as client:
        answer = await client.undrain(asked.worker_id)
    return _told(asked, answer, "takes tasks again")


def _told(asked: argparse.Namespace, answer: dict[str, Any], words: str) -> int:
    screen = screen_for(asked)
    if screen.json:
        screen.document(answer)
    else:
        screen.say(f"{asked.worker_id} {words}")
    return exits.OK
