"""SimulatedDisk: a journal with a durable image of its own, and a plug that can be pulled. FENCES 3."""

import asyncio
from collections.abc import Callable, Sequence

from ..storage.journal import CountRow, JobRow, JournalBatch, RecordRow, Snapshot


class PowerCut(Exception):
    """The power failed while a batch was on its way."""


class SimulatedDisk:
    """What is written here survives; what only the store's memory knows does not.

    `write` takes `delay()` seconds. When the plug is pulled meanwhile, the batch is lost whole: a
    transaction either is on the disk or is not.
    """

    keeps_ended = True

    def __init__(self, delay: Callable[[], float] = lambda: 0.0005) -> None:
        self._delay = delay
        self._plug = 0
        self.jobs: dict[str, JobRow] = {}
        self.tasks: dict[str, bytes] = {}
        self.messages: dict[str, bytes] = {}
        self.entries: dict[int, bytes] = {}
        self.pruned = 0
        self.records: dict[tuple[str, str], RecordRow] = {}
        self.counts: dict[str, CountRow] = {}
        self.writes = 0

    def pull_the_plug(self) -> None:
        """Whatever is being written now is lost. The disk itself stays."""
        self._plug += 1

    async def open(self) -> Snapshot:
        return Snapshot(
            jobs=[row for row in self.jobs.values() if row.live],
            tasks=list(self.tasks.values()),
            messages=list(self.messages.values()),
            entries=[self.entries[number] for number in sorted(self.entries)],
            last_id=max(self.jobs, default=""),
            records=list(self.records.values()),
            counts=list(self.counts.values()),
        )

    async def write(self, batch: JournalBatch) -> None:
        plug = self._plug
        await asyncio.sleep(self._delay())
        if plug != self._plug:
            raise PowerCut
        self._keep(batch)

    def _keep(self, batch: JournalBatch) -> None:
        self.writes += 1
        self.jobs.update(batch.jobs)
        _merge(self.tasks, batch.tasks)
        _merge(self.messages, batch.messages)
        self.records = {name: row for name, row in (self.records | batch.records).items() if row.revision}
        self.counts = {name: row for name, row in (self.counts | batch.counts).items() if row.used}
        self.entries.update(batch.entries)
        last = max(self.entries, default=0)
        self.pruned = max(self.pruned, batch.prune)
        for number in [n for n in self.entries if n <= self.pruned and n != last]:
            del self.entries[number]

    def find_job(self, job_id: str) -> bytes | None:
        row = self.jobs.get(job_id)
        return row.body if row is not None else None

    async def forget(self, job_ids: Sequence[str]) -> None:
        return None

    async def close(self) -> None:
        return None


def _merge(kept: dict[str, bytes], changes: dict[str, bytes | None]) -> None:
    for key, body in changes.items():
        if body is None:
            kept.pop(key, None)
        else:
            kept[key] = body
