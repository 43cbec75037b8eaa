"""Where the orchestrators of one store record."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from regista.errors import ConfigError
from regista.history.memory import MemoryHistory
from regista.history.sqlite import SqliteHistory
from regista.storage.base import StorageBackend
from regista.storage.memory import MemoryStorage
from regista.upkeep.recorders import SHELF, Place, Recorders, place_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LASTS_S = 0.3
FILE, OTHER, DATABASE = Place("sqlite:/a on here"), Place("sqlite:/a on there"), Place("")


def recorders(storage: StorageBackend, place: Place, instance: str) -> Recorders:
    return Recorders(storage, place, instance, lasts_s=LASTS_S)


async def refused(storage: StorageBackend, place: Place, instance: str) -> str:
    with pytest.raises(ConfigError) as found:
        await recorders(storage, place, instance).enter()
    return str(found.value)


@pytest.mark.parametrize("first", [FILE, DATABASE])
async def test_whoever_records_elsewhere_than_those_before_is_refused(first: Place) -> None:
    storage = MemoryStorage()
    await storage.start()
    there = recorders(storage, first, "i1")
    await there.enter()
    async with saying(there):
        told = await refused(storage, OTHER, "i2")
    assert "HISTORY_DATABASE_URI: expected the history of instance 'i1'" in told
    assert str(first) in told
    assert str(OTHER) in told


@asynccontextmanager
async def saying(*some: Recorders) -> AsyncIterator[None]:
    """While they run."""

    async def on(one: Recorders) -> None:
        while True:
            await one.run_once(NOW)
            await asyncio.sleep(0.05)

    tasks = [asyncio.create_task(on(one)) for one in some]
    yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("place", [FILE, DATABASE])
async def test_those_who_record_in_one_place_do_so_together(place: Place) -> None:
    storage = MemoryStorage()
    await storage.start()
    crew = [recorders(storage, place, f"i{n}") for n in range(10)]
    await asyncio.gather(*(one.enter() for one in crew))
    async with saying(*crew):
        await asyncio.sleep(2 * LASTS_S)
        assert await storage.item(SHELF, "place") is not None


async def test_whoever_has_stopped_or_died_is_waited_for_and_stands_in_nobodys_way() -> None:
    storage = MemoryStorage()
    await storage.start()
    await recorders(storage, FILE, "gone").enter()
    await recorders(storage, DATABASE, "new").enter()
    item = await storage.item(SHELF, "place")
    assert item is not None
    assert b"new" in item.value


def test_of_two_that_come_at_once_one_stays() -> None:
    async def main() -> list[BaseException | None]:
        storage = MemoryStorage()
        await storage.start()
        both = [recorders(storage, place, name) for name, place in (("i1", FILE), ("i2", OTHER))]
        return await asyncio.gather(*(enter_and_stay(one) for one in both), return_exceptions=True)

    async def enter_and_stay(one: Recorders) -> None:
        await one.enter()
        async with saying(one):
            await asyncio.sleep(4 * LASTS_S)

    ends = asyncio.run(main())
    assert sorted(map(str, map(type, ends))) == sorted(map(str, (type(None), ConfigError)))


def test_whoever_finds_another_word_than_its_own_after_an_outage_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        storage = MemoryStorage()
        await storage.start()
        cut_off, new = recorders(storage, FILE, "cut off"), recorders(storage, DATABASE, "new")
        await cut_off.enter()
        await new.enter()
        for _ in range(3):
            await cut_off.run_once(NOW)

    asyncio.run(main())
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]


def test_a_history_of_ones_own_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    async def main(place: Place) -> None:
        storage = MemoryStorage()
        await storage.start()
        await recorders(storage, place, "i1").enter()

    asyncio.run(main(DATABASE))
    assert caplog.records == []
    asyncio.run(main(FILE))
    (record,) = caplog.records
    assert (record.levelname, "HISTORY_DATABASE_URI" in record.getMessage()) == ("WARNING", True)


def test_a_file_is_one_place_on_one_machine_and_memory_is_one_objects(tmp_path: Path) -> None:
    file = tmp_path / "history.db"
    assert place_of(SqliteHistory(file)) == place_of(SqliteHistory(str(file)))
    assert not place_of(SqliteHistory(file)).fits(place_of(SqliteHistory(tmp_path / "other.db")))
    history = MemoryHistory()
    assert place_of(history).fits(place_of(history))
    assert not place_of(history).fits(place_of(MemoryHistory()))
