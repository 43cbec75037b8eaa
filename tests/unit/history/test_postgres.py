import asyncio
import logging
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regista.aio import wait_until_available
from regista.errors import HistoryUnavailable, SchemaError, StorageError
from regista.history import postgres as module
from regista.history import rows
from regista.history.memory import MemoryHistory
from regista.history.postgres import PostgresHistory
from regista.history.sql_builder import PostgresSql
from regista.model import Event, EventType, OutboxEntry
from regista.testing.conformance.history import START, make_entry, make_summary, running, seqs
from regista.testing.conformance.history_kit import summaries_of, summary_of
from tests.conftest import Require
from tests.ports import free_port
from tests.postgres_server import PASSWORD, PostgresServer, postgres_binary
from tests.unit.history.plays import batches


@pytest.fixture(scope="module")
def server(require: Require) -> Iterator[PostgresServer]:
    # A commit that does not wait for the disk is lost in a crash for a long while, and not for a blink only.
    with PostgresServer(postgres_binary(require), "-c", "wal_writer_delay=10s") as server:
        yield server


@pytest.fixture
def place(server: PostgresServer) -> str:
    return server.place()


def schema_of(uri: str) -> str:
    return uri.rpartition("=")[2]


async def open_once(uri: str) -> None:
    async with running(PostgresHistory(uri)):
        pass


def start(uri: str) -> None:
    asyncio.run(open_once(uri))


# The schema


def test_orchestrators_that_start_at_once_make_one_schema(server: PostgresServer, place: str) -> None:
    async def body() -> None:
        histories = [PostgresHistory(place) for _ in range(6)]
        await asyncio.gather(*(history.start() for history in histories))
        assert [await history.cursor() for history in histories] == [0] * 6
        await asyncio.gather(*(history.stop() for history in histories))

    asyncio.run(body())
    assert server.ask("SELECT name FROM regista_migrations", schema_of(place)) == ["0001_history"]


def test_a_newer_schema_is_refused(server: PostgresServer, place: str) -> None:
    start(place)
    newer = len(module._migrations()) + 1
    server.ask(f"INSERT INTO regista_migrations VALUES ({newer}, 'later')", schema_of(place))
    with pytest.raises(SchemaError, match=f"got {newer}; a newer Regista wrote it"):
        start(place)


