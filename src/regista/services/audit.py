"""Records who did what, and lists the records.

Actions on jobs are recorded in the commit that makes them (`action`); all others by `perform`, which runs
the action and its record together.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from msgspec import Struct

from ..clock import Clock
from ..errors import StorageOutcomeUnknown
from ..model import Record
from ..model.audit import AUDIT_COLLECTION, AuditedAction, AuditRecord, audit_record, audit_write
from ..storage.base import SharedState
from .caller import Caller, Role
from .pages import RecordPage, record_page

log = logging.getLogger("regista.audit")

T = TypeVar("T")

_DAY_S = 86_400.0


class AuditFilter(Struct, frozen=True):
    """Which records are wanted; None matches all."""

    actor: str | None = None
    action: str | None = None
    target: str | None = None

    def matches(self, record: AuditRecord) -> bool:
        """The record has all wanted values."""
        wanted = ((self.actor, record.actor), (self.action, record.action), (self.target, record.target))
        return all(value is None or value == got for value, got in wanted)


class AuditService:
    """Writes and reads audit records. They contain no tokens and nothing of what was sent."""

    def __init__(self, records: SharedState, clock: Clock, instance: str, keep_days: float) -> None:
        self._records = records
        self._clock = clock
        self._instance = instance
        self._keep_s = keep_days * _DAY_S
        self._running: set[asyncio.Task[Any]] = set()

    async def stop(self) -> None:
        """Wait until the actions that have started are recorded."""
        while self._running:
            await asyncio.wait(self._running)

    def action(self, caller: Caller, action: str, target: str, **facts: str) -> AuditedAction | None:
        """What the caller is about to do to a job; the engine records it in the commit that does it.

        None for the embedding program: nothing that it does is recorded.
        """
        if caller.role is Role.PROGRAM:
            return None
        record = self._record(caller, action, target, facts)
        return AuditedAction(record.actor, audit_write(record, self._keep_s))

    async def perform(
        self,
        caller: Caller,
        action: str,
        target: str,
        work: Coroutine[Any, Any, T],
        facts: Callable[[T], dict[str, str]] = lambda _: {},
    ) -> T:
        """Do the work, then record it; returns the result of the work.

        Both happen even if the caller is cancelled meanwhile: a client that disconnects must not leave an
        action without its record. Work that raises is not recorded. `action` is noun and verb
        (`worker.drain`), `target` the id of what is changed; `facts` are taken from the result.
        """

        async def work_and_record() -> T:
            result = await work
            await self.record(caller, action, target, **facts(result))
            return result

        task = asyncio.get_running_loop().create_task(work_and_record(), name=f"audited-{action}")
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def record(self, caller: Caller, action: str, target: str, **facts: str) -> None:
        """Record an action that was done. If the store is unavailable, only the log has it."""
        if caller.role is Role.PROGRAM:
            return
        self.log(caller, action, target)
        record = self._record(caller, action, target, facts)
        try:
            await self._records.put_records([audit_write(record, self._keep_s)])
        except StorageOutcomeUnknown:
            log.warning("%s: not recorded, the store is unavailable", action, extra={"action": action})

    def log(self, caller: Caller, action: str, target: str, level: int = logging.INFO) -> None:
        """Write the log line of an action; enough for what a job's own events record as well."""
        if caller.role is not Role.PROGRAM and log.isEnabledFor(level):
            fields = {"action": action, "actor": caller.actor, "target": target, "address": caller.address}
            log.log(level, "%s %s %s", caller.actor, action, target, extra=fields)

    def log_submission(self, caller: Caller, target: str) -> None:
        """Write the log line of accepted jobs. At DEBUG: there are many, and each job's first event names its client."""
        self.log(caller, "job.submit", target, logging.DEBUG)

    async def list_page(
        self, caller: Caller, wanted: AuditFilter, after: str = "", limit: int = 100
    ) -> RecordPage[AuditRecord]:
        """The records that match, newest first; for operators. A page may be short and yet have an `end`."""
        caller.require_operator("read the audit records")

        def matching(item: Record) -> AuditRecord | None:
            record = audit_record(item)
            return record if wanted.matches(record) else None

        return await record_page(self._records, AUDIT_COLLECTION, matching, after, limit)

    def _record(self, caller: Caller, action: str, target: str, facts: dict[str, str]) -> AuditRecord:
        return AuditRecord(
            at=self._clock.now(),
            actor=caller.actor,
            action=action,
            target=target,
            address=caller.address,
            instance=self._instance,
            facts=facts,
        )
