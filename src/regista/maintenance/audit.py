"""AuditTrimmer: who did what is kept for some time, and not without bounds. Age is the store's business, number ours."""

import logging
from datetime import datetime

import msgspec

from ..clock import Clock
from ..config import Config
from ..model import Record, RecordWrite
from ..model.audit import AUDIT_COLLECTION, SYSTEM, AuditRecord, audit_record, audit_write
from ..storage.base import SharedState
from .chore import ChoreResult

log = logging.getLogger("regista.audit")

#: Records of operators and of the system that are kept, at most, and as many of all others; the oldest go first.
MOST = 100_000
#: Of those others, one client (or all workers, which may call themselves what they like) has at most this part.
_PART = 10
#: Records that are looked at or removed at a time.
_BITE = 1000
#: Seconds until the next ones are looked at.
_NEXT_BITE_S = 1.0
_DAY_S = 86_400.0


class AuditTrimmer:
    """Removes the oldest records beyond `MOST`. Two at once remove the same ones, which is fine.

    Nobody can flush out by many deeds what an operator has done, nor alone what others have.
    """

    #: Not the name of its shelf: a record that is written is no reason to count them all.
    name = "audit_trimmer"
    needs_leader = True

    def __init__(self, shelves: SharedState, interval_s: float = 3600.0, most: int = MOST) -> None:
        self.interval_s = interval_s
        self._shelves = shelves
        self._most = most
        #: The last record of this pass over all of them; empty: a new pass begins.
        self._after = ""
        self._room = _Room(most)

    async def run_once(self, now: datetime) -> ChoreResult:
        """Look at the next records, newest first, and remove those beyond the bound.

        A run looks at `_BITE` records and asks for the next run soon: reading them all at once would block the event loop.
        """
        if not self._after:
            self._room = _Room(self._most)
        items = await self._shelves.records(AUDIT_COLLECTION, after=self._after, limit=_BITE)
        self._after = items[-1].key if len(items) == _BITE else ""
        gone = [RecordWrite(AUDIT_COLLECTION, item.key, None) for item in items if not self._room.has(item)]
        if gone:
            await self._shelves.put_records(gone)
        return ChoreResult(done=len(gone), run_again_in_s=_NEXT_BITE_S if self._after else None)


class _Room:
    """How many more records of whom may stay."""

    def __init__(self, most: int) -> None:
        self._trusted = self._others = most
        self._part = max(1, most // _PART)
        self._left: dict[str, int] = {}

    def has(self, item: Record) -> bool:
        """There is room for this one; it is taken."""
        kind, name = _who(item)
        if kind in ("operator", SYSTEM):
            self._trusted -= 1
            return self._trusted >= 0
        left = self._left.get(name, self._part)
        if not left or not self._others:
            return False
        self._left[name] = left - 1
        self._others -= 1
        return True


def _who(item: Record) -> tuple[str, str]:
    """The kind of whoever did it, and whose part that counts in."""
    try:
        actor = audit_record(item).actor
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        actor = SYSTEM  # of a newer version, maybe: whose it was nobody knows, and it may be an operator's
    kind = actor.partition(":")[0]
    return kind, actor if kind == "client" else kind


async def note(
    shelves: SharedState, clock: Clock, config: Config, action: str, target: str, **facts: str
) -> None:
    """Leave a record of what nobody asked for by a request: a signal, a chore."""
    told = " ".join(part for part in (target, *facts.values()) if part)
    log.info("%s %s %s", SYSTEM, action, told, extra={"action": action, "actor": SYSTEM, "target": target})
    record = AuditRecord(
        at=clock.now(),
        actor=SYSTEM,
        action=action,
        target=target,
        instance=config.instance_id,
        facts=facts,
    )
    await shelves.put_records([audit_write(record, config.audit_days * _DAY_S)])