def test_a_migration_that_fails_leaves_the_schema_as_it_was(
    server: PostgresServer, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(place)
    broken = tmp_path / "0002_broken.sql"
    broken.write_text("CREATE TABLE half (x INTEGER); CREATE TABLE regista_entries (x INTEGER);")
    steps = [*module._migrations(), broken]
    with monkeypatch.context() as patch:
        patch.setattr(module, "_migrations", lambda: steps)
        with pytest.raises(StorageError, match="already exists"):
            start(place)
    assert server.ask("SELECT to_regclass('half')", schema_of(place)) == [None]
    start(place)


async def test_a_role_that_may_only_read_and_write_is_enough_once_the_schema_is_there(
    server: PostgresServer, place: str
) -> None:
    schema = schema_of(place)
    server.ask(f"CREATE ROLE clerk_{schema} LOGIN PASSWORD 'secret'")
    clerk = server.uri(schema, f"clerk_{schema}", "secret")
    with pytest.raises(StorageError, match=r"no schema has been selected|permission denied"):
        await open_once(clerk)
    await open_once(place)
    server.ask(f"GRANT USAGE ON SCHEMA {schema} TO clerk_{schema}")
    server.ask(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO clerk_{schema}")

    async with running(PostgresHistory(clerk)) as history:
        await history.record([make_entry(1, summary=make_summary("job-1"))])
        assert await history.cursor() == 1


def test_a_database_that_is_not_in_utf8_is_refused(server: PostgresServer, place: str) -> None:
    name = schema_of(place)
    server.ask(f"CREATE DATABASE ascii_{name} TEMPLATE template0 ENCODING 'SQL_ASCII'")
    with pytest.raises(SchemaError, match="expected a database in UTF8, got SQL_ASCII"):
        start(server.uri().replace("/postgres?", f"/ascii_{name}?"))


def test_a_history_serves_one_store_until_it_is_handed_over(server: PostgresServer, place: str) -> None:
    def history_of(store: str) -> PostgresHistory:
        async def tell() -> str:
            return store

        return PostgresHistory(place, tell)

    async def body(store: str) -> int:
        async with running(history_of(store)) as history:
            await history.record([make_entry(7, store)])
            return await history.cursor()

    start(place)  # nobody says for whom
    assert asyncio.run(body("one")) == 7
    assert asyncio.run(body("one")) == 7
    start(place)
    with pytest.raises(
        SchemaError, match=r"belongs to another store.*search_path.*DELETE FROM regista_cursor"
    ):
        asyncio.run(body("two"))
    server.ask("DELETE FROM regista_cursor", schema_of(place))

    async def handed_over() -> None:
        async with running(history_of("two")) as history:
            assert await history.cursor() == 0
            assert seqs(await history.events("one")) == [1]

    asyncio.run(handed_over())


async def test_a_history_without_its_cursor_takes_nothing(server: PostgresServer, place: str) -> None:
    async with running(PostgresHistory(place)) as history:
        await asyncio.to_thread(server.ask, "DELETE FROM regista_cursor", schema_of(place))
        with pytest.raises(StorageError, match="its cursor is gone"):
            await history.record([make_entry(1)])
        with pytest.raises(StorageError, match="its cursor is gone"):
            await history.cursor()
        assert await history.events("job-1") == []


async def test_a_history_that_is_not_open_says_so(place: str) -> None:
    history = PostgresHistory(place)
    with pytest.raises(StorageError, match="not open"):
        await history.cursor()
    await history.start()
    await history.start()
    await history.stop()
    with pytest.raises(StorageError, match="not open"):
        await history.record([make_entry(1)])


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("postgresql://regista:hunter3@127.0.0.1:{port}/postgres", "password authentication failed"),
        ("postgresql://regista:hunter3@127.0.0.1:1/postgres", "does not answer"),
        (
            "postgresql://regista:hunter3@127.0.0.1:{port}x/postgres",
            "expected postgresql://user:password@host",
        ),
        ("postgresql://regista:hunter3/x@127.0.0.1/postgres", "%2F for /"),
        (
            "postgresql://regista:hunter3@127.0.0.1:{port}/postgres?sslmode=always",
            "options that PostgreSQL knows",
        ),
    ],
)
def test_a_uri_that_leads_nowhere_is_told_without_its_password(
    server: PostgresServer, wrong: str, words: str
) -> None:
    with pytest.raises(StorageError, match=words) as caught:
        start(wrong.format(port=server.port))
    assert "hunter3" not in str(caught.value)


async def test_an_error_of_the_server_leaves_as_ours_and_changes_nothing(
    server: PostgresServer, place: str
) -> None:
    async with running(PostgresHistory(place)) as history:
        await history.record([make_entry(1)])
        await asyncio.to_thread(
            server.ask, "ALTER TABLE regista_jobs ADD CHECK (job_id <> 'job-1')", schema_of(place)
        )
        with pytest.raises(StorageError, match="violates check constraint"):
            await history.record([make_entry(2, first_seq=2, summary=make_summary("job-1"))])
        assert await history.cursor() == 1
        assert seqs(await history.events("job-1")) == [1]


# Writing


def test_a_batch_is_one_statement_and_one_transaction(server: PostgresServer, place: str) -> None:
    said: list[str] = []

    async def body() -> None:
        entries = [make_entry(n, f"job-{n}", summary=make_summary(f"job-{n}")) for n in range(1, 9)]
        async with running(PostgresHistory(place)) as history:
            await history.record(entries[:1])  # the first time a connection asks what types there are
            assert history._pool is not None
            async with history._pool.acquire() as connection:  # the only one, and the next to be used
                connection.add_query_logger(lambda record: said.append(record.query))
            await history.record(entries[1:])

    asyncio.run(body())
    assert said == [module._RECORD]
    written = [
        f"SELECT xmin::text FROM regista_{table} WHERE job_id <> 'job-1'" for table in ("entries", "jobs")
    ]
    question = " UNION ".join([*written, "SELECT xmin::text FROM regista_cursor"])
    assert len(server.ask(question, schema_of(place))) == 1


