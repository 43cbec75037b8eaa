"""Setting aside: one entry that a backend can never take must not keep all later ones out of history."""

import logging
from collections.abc import Awaitable, Callable, Sequence

from ..model import OutboxEntry
from ..serialization import safe_text
from .encoding import encode_events

log = logging.getLogger("regista.history")

#: Bytes of an entry that are kept with the reason why it was not taken.
KEPT_BYTES = 64 * 1024
#: Characters of a job's id that are kept with it: the id itself may be what was too long.
KEPT_ID = 200


class Refused(Exception):
    """The backend does not take a batch because of what is in it, and never will."""


async def record_sparing(
    write: Callable[[Sequence[OutboxEntry]], Awaitable[None]],
    set_aside: Callable[[OutboxEntry, str], Awaitable[None]],
    entries: Sequence[OutboxEntry],
) -> int:
    """Write the batch; where it is refused, all of it but the entries at fault. Returns how many those were.

    A batch that is refused is written in two halves, in their order, so the cursor never passes over an entry that
    is not there yet.
    """
    try:
        await write(entries)
    except Refused as refusal:
        if len(entries) == 1:
            await _spare(set_aside, entries[0], str(refusal))
            return 1
        middle = len(entries) // 2
        first = await record_sparing(write, set_aside, entries[:middle])
        return first + await record_sparing(write, set_aside, entries[middle:])
    return 0


async def _spare(
    set_aside: Callable[[OutboxEntry, str], Awaitable[None]], entry: OutboxEntry, reason: str
) -> None:
    await set_aside(entry, safe_text(reason))
    log.error(
        "an entry of job %s was refused by the history, and set aside: %s",
        entry.job_id[:KEPT_ID],
        safe_text(reason)[:500],
        extra={"action": "history_set_aside", "job_id": entry.job_id[:KEPT_ID], "number": entry.number},
    )


def shown_entry(entry: OutboxEntry) -> bytes:
    """What is kept of it, to be looked at by a person."""
    return encode_events(entry)[:KEPT_BYTES]
