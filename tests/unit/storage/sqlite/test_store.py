import asyncio
import gc
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from regista.errors import SchemaError, StorageError, StorageFailed, StorageOwned
from regista.model import JobStatus, OutboxEntry
from regista.storage import memory
from regista.storage.base import Heartbeat, StorageBackend, shared_secret
from regista.storage.sqlite import file, rows
from regista.storage.sqlite.store import SqliteStorage
from regista.testing.conformance.storage.kit import (
    ALL,
    APPLIED,
    EXISTS,
    FINISHED,
    REPEATED,
    STALE,
    START,
    V1,
    closed,
    commit,
    create,
    dispatch,
    event,
    fenced,
    job_of,
    make_job,
    make_task,
    make_worker,
    message,
    next_of,
    offers,
    only,
    running,
    shown,
    write,
)

#: The row of the first of two jobs, in each table.
_FIRST = {
    "jobs": "id = 'bad'",
    "tasks": "id = 'bad_1_0'",
    "messages": "id = 'to bad'",
    "outbox": "number = (SELECT min(number) FROM outbox)",
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


def ask(path: Path, question: str) -> list[Any]:
    """One question to the file, past our own code."""
    connection = sqlite3.connect(path)
    try:
        return [row[0] for row in connection.execute(question)]
    finally:
        connection.close()


def start(path: Path, patience_s: float = 0.0) -> None:
    async def body() -> None:
        async with running(SqliteStorage(path, owner_patience_s=patience_s)):
            pass

    asyncio.run(body())


def program(path: Path, *lines: str) -> subprocess.Popen[str]:
    """Another process that opens the store, does this, and says so."""
    source = "\n".join(
        [
            "import asyncio, os, resource, signal, sys, time",
            "from regista.errors import StorageFailed",
            "from regista.storage.sqlite.store import SqliteStorage",
            "from regista.testing.conformance.storage.kit import *",
            "async def main():",
            "    storage = SqliteStorage(sys.argv[1])",
            "    await storage.start()",
            *(f"    {line}" for line in lines),
            "asyncio.run(main())",
        ]
    )
    command = [sys.executable, "-c", source, str(path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ})


# One process owns the file


def test_a_second_owner_is_refused_with_the_pid_of_the_first(path: Path) -> None:
    owner = program(path, "print('there', flush=True)", "time.sleep(60)")
    try:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "there\n"
        begun = time.monotonic()
        with pytest.raises(StorageOwned, match=f"pid {owner.pid}"):
            start(path, patience_s=0.2)
        assert 0.2 <= time.monotonic() - begun < 3
    finally:
        owner.kill()
        owner.communicate()
    start(path)  # a dead owner's lock is gone with it


def test_a_start_that_waits_says_for_whom(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        async with running(SqliteStorage(path)):
            with pytest.raises(StorageOwned):
                await SqliteStorage(path, owner_patience_s=1.2).start()

    asyncio.run(body())
    (line,) = [record for record in caplog.records if vars(record).get("action") == "store_taken"]
    assert f"waiting for pid {os.getpid()} to let go of it" in line.getMessage()


async def test_a_start_waits_for_a_predecessor_that_leaves(path: Path) -> None:
    first = SqliteStorage(path)
    await first.start()
    await create(first, make_job())
    second = SqliteStorage(path, owner_patience_s=9)
    starting = asyncio.create_task(second.start())
    await asyncio.sleep(0.15)
    assert not starting.done()
    await first.stop()
    await starting
    assert (await job_of(second)).id == "job-1"
    await second.stop()


async def test_a_refused_start_can_be_tried_again(path: Path) -> None:
    second = SqliteStorage(path, owner_patience_s=0)
    async with running(SqliteStorage(path)):
        with pytest.raises(StorageOwned, match="this very process"):
            await second.start()
        await second.stop()
    async with running(second):
        await create(second, make_job())


# The file


def schema(path: Path) -> list[str]:
    return sorted(
        str(statement) for statement in ask(path, "SELECT sql FROM sqlite_schema WHERE sql NOT NULL")
    )


def test_a_second_start_changes_no_schema(path: Path) -> None:
    start(path)
    before = schema(path)
    start(path)
    assert schema(path) == before
    assert ask(path, "PRAGMA user_version") == [file.SCHEMA_VERSION]


@pytest.mark.parametrize("other", [1, file.SCHEMA_VERSION + 1])
def test_a_file_of_another_version_is_refused_untouched(path: Path, other: int) -> None:
    start(path)
    ask(path, f"PRAGMA user_version = {other}")
    before = path.read_bytes()
    with pytest.raises(SchemaError, match=f"schema version {other}"):
        start(path)
    assert path.read_bytes() == before
    with pytest.raises(SchemaError):
        start(path)  # and the refused start has let go of the lock


def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    path.write_text("a letter, much longer than the header of a database would be" * 20)
    with pytest.raises(StorageError, match="not a database"):
        start(path)


def test_an_old_sqlite_is_refused_by_name(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 37, 2))
    with pytest.raises(SchemaError, match=r"expected SQLite 3\.38\.0 or newer"):
        start(path)


def test_the_folder_is_made(tmp_path: Path) -> None:
    start(tmp_path / "deep" / "down" / "jobs.db")
    assert (tmp_path / "deep" / "down" / "jobs.db").exists()


def writer_of(storage: SqliteStorage) -> sqlite3.Connection:
    writer = storage._journal._writer  # type: ignore[attr-defined]
    assert isinstance(writer, sqlite3.Connection)
    return writer


async def test_the_file_runs_with_wal_and_full(path: Path) -> None:
    async with running(SqliteStorage(path)) as storage:
        for pragma, value in (("journal_mode", "wal"), ("synchronous", 2)):
            assert writer_of(storage).execute(f"PRAGMA {pragma}").fetchone() == (value,)


def test_a_batch_is_one_statement(path: Path) -> None:
    async def body() -> list[str]:
        statements: list[str] = []
        async with running(SqliteStorage(path)) as storage:
            await create(storage, make_job("first"))  # behind all that belongs to the start
            writer_of(storage).set_trace_callback(statements.append)
            await asyncio.gather(*(create(storage, make_job(str(n)), events=(event(),)) for n in range(50)))
            writer_of(storage).set_trace_callback(None)
        return statements

    (statement,) = set(asyncio.run(body()))  # traced once more for each step of the trigger
    assert statement.startswith("INSERT INTO flush")


def run(path: Path, scenario: Callable[[SqliteStorage], Awaitable[None]]) -> None:
    """Play it on a store of its own."""

    async def body() -> None:
        async with running(SqliteStorage(path)) as store:
            await scenario(store)

    asyncio.run(body())


def whereabouts(store: SqliteStorage, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the threads that write, from now on."""
    journal: Any = store._journal
    insert, seen = journal._insert, list[str]()

    def watched(statements: object) -> None:
        seen.append(threading.current_thread().name)
        insert(statements)

    monkeypatch.setattr(journal, "_insert", watched)
    return seen


async def test_every_batch_is_written_by_the_thread(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(SqliteStorage(path)) as store:
        seen = whereabouts(store, monkeypatch)
        await create(store, make_job("small"))
        await create(store, make_job("large", input={"text": "x" * 5000}))
        assert {name.partition("_")[0] for name in seen} == {"regista-sqlite"}


async def test_a_batch_of_more_than_sqlite_takes_at_once_is_several_statements_and_one_flush(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "_STATEMENT_BYTES", 50_000)
    jobs = [make_job(f"job-{n:02}", data={"x": "y" * 10_000}) for n in range(40)]

    async with running(SqliteStorage(path)) as storage:
        writer_of(storage).setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 100_000)
        commits: list[str] = []
        writer_of(storage).set_trace_callback(commits.append)
        told = [write(job, events=(event("z" * 10_000),)) for job in jobs]
        assert await commit(storage, *told) == [APPLIED] * 40
        writer_of(storage).set_trace_callback(None)
        assert commits.count("COMMIT") == 1
    async with running(SqliteStorage(path)) as storage:
        ready = await storage.claim_ready("me", [V1], ALL, 30)
        entries = (await storage.outbox(0, ALL)).entries
        ids = [job.id for job in jobs]
        assert [job.id for job in ready] == [entry.job_id for entry in entries] == ids


def test_a_start_reads_only_what_is_live(path: Path) -> None:
    start(path)
    statements: list[str] = []
    connection = sqlite3.connect(path)
    connection.set_trace_callback(statements.append)
    file.read_all(connection)
    connection.set_trace_callback(None)
    questions = [statement for statement in statements if "FROM jobs" in statement]
    plans = [connection.execute(f"EXPLAIN QUERY PLAN {question}").fetchone()[3] for question in questions]
    connection.close()
    assert "USING INDEX jobs_live" in plans[0]
    assert plans[1].startswith("SEARCH jobs USING PRIMARY KEY")  # the highest id: one look at the end
    assert len(plans) == 2


def test_the_file_forgets_what_is_over(path: Path) -> None:
    async def body() -> None:
        async with running(SqliteStorage(path)) as storage:
            await dispatch(storage, make_task(), events=(event(),), messages=(message("m"),))
            end = next_of(await job_of(storage), **FINISHED)
            await commit(storage, write(end, consumes_message="m", events=(event(),)))
            await storage.prune(((await storage.outbox(0, ALL)).entries)[-1].number)
            await create(storage, make_job("job-2"))

    asyncio.run(body())
    assert ask(path, "SELECT id FROM jobs WHERE live") == ["job-2"]
    assert ask(path, "SELECT id FROM tasks") + ask(path, "SELECT id FROM messages") == []
    assert len(ask(path, "SELECT number FROM outbox")) == 1  # the last one, to count on from


def test_the_outbox_has_a_row_for_each_batch_until_its_last_entry_is_pruned(path: Path) -> None:
    async def fill() -> list[OutboxEntry]:
        async with running(SqliteStorage(path)) as storage:
            for name in ("a", "b"):
                jobs = [make_job(f"{name}-{n}") for n in range(3)]
                await asyncio.gather(*(create(storage, job, events=(event(),)) for job in jobs))
            told = (await storage.outbox(0, ALL)).entries
            await storage.prune(told[1].number)
            await create(storage, make_job("c"))
            return told

    async def again() -> list[OutboxEntry]:
        async with running(SqliteStorage(path)) as storage:
            await storage.prune(told[2].number)
            await create(storage, make_job("d"))
            return (await storage.outbox(0, ALL)).entries

    told = asyncio.run(fill())
    assert ask(path, "SELECT number FROM outbox") == [told[2].number, told[5].number]
    assert asyncio.run(again()) == told[3:]
    assert ask(path, "SELECT number FROM outbox") == [told[5].number]


async def test_ended_jobs_leave_memory_and_are_answered_all_the_same(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "ENDED_CACHED", 3)

    async with running(SqliteStorage(path)) as storage:
        for n in range(10):
            job = make_job(f"job-{n}", body_hash="hash")
            last = write(next_of(job, **FINISHED))
            await commit(storage, write(job), last)
            if n == 0:
                first, end = job, last
        assert len(storage._state._ended) == 3
        assert await shown(storage, "job-0") == end.job
        assert await job_of(storage, "job-0") == end.job
        again = write(next_of(next_of(first)))
        late = only("job-0", fenced(closed(make_task("job-0"))))
        rival = write(make_job("job-0", body_hash="hash"))
        assert await commit(storage, end, again, late, rival) == [REPEATED, STALE, STALE, EXISTS]
        assert (await job_of(storage, "job-0")).status is JobStatus.FINISHED


async def test_the_same_store_can_be_started_again(path: Path) -> None:
    storage = SqliteStorage(path)
    await storage.start()
    await create(storage, make_job())
    await storage.claim_ready("me", [V1], 1, 3600)
    worker = await storage.register(make_worker(), 3600)
    secret = await shared_secret(storage, "approval")
    await storage.stop()
    await storage.start()
    assert [job.id for job in await storage.claim_ready("you", [V1], 1, 30)] == ["job-1"]
    assert await storage.workers() == []
    assert (await storage.register(make_worker(), 30)).session > worker.session
    assert await shared_secret(storage, "approval") == secret
    await storage.stop()


# A failed flush is final


async def everything(storage: StorageBackend) -> list[tuple[str, Callable[[], Awaitable[object]]]]:
    worker = make_worker()
    return [
        ("commit", lambda: storage.commit([write(make_job("new"))], "me")),
        ("load", lambda: storage.load(["job-1"])),
        ("tasks_of", lambda: storage.tasks_of("job-1")),
        ("get", lambda: shown(storage, "job-1")),
        ("claim_ready", lambda: storage.claim_ready("me", [V1], 1, 30)),
        ("extend", lambda: storage.extend_leases("me", ["job-1"], 30)),
        ("stranded", lambda: storage.stranded([], 1)),
        ("claim_tasks", lambda: storage.claim_tasks(worker, [make_task().queue_key], 1, START)),
        ("lanes", lambda: storage.queue_status()),
        ("held_by", lambda: storage.held_by("w1")),
        ("holders", lambda: storage.holders()),
        ("due", lambda: storage.due(START, 1)),
        ("next_due", lambda: storage.next_due()),
        ("messages", lambda: storage.messages(1)),
        ("register", lambda: storage.register(worker, 30)),
        ("heartbeat", lambda: storage.heartbeat([Heartbeat("w1", 1, 30)])),
        ("workers", lambda: storage.workers()),
        ("lapsed", lambda: storage.workers(lapsed_only=True)),
        ("forget", lambda: storage.forget_worker("w1", 1)),
        ("outbox", lambda: storage.outbox(0, 1)),
        ("prune", lambda: storage.prune(1)),
        ("tail", lambda: storage.tail("job-1", 0)),
        ("lead", lambda: storage.lead("chore", "me", 30)),
        ("secret", lambda: shared_secret(storage, "approval")),
    ]


async def test_a_full_disk_fails_those_who_wait_and_those_who_come(path: Path) -> None:
    storage = SqliteStorage(path)
    await storage.start()
    await create(storage, make_job(), events=(event("safe"),))
    await shared_secret(storage, "approval")
    (pages,) = writer_of(storage).execute("PRAGMA page_count").fetchone()
    writer_of(storage).execute(f"PRAGMA max_page_count = {pages + 4}")
    large = [make_job(f"large-{n}", data={"x": "y" * 3_000_000}) for n in range(4)]
    answers = await asyncio.gather(
        *(storage.commit([write(job)], "me") for job in large), return_exceptions=True
    )
    assert [type(answer) for answer in answers] == [StorageFailed] * 4
    assert "full" in str(answers[0])
    for name, call in await everything(storage):
        with pytest.raises(StorageFailed):
            print(name, await call())
    assert "full" in str(await storage.failed())
    with pytest.raises(StorageFailed):
        await storage.stop()
    await storage.stop()

    await storage.start()  # from the file, with the limit gone together with its connection
    assert await storage.load(["job-1", "large-0"]) == ([await shown(storage, "job-1"), None], [])
    assert [entry.job_id for entry in (await storage.outbox(0, ALL)).entries] == ["job-1"]
    assert await commit(storage, write(large[0])) == [APPLIED]
    await storage.stop()


async def test_the_wal_has_its_blocks_before_the_first_flush(path: Path) -> None:
    wal = path.with_name(path.name + "-wal")
    for n in range(3):
        async with running(SqliteStorage(path)) as storage:
            # The first flush comes as close behind the start as can be, and is written to the WAL's beginning.
            await create(storage, make_job(f"job-{n}"))
            stretched = wal.stat().st_size
            assert stretched >= 1 << 23
            for m in range(20):
                await create(storage, make_job(f"job-{n}-{m}"))
            assert wal.stat().st_size == stretched
    assert (
        ask(path, "PRAGMA page_count")[0] * ask(path, "PRAGMA page_size")[0] < 9 << 20
    )  # later starts use the pages of the first
    assert ask(path, "SELECT name FROM sqlite_master WHERE name = 'stretch'") == []


async def test_a_wal_that_cannot_be_stretched_is_only_slower(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        async with running(SqliteStorage(path)) as storage:
            await create(storage, make_job())
            assert await shown(storage, "job-1") is not None
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert [record.levelname for record in caplog.records if getattr(record, "action", "") == "wal"] == [
        "WARNING"
    ]


async def test_a_secret_that_was_never_durable_is_forgotten(path: Path) -> None:
    storage = SqliteStorage(path)
    await storage.start()
    writer_of(storage).execute("PRAGMA query_only = 1")
    answers = await asyncio.gather(
        *(shared_secret(storage, "approval") for _ in range(2)), return_exceptions=True
    )
    assert [type(answer) for answer in answers] == [StorageFailed] * 2
    with pytest.raises(StorageFailed):
        await storage.stop()
    await storage.start()
    secret = await shared_secret(storage, "approval")
    await storage.stop()
    async with running(SqliteStorage(path)) as again:
        assert await shared_secret(again, "approval") == secret


def outcome(path: Path, lines: Sequence[str], code: int) -> list[str]:
    """What a process says that runs these lines and ends with this code."""
    process = program(path, *lines)
    said, _ = process.communicate(timeout=9)
    assert process.returncode == code
    return said.split()


async def test_what_was_acknowledged_survives_a_disk_that_really_fills_up(path: Path) -> None:
    said = outcome(
        path,
        [
            "n = 0",
            "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)",
            "limit = 300_000  # the WAL has its blocks already, and may not be written beyond this",
            "resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))",
            "try:",
            "    while n < 1000:",
            "        await create(storage, make_job(f'job-{n:03}', data={'x': 'y' * 3000}))",
            "        n += 1",
            "except StorageFailed:",
            "    print(n, flush=True)",
            "    os._exit(7)",
        ],
        7,
    )
    (acknowledged,) = map(int, said)
    assert 5 < acknowledged < 1000

    async with running(SqliteStorage(path)) as storage:
        there = [job.id for job in await storage.stranded([], ALL)]
        assert there[:acknowledged] == [f"job-{n:03}" for n in range(acknowledged)]
        assert len(there) <= acknowledged + 1  # the outcome of the one that failed is unknown


async def test_what_was_acknowledged_survives_the_death_of_the_process(path: Path) -> None:
    lines = [
        "await dispatch(storage, make_task(), events=(event('told'),), messages=(message('m'),))",
        "await storage.claim_tasks(make_worker(), [make_task().queue_key], 1, START)",
        "os.kill(os.getpid(), signal.SIGKILL)",
    ]
    outcome(path, lines, -9)

    async with running(SqliteStorage(path)) as storage:
        assert [task.id for task in await storage.held_by("w1")] == ["job-1_1_0"]
        assert [event.message for event in await storage.tail("job-1", 0)] == ["told"]
        assert len(await storage.messages(ALL)) == 1
        assert await offers(storage) == []


def test_nobody_else_can_read_what_jobs_carry(path: Path) -> None:
    async def scenario() -> list[int]:
        storage = SqliteStorage(path)
        await storage.start()
        await create(storage, make_job("a"))
        modes = [file.stat().st_mode & 0o777 for file in path.parent.iterdir()]
        await storage.stop()
        return modes

    assert set(asyncio.run(scenario())) == {0o600}


async def test_the_collector_of_the_process_is_left_alone(tmp_path: Path) -> None:
    before = gc.get_freeze_count()
    async with running(SqliteStorage(tmp_path / "one.db")):
        assert gc.get_freeze_count() <= before
        gc.freeze()  # the application's own decision
        frozen = gc.get_freeze_count()
        async with running(SqliteStorage(tmp_path / "two.db")):
            pass
    assert gc.get_freeze_count() > frozen / 2  # frozen objects may still be freed one by one
    gc.unfreeze()


@pytest.mark.parametrize("table", ["jobs", "tasks", "messages", "outbox"])
async def test_one_unreadable_row_does_not_stop_the_start(
    path: Path, table: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(SqliteStorage(path)) as storage:
        for name in ("bad", "good"):
            parts = {"events": (event("told"),), "messages": (message(f"to {name}", to_job=name),)}
            await dispatch(storage, make_task(name), **parts)
    with closing(sqlite3.connect(path)) as file, file:
        file.execute(f"UPDATE {table} SET body = ? WHERE {_FIRST[table]}", (b"\xc1",))

    async with running(SqliteStorage(path)) as storage:
        assert [task.job_id for task in await storage.tasks_of("good")] == ["good"]
        assert [one.id for one in await storage.messages(ALL)][-1:] == ["to good"]
        assert [event.message for event in await storage.tail("good", 0)] == ["told"]
        assert await offers(storage) == ["bad_1_0", "good_1_0"][table in ("jobs", "tasks") :]
    assert [record.levelname for record in caplog.records if record.name == "regista.storage"] == ["ERROR"]