def test_what_was_recorded_survives_a_crash_though_the_server_would_not_wait_for_its_disk(
    server: PostgresServer, place: str
) -> None:
    schema = schema_of(place)
    server.ask(f"CREATE ROLE hasty_{schema} SUPERUSER LOGIN PASSWORD 'secret'")
    server.ask(f"ALTER ROLE hasty_{schema} SET synchronous_commit = off")
    hasty = server.uri(schema, f"hasty_{schema}", "secret")

    async def write() -> None:
        async with running(PostgresHistory(hasty)) as history:
            await history.record([make_entry(1, events=3)])
            server.stop(signal.SIGQUIT)

    async def read() -> None:
        async with running(PostgresHistory(hasty)) as history:
            assert await history.sync() == 1
            assert seqs(await history.events("job-1")) == [1, 2, 3]

    asyncio.run(write())
    server.start()
    asyncio.run(read())


async def test_text_that_the_server_cannot_keep_is_kept_in_other_words(place: str) -> None:
    odd = "a\0b\ud800"
    attributes = {odd: [odd, {"deep": odd}], "fine": "\\u0000"}
    words = dict.fromkeys(("client", "blueprint", "version", "state", "parent_id", "error_code"), odd)
    summary = make_summary(odd, odd, search_attributes=attributes, **words)
    event = Event(type=EventType.TASK_FAILED, at=START, message="nul \0", detail={"nul": "\0"})

    async with running(PostgresHistory(place)) as history:
        await history.record([OutboxEntry(1, odd, 1, (event,), summary), make_entry(2, "job-2")])
        (found,) = await history.events(odd)
        assert (found.job_id, found.message, found.detail) == (odd, "nul \0", {"nul": "\0"})
        assert list(await history.events_of_jobs([odd, "job-2"])) == [odd, "job-2"]
        row = await summary_of(history, odd)
        told = "a\\u0000b\\ud800"
        assert row is not None
        assert (row.client, row.status, row.error_code) == (told, told, told)
        assert row.search_attributes == {told: [told, {"deep": told}], "fine": "\\u0000"}
        assert await summaries_of(history, client=odd, blueprint=odd, status=odd) == [row]
        assert await summaries_of(history, before=(START, "\0")) == []
        assert len((await history.entries(0, client=odd)).entries) == 1
        assert await history.events("\0") == []
        assert await history.events("job-2", after_seq=1 << 80) == []


async def test_what_looks_like_a_statement_is_data(place: str) -> None:
    nasty = "'; DROP TABLE regista_jobs; --"
    summary = make_summary(nasty, client=nasty, search_attributes={nasty: nasty})

    async with running(PostgresHistory(place)) as history:
        await history.record([make_entry(1, nasty, summary=summary)])
        assert await summary_of(history, nasty) == summary
        assert await summaries_of(history, client=nasty, before=(START, "zzz")) == [summary]
        assert await summaries_of(history, status=nasty) == []


async def test_the_loop_gets_turns_while_a_large_batch_is_encoded() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await rows.pack([make_entry(n, f"job-{n}") for n in range(1, 2001)], PostgresSql)
    counting.cancel()
    assert turns >= 2000 // rows.ENCODED_AT_ONCE


# Away


def test_while_the_server_is_away_everything_says_so_and_the_log_once(
    server: PostgresServer, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "regista.history")

    async def body() -> None:
        async with running(PostgresHistory(place)) as history:
            await history.record([make_entry(1)])
            await asyncio.to_thread(server.stop)
            for ask in (
                history.cursor(),
                history.sync(),
                history.record([make_entry(2, "job-2")]),
                history.events("job-1"),
                summaries_of(history),
            ):
                with pytest.raises(
                    HistoryUnavailable, match=r"the history 127\.0\.0\.1:\d+/postgres does not"
                ):
                    await ask
            await asyncio.to_thread(server.start)
            assert await history.cursor() == 1
            await history.record([make_entry(2, "job-2")])
            assert seqs(await history.events("job-2")) == [1]

    asyncio.run(body())
    assert [getattr(record, "action", "") for record in caplog.records] == ["history_away", "history_back"]
    assert PASSWORD not in caplog.text


def test_a_server_that_is_away_at_the_start_is_spoken_of_once_and_never_said_to_be_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "regista")
    history = PostgresHistory(f"postgresql://regista@127.0.0.1:{free_port()}/postgres")

    with pytest.raises(HistoryUnavailable, match="does not answer"):
        asyncio.run(wait_until_available(history.start, 0.5))

    assert [getattr(record, "action", "") for record in caplog.records] == ["store_awaited"]
    assert "jobs go on" not in caplog.text


