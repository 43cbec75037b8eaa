"""`regista whoami`: as whom the orchestrator lets us in, and what we may still have."""

import argparse
from typing import Any

from . import exit_codes
from .calls import connect
from .output import output_for


async def show(args: argparse.Namespace) -> int:
    """The client of the token that is in use."""
    output = output_for(args)
    async with connect(args) as client:
        me = await client.me()
    if output.json:
        output.json_document(me)
    else:
        output.line(_who(me))
        output.line(_quota(me.get("quota")))
    return exit_codes.OK


def _who(me: dict[str, Any]) -> str:
    role = "an operator" if me.get("operator") else "a client"
    plan = f" on the plan {me['plan']}" if me.get("plan") else ""
    return f"{me.get('name', '')}: {role}{plan}"


def _quota(quota: dict[str, Any] | None) -> str:
    if quota is None:
        return "as many jobs a month as you like"
    if not quota["limit"]:
        return "no jobs: `monthly_attempts` of this client is 0"
    left = max(0, quota["limit"] - quota["used"])
    return f"{quota['used']:,} of {quota['limit']:,} jobs this month, {left:,} left; resets on {quota['resets_at']}"
