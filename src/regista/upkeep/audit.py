"""AuditTrimmer: who did what is kept for some time, and not without bounds. Age is the store's business, number ours."""

import logging
from datetime import datetime

from ..clock import Clock
from ..config import Config
from ..model import ItemWrite
from ..model.audit import AUDIT_SHELF, SYSTEM, AuditRecord, audit_write
from ..storage.base import Shelves
from .loop import Report

log = logging.getLogger("regista.audit")

#: Records that are kept, at most; the oldest go first.
MOST = 100_000
#: Records that are looked at or removed at a time.
_BITE = 1000
_DAY_S = 86_400.0


class AuditTrimmer:
    """Removes the oldest records beyond `MOST`. Two at once remove the same ones, which is fine."""

    #: Not the name of its shelf: a record that is written is no reason to count them all.
    name = "audit_trimmer"
    needs_leader = True

    def __init__(self, shelves: Shelves, interval_s: float = 3600.0, most: int = MOST) -> None:
        self.interval_s = interval_s
        self._shelves = shelves
        self._most = most

    async def run_once(self, now: datetime) -> Report:
        """Walk past those that stay, newest first, and remove what comes after them."""
        after, kept, removed = "", 0, 0
        while items := await self._shelves.items(AUDIT_SHELF, after, _BITE):
            after = items[-1].key
            stay = max(0, self._most - kept)
            kept += len(items[:stay])
            gone = [ItemWrite(AUDIT_SHELF, item.key, None) for item in items[stay:]]
            if gone:
                await self._shelves.put(gone)
                removed += len(gone)
        return Report(done=removed)


async def note(
    shelves: Shelves, clock: Clock, config: Config, action: str, target: str, **facts: str
) -> None:
    """Leave a record of what nobody asked for by a request: a signal, a chore."""
    log.info("%s %s %s", SYSTEM, action, target, extra={"action": action, "actor": SYSTEM, "target": target})
    record = AuditRecord(
        at=clock.now(),
        actor=SYSTEM,
        action=action,
        target=target,
        instance=config.instance_id,
        facts=facts,
    )
    await shelves.put([audit_write(record, config.audit_days * _DAY_S)])
