"""Audit: who did what that belongs to no job. What was done to a job stands in the job's own events."""

from datetime import datetime
from secrets import token_hex

import msgspec
from msgspec import Struct, field

from .item import Item, ItemWrite

#: The shelf on which these records lie.
AUDIT_SHELF = "audit"
#: Whoever is not a person and no client either: a signal, a chore.
SYSTEM = "system"
#: Above every time that is stored, in microseconds: keys count down from it, so the newest comes first.
_END = 1 << 53

_encode = msgspec.msgpack.Encoder().encode


class AuditRecord(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One deed. Neither what was sent nor any token is part of it."""

    at: datetime
    #: `client:NAME`, `operator:NAME`, `worker:ID`, `approval_link` or `system`.
    actor: str
    #: What was done, noun first: `worker.drain`.
    action: str
    #: Whom or what it was done to.
    target: str = ""
    #: Where the request came from; empty where nobody asked.
    address: str = ""
    #: The orchestrator that did it.
    instance: str = ""
    #: What else there is to tell, in words that anybody may read.
    facts: dict[str, str] = field(default_factory=dict)


_decode = msgspec.msgpack.Decoder(AuditRecord).decode


class Deed(Struct, frozen=True, gc=False):
    """What somebody does to a job: who it is, for the job's events, and the record that rides in the same write."""

    actor: str
    record: ItemWrite


def audit_write(record: AuditRecord, ttl_s: float) -> ItemWrite:
    """The record on its way to the shelf; gone after `ttl_s`."""
    micros = int(record.at.timestamp() * 1_000_000)
    # Two of one microsecond must not take each other's place.
    key = f"{_END - micros:016x}-{token_hex(4)}"
    return ItemWrite(AUDIT_SHELF, key, _encode(record), ttl_s=ttl_s)


def audit_record(item: Item) -> AuditRecord:
    """What lies there."""
    return _decode(item.value)
