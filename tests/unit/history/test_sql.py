import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from regista.history.postgres import PostgresHistory
from regista.history.recorder import HistoryRecorder
from regista.history.rows import Batch
from regista.history.sql import EntryRejected
from regista.history.sqlite import SqliteHistory
from regista.model import OutboxEntry
from regista.testing.conformance.history import make_entry, make_summary, running, seqs
from regista.testing.conformance.history_kit import summary_of
from tests.conftest import Require
from tests.postgres_server import PostgresServer, serving
from tests.unit.history.test_recorder import ListOutbox


@pytest.fixture(scope="module")
def server(require: Require) -> Iterator[PostgresServer]:
    yield from serving(require)


class Picky(SqliteHistory):
    """A database that never takes some of the entries."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.reasons: list[tuple[int, str, int]] = []

    async def _write(self, batch: Batch) -> None:
        if any(number in (3, 8) for _, _, number, _ in batch.entries):
            raise EntryRejected("too long")
        await super()._write(batch)

    async def _reject(self, entry: OutboxEntry, job_id: str, reason: str, body: bytes) -> None:
        self.reasons.append((entry.number, reason, await self.cursor()))
        await super()._reject(entry, job_id, reason, body)


async def test_only_the_entries_at_fault_are_rejected(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(Picky(tmp_path / "history.db")) as history:
        with caplog.at_level(logging.ERROR):
            await history.record([make_entry(n, f"job-{n}") for n in range(1, 11)])
        # The cursor has never passed over an entry that was not written.
        assert history.reasons == [(3, "too long", 2), (8, "too long", 7)]
        assert history.rejected == 2
        kept = [entry.number for entry in (await history.entries(0)).entries]
        assert kept == [1, 2, 4, 5, 6, 7, 9, 10]
        assert await history.cursor() == 10
    assert [record.action for record in caplog.records] == ["history_rejected"] * 2  # type: ignore[attr-defined]


def test_what_postgresql_can_never_take_keeps_nothing_else_out(
    server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    place = server.place()
    # Random, since what repeats itself is pressed until it fits into an index.
    long = "".join(chr(0x4E00 + (n * n * 7919) % 20000) for n in range(6000))

    async def body() -> None:
        async with running(PostgresHistory(place)) as history:
            outbox = ListOutbox()
            for number, job_id in enumerate(("before", long, "after"), 1):
                outbox.entries.append(make_entry(number, job_id, summary=make_summary(job_id)))
            await HistoryRecorder(outbox, history).drain()
            assert seqs(await history.events("before")) == [1]
            assert seqs(await history.events("after")) == [1]
            assert await summary_of(history, "after") is not None
            assert await history.cursor() == 3
            assert history.rejected == 1

    with caplog.at_level(logging.ERROR):
        asyncio.run(body())
    assert [record.action for record in caplog.records] == ["history_rejected"]  # type: ignore[attr-defined]
    schema = place.rpartition("=")[2]
    assert server.ask("SELECT number FROM regista_rejected", schema) == [2]
    assert "index row" in server.ask("SELECT reason FROM regista_rejected", schema)[0]


async def test_a_nul_is_written_in_another_way_and_refused_nowhere(server: PostgresServer) -> None:
    place = server.place()

    async with running(PostgresHistory(place)) as history:
        row = make_summary("a\0b", search_attributes={"x\0y": "p\0q", "l": ["\0"]}, error_code="\0")
        await history.record([make_entry(1, "a\0b", summary=row), make_entry(2, "fine")])
        assert history.rejected == 0
        assert await summary_of(history, "a\0b") is not None
