"""The audit trail: newest first, bounded by number and age, and written by whoever has no request, too."""

import logging
from collections import Counter
from datetime import timedelta

import pytest
from msgspec.structs import replace

from regista import Config, MemoryStorage
from regista.maintenance.audit import AuditTrimmer, note
from regista.model.audit import AUDIT_COLLECTION, AuditRecord, audit_record, audit_write
from regista.testing.clock import Clock
from tests.webhook_kit import THEN, in_loop


def record(number: int) -> AuditRecord:
    return AuditRecord(at=THEN + timedelta(seconds=number), actor="system", action="a.b", target=str(number))


async def targets(storage: MemoryStorage) -> list[str]:
    return [audit_record(item).target for item in await storage.records(AUDIT_COLLECTION, limit=10_000)]


async def test_the_newest_comes_first_and_two_of_one_moment_are_two() -> None:
    storage = MemoryStorage(Clock())
    await storage.start()
    await storage.put_records([audit_write(record(number), 60.0) for number in (1, 3, 2, 3)])
    assert await targets(storage) == ["3", "3", "2", "1"]
    await storage.stop()


async def test_beyond_so_many_the_oldest_are_removed() -> None:
    storage = MemoryStorage(Clock())
    await storage.start()
    await storage.put_records([audit_write(record(number), 60.0) for number in range(2500)])
    trimmer = AuditTrimmer(storage, most=1200)
    # A run looks at a thousand of them and asks for the next one.
    reports = [await trimmer.run_once(THEN) for _ in range(3)]
    assert [(report.done, report.run_again_in_s is None) for report in reports] == [
        (0, False),
        (800, False),
        (500, True),
    ]
    assert await targets(storage) == [str(number) for number in range(2499, 1299, -1)]
    assert sum([(await trimmer.run_once(THEN)).done for _ in range(2)]) == 0
    await storage.stop()


def test_the_log_says_to_what_it_was_done_and_how_it_ended(caplog: pytest.LogCaptureFixture) -> None:
    @in_loop
    async def main() -> None:
        clock = Clock()
        storage = MemoryStorage(clock)
        await storage.start()
        await note(storage, clock, Config(), "config.reload", "clients.toml", outcome="refused")
        await storage.stop()

    with caplog.at_level(logging.INFO, "regista.audit"):
        main()

    assert caplog.messages == ["system config.reload clients.toml refused"]


async def test_nobody_flushes_out_what_others_did_by_doing_much() -> None:
    storage = MemoryStorage(Clock())
    await storage.start()
    early = [("operator:ops", "drained"), ("system", "reloaded"), ("client:ada", "cancelled")]
    deeds = early + [("client:bob", "again")] * 500 + [(f"worker:w{n}", "reused") for n in range(500)]
    made = [replace(record(n), actor=who, target=what) for n, (who, what) in enumerate(deeds)]
    await storage.put_records([audit_write(one, 60.0) for one in made])
    trimmer = AuditTrimmer(storage, most=1000)
    for _ in range(2):
        await trimmer.run_once(THEN)
    assert Counter(await targets(storage)) == {
        "drained": 1, "reloaded": 1, "cancelled": 1, "again": 100, "reused": 100,
    }  # fmt: skip
    await storage.stop()


async def test_what_is_too_old_is_gone_by_itself() -> None:
    clock = Clock()
    storage = MemoryStorage(clock)
    await storage.start()
    await note(storage, clock, Config(instance_id="one", audit_days=2), "config.reload", "", outcome="done")
    (item,) = await storage.records(AUDIT_COLLECTION)
    kept = audit_record(item)
    assert (kept.actor, kept.action, kept.instance, kept.facts) == (
        "system", "config.reload", "one", {"outcome": "done"},
    )  # fmt: skip
    clock.move(days=2, seconds=1)
    assert await storage.records(AUDIT_COLLECTION) == []
    await storage.stop()


async def test_a_record_that_cannot_be_read_may_be_an_operators_and_keeps_its_room() -> None:
    storage = MemoryStorage(Clock())
    await storage.start()
    writes = [audit_write(record(number), 60.0) for number in range(100)]
    await storage.put_records([replace(write, value=b"of a newer version") for write in writes])
    assert (await AuditTrimmer(storage, most=100).run_once(THEN)).done == 0
    await storage.stop()
