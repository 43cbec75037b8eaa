import asyncio
import logging
from collections.abc import Iterator

import pytest

from regista.history.memory import MemoryHistory
from regista.history.postgres import PostgresHistory
from regista.history.recorder import HistoryRecorder
from regista.history.setting_aside import Refused, record_sparing
from regista.model import OutboxEntry
from regista.testing.conformance.history import make_entry, make_summary, running, seqs
from tests.conftest import Require
from tests.postgres_server import PostgresServer, serving
from tests.unit.history.test_recorder import ListOutbox


@pytest.fixture(scope="module")
def server(require: Require) -> Iterator[PostgresServer]:
    yield from serving(require)


def test_only_the_entries_at_fault_are_set_aside(caplog: pytest.LogCaptureFixture) -> None:
    history, aside = MemoryHistory(), list[int]()

    async def write(entries: list[OutboxEntry]) -> None:
        if any(entry.number in (3, 8) for entry in entries):
            raise Refused("too long")
        await history.record(entries)

    async def set_aside(entry: OutboxEntry, reason: str) -> None:
        assert reason == "too long"
        assert await history.cursor() == entry.number - 1
        aside.append(entry.number)

    async def body() -> None:
        entries = [make_entry(n, f"job-{n}") for n in range(1, 11)]
        with caplog.at_level(logging.ERROR):
            assert await record_sparing(write, set_aside, entries) == 2  # type: ignore[arg-type]
        assert aside == [3, 8]
        kept = [entry.number for entry in (await history.entries(0)).entries]
        assert kept == [1, 2, 4, 5, 6, 7, 9, 10]

    asyncio.run(body())
    assert [record.action for record in caplog.records] == ["history_set_aside"] * 2  # type: ignore[attr-defined]


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
            assert await history.summary("after") is not None
            assert await history.cursor() == 3
            assert history.set_aside == 1

    with caplog.at_level(logging.ERROR):
        asyncio.run(body())
    assert [record.action for record in caplog.records] == ["history_set_aside"]  # type: ignore[attr-defined]
    schema = place.rpartition("=")[2]
    assert server.ask("SELECT number FROM regista_set_aside", schema) == [2]
    assert "index row" in server.ask("SELECT reason FROM regista_set_aside", schema)[0]


async def test_a_nul_is_written_in_another_way_and_refused_nowhere(server: PostgresServer) -> None:
    place = server.place()

    async with running(PostgresHistory(place)) as history:
        row = make_summary("a\0b", search_attributes={"x\0y": "p\0q", "l": ["\0"]}, error_code="\0")
        await history.record([make_entry(1, "a\0b", summary=row), make_entry(2, "fine")])
        assert history.set_aside == 0
        assert await history.summary("a\0b") is not None
