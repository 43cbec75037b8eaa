"""`regista webhooks …`: deliveries that failed or are pending."""

import argparse
from typing import Any

from . import exit_codes
from .calls import connect
from .output import output_for

#: For a person, where there is none.
_NOTHING = {
    "dead": "No failed deliveries",
    "pending": "No pending deliveries",
}


async def listing(args: argparse.Namespace) -> int:
    """List failed or pending deliveries."""
    output = output_for(args)
    async with connect(args) as client:
        found = await client.webhooks(args.state)
        tried = [] if args.state == "pending" or output.json else await client.webhooks("pending")
    if output.json:
        output.json_document({"items": found})
    else:
        columns = ["id", "event", "url", "tries", "last answer", "next try"]
        output.table(columns, [_row(delivery) for delivery in found], _NOTHING[args.state])
    if tried:
        output.notice(f"{len(tried)} pending: --state pending")
    return exit_codes.OK


def _row(delivery: dict[str, Any]) -> list[str]:
    return [
        str(delivery.get("id", "")),
        str(delivery.get("event", "")),
        str(delivery.get("url", "")),
        str(delivery.get("tries", 0)),
        str(delivery.get("last_error") or "-"),
        str(delivery.get("next_try_at") or "-"),
    ]


async def redeliver(args: argparse.Namespace) -> int:
    """Send deliveries again, now."""
    output = output_for(args)
    async with connect(args) as client:
        names = args.delivery_ids or [one["id"] for one in await client.webhooks("dead")]
        sent = [await client.redeliver(name) for name in names]
    if output.json:
        output.json_document({"items": sent})
    else:
        output.line(f"{len(sent)} deliveries queued")
    return exit_codes.OK


async def discard(args: argparse.Namespace) -> int:
    """Delete a delivery."""
    output = output_for(args)
    async with connect(args) as client:
        gone = await client.discard(args.delivery_id)
    if output.json:
        output.json_document(gone)
    else:
        output.line(f"{args.delivery_id} deleted")
    return exit_codes.OK


async def secret(args: argparse.Namespace) -> int:
    """Show what deliveries to this client are signed with."""
    output = output_for(args)
    async with connect(args) as client:
        found = await client.webhook_secret()
    if output.json:
        output.json_document(found)
    else:
        for each in found["secrets"]:
            output.line(str(each))
    return exit_codes.OK
