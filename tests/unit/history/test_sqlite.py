import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regista.errors import ConfigError, HistoryUnavailable, SchemaError, StorageError, StorageFailed
from regista.history import rows
from regista.history import sqlite as module
from regista.history.memory import MemoryHistory
from regista.history.query import parse_query
from regista.history.sql import search_text
from regista.history.sql_builder import SqliteSql
from regista.history.sqlite import SqliteHistory
from regista.model import OutboxEntry
from regista.model.attributes import declared_types
from regista.testing.conformance.history import START, make_entry, make_summary, running, seqs
from regista.testing.conformance.history_kit import summaries_of, summary_of
from tests.unit.history.plays import batches


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.db"


def record(path: Path, entries: Sequence[OutboxEntry]) -> None:
    async def body() -> None:
        async with running(SqliteHistory(path)) as history:
            await history.record(entries)

    asyncio.run(body())


def ask(path: Path, question: str) -> list[Any]:
    """One question to the file, past our own code."""
    connection = sqlite3.connect(path)
    try:
        return [row[0] for row in connection.execute(question)]
    finally:
        connection.close()


def remove(path: Path) -> None:
    for file in path.parent.glob(path.name + "*"):
        file.unlink()


def start(path: Path) -> None:
    async def body() -> None:
        async with running(SqliteHistory(path)):
            pass

    asyncio.run(body())


# The file


def test_a_directory_that_is_not_there_is_told_with_the_setting(tmp_path: Path) -> None:
    async def body() -> None:
        async with running(SqliteHistory(tmp_path / "typo" / "deep" / "history.db")):
            pass

    words = (
        r"HISTORY_DATABASE_URI: expected a file in a directory that exists \(`mkdir -p .*/typo/deep` makes it"
    )
    with pytest.raises(ConfigError, match=words):
        asyncio.run(body())
    assert list(tmp_path.iterdir()) == []


def test_a_newer_file_is_refused(path: Path) -> None:
    start(path)
    newer = len(module._migrations()) + 1
    ask(path, f"PRAGMA user_version = {newer}")
    with pytest.raises(SchemaError, match=f"got {newer}"):
        start(path)
    assert ask(path, "PRAGMA user_version") == [newer]


def test_a_file_of_somebody_else_is_refused_untouched(path: Path) -> None:
    ask(path, "CREATE TABLE theirs (x)")
    before = path.read_bytes()
    with pytest.raises(SchemaError, match="not a history"):
        start(path)
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    path.write_text("a letter, much longer than the header of a database would be" * 20)
    with pytest.raises(StorageError, match="not a database"):
        start(path)


def test_an_old_sqlite_is_refused_by_name(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 37, 2))
    with pytest.raises(SchemaError, match=r"expected SQLite 3\.38\.0 or newer"):
        start(path)


