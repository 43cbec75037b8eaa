"""`regista audit`: who did what."""

import argparse
from collections.abc import Mapping
from typing import Any

from . import exit_codes
from .calls import connect
from .output import output_for

#: For a person, where there is none.
_NOTHING = "No audit records."


async def listing(args: argparse.Namespace) -> int:
    """The newest deeds."""
    output = output_for(args)
    found = []
    async with connect(args) as client:
        wanted = {"actor": args.actor, "action": args.action, "target": args.target}
        records = client.audit(**wanted, page=min(args.limit, 1000))
        async for record in records:
            found.append(record)
            if len(found) == args.limit:
                break
    if output.json:
        output.json_document({"items": found})
        return exit_codes.OK
    columns = ["at", "actor", "action", "target", "address"]
    rows = [[*(str(record.get(name, "")) for name in columns), _facts(record)] for record in found]
    output.table([*columns, "facts"], rows, _NOTHING)
    return exit_codes.OK


def _facts(record: Mapping[str, Any]) -> str:
    """What else there is to tell: above all whether it was done, or refused."""
    return " ".join(f"{name}={value}" for name, value in (record.get("facts") or {}).items())
