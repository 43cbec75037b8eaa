"""`regista chores`: the background chores of the orchestrator."""

import argparse
from datetime import datetime
from typing import Any

from . import exit_codes
from .calls import connect
from .output import age, output_for, span


async def listing(args: argparse.Namespace) -> int:
    """Every chore of the instance that answers."""
    output = output_for(args)
    async with connect(args) as client:
        found = await client.chores()
    if output.json:
        output.json_document(found)
        return exit_codes.OK
    output.notice(f"instance {found['instance']}")
    columns = ["chore", "every", "runs on", "last run", "took", "items", "runs", "failures", "last failure"]
    output.table(columns, [_row(chore) for chore in found["items"]])
    return exit_codes.OK


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
