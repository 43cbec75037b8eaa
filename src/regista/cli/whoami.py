"""`regista whoami`: as whom the orchestrator lets us in, and what we may still have."""

import argparse
from typing import Any

from . import exits
from .calls import client_for
from .output import screen_for


async def show(asked: argparse.Namespace) -> int:
    """The client of the token that is in use."""
    screen = screen_for(asked)
    async with client_for(asked) as client:
        me = await client.me()
    if screen.json:
        screen.document(me)
    else:
        screen.say(_who(me))
        screen.say(_quota(me.get("quota")))
    return exits.OK


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
