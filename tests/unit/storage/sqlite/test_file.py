import asyncio
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from regista.errors import SchemaError, StorageError, StorageFailed, StorageOwned, StorageUnavailable
from regista.history.sqlite import SqliteHistory
from regista.storage import memory
from regista.storage.sqlite import store
from regista.storage.sqlite.store import SqliteStorage
from regista.testing.conformance.storage.kit import (
    FINISHED,
    commit,
    create,
    job_of,
    make_job,
    next_of,
    running,
    shown,
    write,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


def start(path: Path) -> None:
    async def body() -> None:
        async with running(SqliteStorage(path, owner_patience_s=0.0)):
            pass

    asyncio.run(body())


def ids(path: Path) -> list[str]:
    """The jobs in the file, past our own code."""
    connection = sqlite3.connect(path)
    try:
        return [row[0] for row in connection.execute("SELECT id FROM jobs")]
    finally:
        connection.close()


# Files that are not there any more


def replace(path: Path) -> None:
    """Another file under the same name, as a backup that is put back."""
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    other.replace(path)


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize(
    ("what", "how"),
    [
        ("jobs.db", Path.unlink),
        ("jobs.db", replace),
        ("jobs.db", empty),
        ("jobs.db-wal", Path.unlink),
        ("jobs.db.lock", Path.unlink),
        ("jobs.db.lock", replace),
    ],
)
async def test_nothing_is_acknowledged_that_is_written_to_a_file_without_its_name(
    path: Path, what: str, how: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_LOOK_S", 0.0)

    storage = SqliteStorage(path)
    await storage.start()
    await create(storage, make_job("safe"))

    how(path.with_name(what))
    with pytest.raises(StorageFailed, match=what):
        await storage.commit([write(make_job("lost"))], "me")

    failure = await storage.failed()  # so the orchestrator stops
    assert "StorageFailed(" not in str(failure)  # words for people
    with pytest.raises(StorageFailed):
        await storage.stop()


async def test_a_look_costs_something_so_it_is_not_had_with_every_flush(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_LOOK_S", 3600.0)

    async with running(SqliteStorage(path)) as storage:
        await create(storage, make_job("looked-at"))
        path.with_name("jobs.db.lock").unlink()
        await create(storage, make_job("not-looked-at"))


async def test_a_file_that_cannot_be_read_says_that_the_store_is_away(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "ENDED_CACHED", 0)

    async with running(SqliteStorage(path)) as storage:
        await create(storage, make_job())
        await commit(storage, write(next_of(await job_of(storage), **FINISHED)))
        reader = storage._journal._reader  # type: ignore[attr-defined]
        reader.close()
        with pytest.raises(StorageUnavailable, match=r"cannot read .*jobs\.db"):
            await shown(storage, "job-1")


# Files that are not ours


@pytest.mark.parametrize("version", [0, 1, 3, 7])
def test_a_database_of_somebody_else_is_refused_untouched(path: Path, version: int) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(f"CREATE TABLE books (title); PRAGMA user_version = {version};")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(SchemaError, match="not a store of Regista"):
        start(path)
    assert path.read_bytes() == before


def test_a_history_is_no_store(path: Path) -> None:
    async def make() -> None:
        history = SqliteHistory(path)
        await history.start()
        await history.stop()

    asyncio.run(make())
    before = path.read_bytes()
    with pytest.raises(SchemaError, match="not a store of Regista"):
        start(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("empty", [False, True])
def test_a_wal_without_its_file_is_kept_and_refused(path: Path, empty: bool) -> None:
    wal = path.with_name("jobs.db-wal")
    wal.write_bytes(b"the newest jobs")
    if empty:
        path.touch()
    with pytest.raises(StorageError, match=r"the newest jobs may be in jobs\.db-wal alone"):
        start(path)
    assert wal.read_bytes() == b"the newest jobs"
    wal.rename(path.with_name("away"))
    start(path)


def test_a_backup_beside_the_wal_of_another_file_is_refused_unharmed(path: Path, tmp_path: Path) -> None:
    crashed, wal = tmp_path / "crashed", path.with_name("jobs.db-wal")

    async def live(first: int) -> None:
        async with running(SqliteStorage(path)) as storage:
            for n in range(first, first + 200):
                await create(storage, make_job(f"job-{n}", data={"x": "y" * 500}))
            shutil.copy(wal, crashed)  # what a crash would leave

    asyncio.run(live(0))
    backup = path.read_bytes()
    asyncio.run(live(200))
    asyncio.run(live(400))
    path.write_bytes(backup)
    crashed.rename(wal)

    for _ in range(2):
        with pytest.raises(StorageError, match=r"do not fit together.* move .*jobs\.db-wal away"):
            start(path)
    assert path.read_bytes() == backup

    wal.rename(crashed)
    start(path)
    assert len(ids(path)) == 200


def test_what_a_crash_leaves_fits_together(path: Path, tmp_path: Path) -> None:
    async def live() -> None:
        async with running(SqliteStorage(path)) as storage:
            for n in range(200):
                await create(storage, make_job(f"job-{n}", data={"x": "y" * 500}))
            for file in (path, path.with_name("jobs.db-wal")):
                shutil.copy(file, tmp_path / f"crashed-{file.name}")

    asyncio.run(live())
    start(tmp_path / "crashed-jobs.db")
    assert len(ids(tmp_path / "crashed-jobs.db")) == 200


# Other ways to the same file


async def test_whoever_comes_by_a_link_meets_the_same_owner(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "elsewhere" / "link.db"
    link.parent.mkdir()
    link.symlink_to(path)

    async with running(SqliteStorage(path)):
        with pytest.raises(StorageOwned):
            await SqliteStorage(link, owner_patience_s=0.0).start()
    async with running(SqliteStorage(link)) as storage:
        await create(storage, make_job())
    async with running(SqliteStorage(path)) as storage:
        assert await shown(storage, "job-1") is not None


@pytest.mark.parametrize("name", [":memory:", "file:jobs.db?mode=memory", "jobs?#%20 'é\n.db"])
def test_what_sqlite_takes_for_something_else_is_a_file_all_the_same(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def body() -> None:
        async with running(SqliteStorage(name)) as storage:
            await create(storage, make_job())
        async with running(SqliteStorage(name)) as storage:
            assert await shown(storage, "job-1") is not None

    asyncio.run(body())
    assert name in os.listdir(tmp_path)
