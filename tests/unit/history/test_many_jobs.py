"""The small form of `bench.search`: among some thousand jobs every search of the bench finds what it should."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.search import SEARCHES, TALLIES, TYPES
from bench.search_rows import fill_postgres, fill_sqlite
from regista.history.postgres import PostgresHistory
from regista.history.query import Query, field_named, parse_query
from regista.history.query.counts import counts_of, members_of
from regista.history.query.evaluate import select_matching
from regista.history.sqlite import SqliteHistory
from tests.conftest import Require
from tests.postgres_server import PostgresServer, serving

JOBS = 3000


@pytest.fixture(scope="module")
def server(require: Require) -> Iterator[PostgresServer]:
    yield from serving(require)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_every_search_of_the_bench_finds_what_it_should(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    history: SqliteHistory | PostgresHistory
    if kind == "sqlite":
        history = SqliteHistory(tmp_path / "history.db")
    else:
        server: PostgresServer = request.getfixturevalue("server")
        history = PostgresHistory(server.place())

    await history.start()
    if isinstance(history, PostgresHistory):
        for text in fill_postgres(JOBS):
            await history._ask(text)
    else:
        await asyncio.to_thread(fill_sqlite, tmp_path / "history.db", JOBS)
    everything = await history.search(Query(), limit=2 * JOBS)
    assert len(everything) == JOBS
    for text in SEARCHES.values():
        query = parse_query(text, TYPES)
        found = [row.job_id for row in await history.search(query)]
        assert found == [row.job_id for row in select_matching(query, everything, limit=100)], text
    for text, by in TALLIES.values():
        query, field = parse_query(text, TYPES), field_named(by, TYPES)
        assert await history.count(query, field) == counts_of(members_of(query, field, everything), 100)
    await history.stop()
