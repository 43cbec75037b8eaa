"""Audit records: who did what. What was done to a job is also in the job's own events."""

from datetime import datetime
from secrets import token_hex

import msgspec
from msgspec import Struct, field

from .record import Record, RecordWrite

#: The collection of these records.
AUDIT_COLLECTION = "audit"
#: The actor of actions without a caller, such as a signal or a chore.
SYSTEM = "system"
#: Above every stored time, in microseconds. Keys count down from it, so that the newest record comes first.
_END = 1 << 53

_encode = msgspec.msgpack.Encoder().encode


class AuditRecord(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One action. Contains neither the body of the request nor any token."""

    at: datetime
    #: `client:NAME`, `operator:NAME`, `worker:ID`, `approval_link` or `system`.
    actor: str
    #: The action, noun first: `worker.drain`.
    action: str
    #: The id of what it was done to.
    target: str = ""
    #: The address of the caller; empty without one.
    address: str = ""
    #: The orchestrator instance that carried it out.
    instance: str = ""
    #: Further fields. They are not confidential.
    facts: dict[str, str] = field(default_factory=dict)


_decode = msgspec.msgpack.Decoder(AuditRecord).decode


class AuditedAction(Struct, frozen=True, gc=False):
    """An action on a job: its actor, for the job's events, and the audit record that is written with it."""

    actor: str
    record: RecordWrite


def audit_write(record: AuditRecord, ttl_s: float) -> RecordWrite:
    """Writes the record; it expires after `ttl_s`."""
    micros = int(record.at.timestamp() * 1_000_000)
    # Two records of one microsecond must not replace each other.
    key = f"{_END - micros:016x}-{token_hex(4)}"
    return RecordWrite(AUDIT_COLLECTION, key, _encode(record), ttl_s=ttl_s)


def audit_record(record: Record) -> AuditRecord:
    """Decodes an audit record."""
    return _decode(record.value)
