"""`regista chores`: the background chores of the orchestrator."""

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
        found = await client.chores()
    if screen.json:
        screen.document(found)
        return exits.OK
    screen.note(f"instance {found['instance']}")
    columns = ["chore", "every", "runs on", "last run", "took", "items", "runs", "failures", "last failure"]
    screen.table(columns, [_row(chore) for chore in found["items"]])
    return exits.OK


def _row(chore: dict[str, Any]) -> list[str]:
    last = chore["last_run_at"]
    took = chore["last_duration_s"]
    leads = (
        {None: "-", True: "this instance", False: "another"}[chore["leading"]]
        if chore["needs_leader"]
        else "every"
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
