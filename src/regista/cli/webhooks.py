"""`regista webhooks …`: deliveries that failed or are pending."""

import argparse
from typing import Any

from . import exits
from .calls import client_for
from .output import screen_for

#: For a person, where there is none.
_NOTHING = {
    "dead": "No failed deliveries",
    "pending": "No pending deliveries",
}


async def listing(asked: argparse.Namespace) -> int:
    """List failed or pending deliveries."""
    screen = screen_for(asked)
    async with client_for(asked) as client:
        found = await client.webhooks(asked.state)
        tried = [] if asked.state == "pending" or screen.json else await client.webhooks("pending")
    if screen.json:
        screen.document({"items": found})
    else:
        columns = ["id", "event", "url", "tries", "last answer", "next try"]
        screen.table(columns, [_row(delivery) for delivery in found], _NOTHING[asked.state])
    if tried:
        screen.note(f"{len(tried)} pending: --state pending")
    return exits.OK


def _row(delivery: dict[str, Any]) -> list[str]:
    return [
        str(delivery.get("id", "")),
        str(delivery.get("event", "")),
        str(delivery.get("url", "")),
        str(delivery.get("tries", 0)),
        str(delivery.get("last_error") or "-"),
        str(delivery.get("next_try_at") or "-"),
    ]


async def redeliver(asked: argparse.Namespace) -> int:
    """Send deliveries again, now."""
    screen = screen_for(asked)
    async with client_for(asked) as client:
        names = asked.delivery_ids or [one["id"] for one in await client.webhooks("dead")]
        sent = [await client.redeliver(name) for name in names]
    if screen.json:
        screen.document({"items": sent})
    else:
        screen.say(f"{len(sent)} deliveries queued")
    return exits.OK


async def discard(asked: argparse.Namespace) -> int:
    """Delete a delivery."""
    screen = screen_for(asked)
    async with client_for(asked) as client:
        gone = await client.discard(asked.delivery_id)
    if screen.json:
        screen.document(gone)
    else:
        screen.say(f"{asked.delivery_id} deleted")
    return exits.OK


async def secret(asked: argparse.Namespace) -> int:
    """Show what deliveries to this client are signed with."""
    screen = screen_for(asked)
    async with client_for(asked) as client:
        found = await client.webhook_secret()
    if screen.json:
        screen.document(found)
    else:
        for each in found["secrets"]:
            screen.say(str(each))
    return exits.OK