def test_a_migration_that_fails_leaves_the_file_as_it_was(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(path)
    broken = tmp_path / "0002_broken.sql"
    broken.write_text("CREATE TABLE half (x); CREATE TABLE regista_entries (x);")
    steps = [*module._migrations(), broken]
    with monkeypatch.context() as patch:
        patch.setattr(module, "_migrations", lambda: steps)
        with pytest.raises(StorageError):
            start(path)
    assert ask(path, "SELECT count(*) FROM sqlite_schema WHERE name = 'half'") == [0]
    start(path)


async def test_a_history_that_is_not_open_says_so(path: Path) -> None:
    history = SqliteHistory(path)
    with pytest.raises(StorageError, match="not open"):
        await history.cursor()
    await history.start()
    await history.stop()
    with pytest.raises(StorageError, match="not open"):
        await history.record([make_entry(1)])


async def test_an_error_of_sqlite_leaves_as_ours_and_changes_nothing(path: Path) -> None:
    async with running(SqliteHistory(path)) as history:
        await history.record([make_entry(1)])
        ask(path, "CREATE TRIGGER no BEFORE INSERT ON regista_jobs BEGIN SELECT raise(ABORT, 'refused'); END")
        with pytest.raises(StorageError, match="refused"):
            await history.record([make_entry(2, first_seq=2, summary=make_summary("job-1"))])
        assert await history.cursor() == 1
        assert seqs(await history.events("job-1")) == [1]


# Writing


def test_a_job_has_one_row_per_commit_and_one_summary(path: Path) -> None:
    record(
        path,
        [
            make_entry(1, events=4, summary=make_summary("job-1", "waiting_for_worker")),
            make_entry(2, first_seq=5, events=5, summary=make_summary("job-1", "finished")),
        ],
    )
    assert ask(path, "SELECT first_seq FROM regista_entries ORDER BY first_seq") == [1, 5]
    assert ask(path, "SELECT status FROM regista_jobs") == ["finished"]


async def test_what_was_recorded_survives_the_death_of_the_process(path: Path) -> None:
    program = (
        "import asyncio, os, sys\n"
        "from regista.history.sqlite import SqliteHistory\n"
        "from regista.testing.conformance.history import make_entry\n"
        "async def main():\n"
        "    history = SqliteHistory(sys.argv[1])\n"
        "    await history.start()\n"
        "    await history.record([make_entry(1, events=3)])\n"
        "    os._exit(9)\n"
        "asyncio.run(main())\n"
    )
    ended = subprocess.run([sys.executable, "-c", program, path], env={**os.environ}, check=False)
    assert ended.returncode == 9

    async with running(SqliteHistory(path)) as history:
        assert await history.cursor() == 1
        assert seqs(await history.events("job-1")) == [1, 2, 3]


async def test_the_loop_gets_turns_while_a_large_batch_is_encoded(path: Path) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await rows.pack([make_entry(n, f"job-{n}") for n in range(1, 2001)], SqliteSql)
    counting.cancel()
    assert turns >= 2000 // rows.ENCODED_AT_ONCE


# Syncing


def on_disk_without_the_wal(path: Path) -> int:
    """The cursor that the database alone has: what is left when the WAL is lost."""
    lonely = path.with_suffix(".lonely")
    shutil.copy(path, lonely)
    (cursor,) = ask(lonely, "SELECT value FROM regista_cursor")
    return int(cursor)


async def test_a_synced_cursor_rests_on_no_wal(path: Path) -> None:
    async with running(SqliteHistory(path)) as history:
        await history.sync()
        await history.record([make_entry(1), make_entry(2, first_seq=2)])
        assert on_disk_without_the_wal(path) == 0
        assert await history.sync() == 2
        assert on_disk_without_the_wal(path) == 2


async def test_the_file_runs_with_wal_and_normal(path: Path) -> None:
    async with running(SqliteHistory(path)) as history:
        for pragma, value in {
            "journal_mode": "wal",
            "synchronous": 1,
            "wal_autocheckpoint": module.AUTOCHECKPOINT_PAGES,
        }.items():
            question = f"PRAGMA {pragma}"
            answer = await history._run(lambda c, q=question: c.execute(q).fetchone())  # type: ignore[misc]
            assert answer == (value,)


async def test_a_stranger_who_reads_holds_the_synced_cursor_back(path: Path) -> None:
    async with running(SqliteHistory(path)) as history:
        await history.record([make_entry(1)])
        assert await history.sync() == 1
        stranger = sqlite3.connect(path, isolation_level=None)
        stranger.execute("BEGIN")
        stranger.execute("SELECT * FROM regista_entries").fetchall()
        await history.record([make_entry(2, first_seq=2)])
        await history.record([make_entry(3, first_seq=3)])
        assert await history.cursor() == 3
        assert await history.sync() == 1
        stranger.close()
        assert await history.sync() == 3


async def test_a_failed_fsync_is_final(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(connection: sqlite3.Connection) -> int:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
        raise error

    async with running(SqliteHistory(path)) as history:
        await history.record([make_entry(1)])
        with monkeypatch.context() as patch:
            patch.setattr(module, "_checkpoint", fail)
            with pytest.raises(StorageError):
                await history.sync()
        with pytest.raises(StorageFailed):
            await history.sync()
        await history.record([make_entry(2, first_seq=2)])  # never in the way of anything else


async def test_what_went_into_a_file_without_its_name_is_never_called_safe(path: Path) -> None:
    async with running(SqliteHistory(path)) as history:
        await history.record([make_entry(1)])
        assert await history.sync() == 1
        remove(path)
        await history.record([make_entry(2, first_seq=2)])
        for _ in range(2):
            with pytest.raises(StorageError, match=r"history\.db is gone.*restart"):
                await history.sync()


# Reading


def test_a_file_that_cannot_be_read_is_a_history_that_is_away(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        async with running(SqliteHistory(path)) as history:
            ask(path, "DROP TABLE regista_entries")
            for _ in range(3):
                with pytest.raises(HistoryUnavailable, match=r"history\.db"):
                    await history.events("job-1")

    asyncio.run(body())
    assert caplog.text.count("jobs go on without it") == 1


async def test_a_batch_costs_the_same_however_many_jobs_there_are(path: Path) -> None:
    def told(first: int, count: int) -> list[OutboxEntry]:
        return [
            make_entry(n, f"job-{n:04}", summary=make_summary(f"job-{n:04}"))
            for n in range(first, first + count)
        ]

    async def steps_of(history: SqliteHistory, entries: Sequence[OutboxEntry]) -> int:
        steps: list[None] = []
        await history._run(lambda connection: connection.set_progress_handler(lambda: steps.append(None), 10))
        await history.record(entries)
        await history._run(lambda connection: connection.set_progress_handler(None, 0))
        return len(steps)

    async with running(SqliteHistory(path)) as history:
        await history.record(told(1, 10))
        few = await steps_of(history, told(11, 10))
        await history.record(told(21, 1000))
        assert await steps_of(history, told(1021, 10)) < 1.2 * few


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        ("", "regista_jobs_by_time"),
        ("Asset = 'x'", "SEARCH lead USING PRIMARY KEY (name=? AND key=? AND (created_at,job_id)<"),
        (
            "Asset = 'x' AND StartTime > '2026-01-01'",
            "lead USING PRIMARY KEY (name=? AND key=? AND created_at>? AND (created_at,job_id)<",
        ),
        ("ClientName = 'acme'", "regista_jobs_by_client"),
        ("BlueprintName = 'b'", "regista_jobs_by_blueprint"),
        ("ExecutionStatus = 'Failed'", "regista_jobs_unfinished"),
        ("StartTime > '2026-01-01'", "regista_jobs_by_time (created_at>?"),
    ],
)
async def test_a_search_reads_along_an_index(path: Path, text: str, plan: str) -> None:
    query = parse_query(text, declared_types({"Asset": "Keyword"}))

    async with running(SqliteHistory(path)) as history:
        sql = SqliteSql()
        question = search_text(sql, query, await history._index_for(query), (START, "job-9"), 100)
        explained = f"EXPLAIN QUERY PLAN {question}"
        rows = await history._run(lambda connection: connection.execute(explained, sql.named()).fetchall())
        assert plan in " ".join(row[3] for row in rows)
        assert "TEMP B-TREE" not in " ".join(row[3] for row in rows)


_ids = st.sampled_from(["a", "b", "c"])


@given(
    told=batches(),
    after_seq=st.integers(0, 12),
    limit=st.integers(1, 12),
    status=st.sampled_from([None, "running", "failed", "finished"]),
    before=st.none() | _ids,
)
async def test_whatever_is_recorded_reads_as_from_memory(
    tmp_path_factory: pytest.TempPathFactory,
    told: list[list[OutboxEntry]],
    after_seq: int,
    limit: int,
    status: str | None,
    before: str | None,
) -> None:
    memory = MemoryHistory()
    async with running(SqliteHistory(tmp_path_factory.mktemp("play") / "history.db")) as sqlite:
        for batch in told:
            for history in (memory, sqlite):
                await history.record(batch)
        assert await sqlite.cursor() == await memory.cursor()
        assert await sqlite.sync() == await memory.sync()
        for job_id in ("a", "b", "c"):
            assert await sqlite.events(job_id, after_seq, limit) == await memory.events(
                job_id, after_seq, limit
            )
            assert await summary_of(sqlite, job_id) == await summary_of(memory, job_id)
        place = None if before is None else (START, before)
        asked: dict[str, Any] = {"status": status, "before": place, "limit": limit}
        assert await summaries_of(sqlite, **asked) == await summaries_of(memory, **asked)
        for client in (None, "acme", "other"):
            found = await memory.entries(after_seq % 5, limit, client)
            assert await sqlite.entries(after_seq % 5, limit, client) == found