def test_stop_returns_though_the_server_is_away(server: PostgresServer, place: str) -> None:
    async def body() -> None:
        history = PostgresHistory(place)
        await history.start()
        await asyncio.to_thread(server.stop)
        async with asyncio.timeout(2):
            await history.stop()

    asyncio.run(body())
    server.start()


async def test_a_server_that_takes_too_long_counts_as_away(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RECORD_S", 0.2)

    stranger = await asyncpg.connect(place)
    async with running(PostgresHistory(place)) as history:
        async with stranger.transaction():
            await stranger.execute("LOCK TABLE regista_entries")
            with pytest.raises(HistoryUnavailable, match="TimeoutError"):
                await history.record([make_entry(1)])
            assert await history.cursor() == 0
        await history.record([make_entry(1)])
        assert await history.cursor() == 1
    await stranger.close()


def test_a_server_that_may_lose_what_it_has_said_is_warned_of(
    require: Require, caplog: pytest.LogCaptureFixture
) -> None:
    with PostgresServer(postgres_binary(require), "-c", "fsync=off") as careless:
        start(careless.uri())
    assert [getattr(record, "action", "") for record in caplog.records] == ["history_fsync"]


# Reading


@pytest.mark.parametrize(
    ("filters", "index"),
    [
        ({"client": "acme"}, "regista_jobs_by_client"),
        ({"status": "quarantined"}, "regista_jobs_unfinished"),
        ({}, "regista_jobs_by_time"),
    ],
)
def test_a_page_of_summaries_needs_no_sorting(place: str, filters: dict[str, Any], index: str) -> None:
    plan: list[str] = []

    async def body() -> None:
        class Explaining(PostgresHistory):
            async def _ask(self, query: str, *asked: Any, timeout_s: float = 10.0) -> list[asyncpg.Record]:
                connection = await asyncpg.connect(place)
                # Few rows are quickest to sort; it is about many.
                await connection.execute("SET enable_seqscan = off; SET enable_bitmapscan = off")
                plan.extend(row[0] for row in await connection.fetch("EXPLAIN " + query, *asked))
                await connection.close()
                return []

        async with running(Explaining(place)) as history:
            await summaries_of(history, before=(START, "job-9"), **filters)

    asyncio.run(body())
    assert index in " ".join(plan)
    assert "Sort" not in " ".join(plan)


_ids = st.sampled_from(["a", "b", "c"])


@pytest.fixture(scope="module")
def played(server: PostgresServer) -> Iterator[tuple[asyncio.Runner, PostgresHistory]]:
    """One history for many examples, and the loop that it lives on."""
    history = PostgresHistory(server.place())
    with asyncio.Runner() as runner:
        runner.run(history.start())
        yield runner, history
        runner.run(history.stop())


@settings(max_examples=40)
@given(
    told=batches(),
    after_seq=st.integers(0, 12),
    limit=st.integers(1, 12),
    status=st.sampled_from([None, "running", "failed", "finished"]),
    before=st.none() | _ids,
)
def test_whatever_is_recorded_reads_as_from_memory(
    played: tuple[asyncio.Runner, PostgresHistory],
    told: list[list[OutboxEntry]],
    after_seq: int,
    limit: int,
    status: str | None,
    before: str | None,
) -> None:
    runner, postgres = played

    async def body() -> None:
        memory = MemoryHistory()
        await postgres._ask("DELETE FROM regista_entries")
        await postgres._ask("DELETE FROM regista_jobs")
        await postgres._ask("DELETE FROM regista_attributes")
        await postgres._ask("UPDATE regista_cursor SET value = 0")
        for batch in told:
            for history in (memory, postgres):
                await history.record(batch)
        assert await postgres.cursor() == await memory.cursor()
        for job_id in ("a", "b", "c"):
            found = await memory.events(job_id, after_seq, limit)
            assert await postgres.events(job_id, after_seq, limit) == found
            assert await summary_of(postgres, job_id) == await summary_of(memory, job_id)
        place = None if before is None else (START, before)
        asked: dict[str, Any] = {"status": status, "before": place, "limit": limit}
        assert await summaries_of(postgres, **asked) == await summaries_of(memory, **asked)
        for client in (None, "acme", "other"):
            stretch = await memory.entries(after_seq % 5, limit, client)
            assert await postgres.entries(after_seq % 5, limit, client) == stretch

    runner.run(body())
