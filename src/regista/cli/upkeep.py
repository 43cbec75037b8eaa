"""`regista upkeep`: how the chores of the orchestrator have fared."""

import argparse
from datetime import datetime
from typing import Any

from . import exits
from .calls import client_for
from .output import age, screen_for, span


async def listing(asked: argparse.Namespace) -> int:
    """Every chore of the instance that answers."""
    screen = screen_for(asked)
    async with client_for(asked) as client:
        found = await client.upkeep()
    if screen.json:
        screen.document(found)
        return exits.OK
    screen.note(f"instance {found['instance']}")
    columns = ["chore", "every", "leads", "last run", "took", "did", "runs", "failures", "last failure"]
    screen.table(columns, [_row(chore) for chore in found["items"]])
    return exits.OK


def _row(chore: dict[str, Any]) -> list[str]:
    last = chore["last_run_at"]
    took = chore["last_duration_s"]
    leads = (
        {None: "-", True: "here", False: "elsewhere"}[chore["leading"]] if chore["needs_leader"] else "all"
    )
    return [
        chore["name"],
        span(chore["interval_s"]),
        leads,
        "-" if last is None else f"{age(datetime.fromisoformat(last))} ago",
        "-" if took is None else span(took),
        str(chore["last_done"]),
        str(chore["runs"]),
        str(chore["failures"]),
        chore["last_error"] or "-",
    ]
