"""Items are shown when they are durable, and leave nothing behind when they are gone."""

import asyncio
import random
import sqlite3
from collections.abc import Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from regista.errors import StorageFailed
from regista.model import RecordWrite
from regista.storage.base import find_record
from regista.storage.journal import JournalBatch
from regista.storage.memory import MemoryStorage
from regista.storage.records import RecordTable
from regista.storage.sqlite.store import SqliteStorage
from regista.testing.clock import Clock
from regista.testing.conformance.storage.kit import START, at, commit, make_job, running, write
from regista.testing.conformance.storage.shelves import SHELF, item
from regista.testing.disk import SimulatedDisk
from regista.testing.loop import VirtualLoop


def played(main: Coroutine[Any, Any, None]) -> None:
    loop = VirtualLoop()
    try:
        loop.run_until_complete(main)
    finally:
        loop.close()


def test_an_item_is_shown_only_when_it_is_flushed() -> None:
    async def main() -> None:
        disk = SimulatedDisk(delay=lambda: 1.0)
        async with running(MemoryStorage(journal=disk)) as storage:
            await storage.put_records([item("old", due=START)])
            putting = asyncio.ensure_future(storage.put_records([item("new", due=START), item("old", None)]))
            await asyncio.sleep(0.1)
            looks = [
                asyncio.ensure_future(find_record(storage, SHELF, "new")),
                asyncio.ensure_future(storage.records(SHELF)),
                asyncio.ensure_future(storage.due_records(SHELF, START, 9)),
            ]
            other = await find_record(storage, "other", "new")
            await asyncio.sleep(0.5)
            assert (other, putting.done(), [look.done() for look in looks]) == (None, False, [False] * 3)
            assert await putting == [True, True]
            new, *lists = [await look for look in looks]
            assert lists == [[new], [new]]

    played(main())


def test_a_power_cut_takes_what_was_not_acknowledged_and_nothing_else() -> None:
    async def main() -> None:
        disk = SimulatedDisk(delay=lambda: 1.0)
        storage = MemoryStorage(journal=disk)
        await storage.start()
        await storage.put_records([item("kept")])
        putting = asyncio.ensure_future(storage.put_records([item("lost"), item("kept", None)]))
        looking = asyncio.ensure_future(storage.records(SHELF))
        await asyncio.sleep(0.5)
        disk.pull_the_plug()
        for waiting in (putting, looking):
            with pytest.raises(StorageFailed):
                await waiting
        async with running(MemoryStorage(journal=disk)) as again:
            assert [found.key for found in await again.records(SHELF)] == ["kept"]

    played(main())


def test_what_ended_leaves_the_file_with_the_next_write(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"

    async def main() -> None:
        clock = Clock()
        async with running(SqliteStorage(path, clock)) as storage:
            await storage.put_records([item(f"{n}", ttl_s=5) for n in range(10)])
        clock.move(6)
        async with running(SqliteStorage(path, clock)) as storage:
            await commit(storage, write(make_job(), records=(item("new"),)))

    asyncio.run(main())
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT collection, key, revision FROM records").fetchall() == [
        (SHELF, "new", 1)
    ]
    connection.close()


def test_an_item_that_is_renewed_again_and_again_ends_once() -> None:
    clock = Clock()
    table = RecordTable(clock)
    for _ in range(50):
        assert table.put([item("a", ttl_s=10)], JournalBatch(), 1) == [True]
        clock.move(1)
    assert table.find(SHELF, ["a"]) != []
    clock.move(9)
    assert table.find(SHELF, ["a"]) == []
    batch = JournalBatch()
    table.put([item("b")], batch, 1)
    assert {key: row.revision for (_, key), row in batch.records.items()} == {"a": 0, "b": 1}
    assert (table._ends, list(table._collections)) == ([], [SHELF])


def test_random_writes_are_what_a_dictionary_would_know() -> None:
    chance, clock = random.Random(7), Clock(START)
    table = RecordTable(clock)
    known: dict[str, RecordWrite] = {}
    for _ in range(3000):
        key = f"k{chance.randrange(60):02}"
        due = chance.choice([None, at(chance.randrange(100))])
        change = item(key, chance.choice([None, b"1", b"2"]), due=due)
        table.put([change], JournalBatch(), 1)
        known.pop(key, None)
        if change.value is not None:
            known[key] = change
    now = START + timedelta(seconds=50)
    assert [found.key for found in table.page(SHELF, "k20", 5)] == sorted(k for k in known if k > "k20")[:5]
    ripe = sorted((write.due, key) for key, write in known.items() if write.due and write.due <= now)
    assert [(found.due, found.key) for found in table.due(SHELF, now, 1000)] == ripe
