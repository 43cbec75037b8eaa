"""InstanceAnnouncer: tells the other instances on a shared store which blueprint versions this one can run."""

import logging
import secrets
from collections.abc import Sequence
from datetime import datetime

import msgspec

from ...clock import Clock, add_seconds
from ...model import Record, RecordWrite
from ...storage.base import SharedState, Version, find_record

log = logging.getLogger("regista.engine")

#: The collection with a record for each instance that runs.
INSTANCES = "instances"
#: An announcement is repeated after this part of its lease.
_REPEAT_AFTER = 1 / 3
#: Seconds for which a record is kept after its last write: the instance looks for it, and clocks may jump.
_KEPT_S = 86_400.0


class _Announcement(msgspec.Struct, frozen=True, array_like=True):
    """The record of an instance."""

    #: Tells this process from others with the same instance id.
    process: str
    #: When it ends, by the store's clock.
    until: datetime
    versions: tuple[Version, ...]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Announcement).decode


class InstanceAnnouncer:
    """Keeps the record of this instance, which ends by itself, and reads those of all.

    The record that it finds under its own name tells whether the store is still the same and whether the name
    belongs to this instance alone. An operator is warned, once for each event.
    """

    def __init__(self, state: SharedState, instance: str, lease_s: float, clock: Clock) -> None:
        self._state = state
        self._instance = instance
        self._lease_s = lease_s
        self._clock = clock
        self._process = secrets.token_hex(8)
        self._announced: tuple[Version, ...] | None = None
        self._announced_at = 0.0
        self._warned_of_rival = False

    async def announce(self, versions: Sequence[Version]) -> None:
        """Write the record, where it is new or due again."""
        elapsed, wanted = self._clock.elapsed(), tuple(versions)
        age_s = elapsed - self._announced_at
        if wanted == self._announced and age_s < self._lease_s * _REPEAT_AFTER:
            return
        if self._announced is not None and age_s < self._lease_s:
            self._compare(await find_record(self._state, INSTANCES, self._instance))
        until = add_seconds(self._clock.now(), self._lease_s)
        value = _encode(_Announcement(self._process, until, wanted))
        await self._state.put_records([RecordWrite(INSTANCES, self._instance, value, ttl_s=_KEPT_S)])
        self._announced, self._announced_at = wanted, elapsed

    async def known_versions(self) -> list[Version]:
        """The versions that some running instance can run."""
        known: dict[Version, None] = {}
        now, after = self._clock.now(), ""
        while page := await self._state.records(INSTANCES, after=after):
            for record in page:
                announcement = _decode(record.value)
                if announcement.until > now:
                    known.update(dict.fromkeys(announcement.versions))
            after = page[-1].key
        return list(known)

    def _compare(self, found: Record | None) -> None:
        if found is None:
            log.error(
                "the store has forgotten us: it was emptied, or restored, or another one answers at its address; "
                "jobs that it acknowledged before may be gone, and are not told apart from jobs that never were",
                extra={"action": "storage_emptied"},
            )
        elif _decode(found.value).process != self._process and not self._warned_of_rival:
            self._warned_of_rival = True
            log.warning(
                "another orchestrator runs under our name %r: give each its own INSTANCE_ID, or each undoes "
                "what the other says about its jobs and workers",
                self._instance,
                extra={"action": "instance_id_shared"},
            )
