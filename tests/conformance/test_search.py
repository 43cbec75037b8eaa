"""Random searches over random jobs have one answer, whatever history is asked."""

import asyncio
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, note, settings
from hypothesis import strategies as st

from regista.history.base import HistoryStorage
from regista.history.memory import MemoryHistory
from regista.history.postgres import PostgresHistory
from regista.history.query import Query, field_named, parse_query
from regista.history.query.evaluate import sort_position
from regista.history.sqlite import SqliteHistory
from regista.model import OutboxEntry
from tests.conformance.search_plays import ATTRIBUTES, batches, groups, queries
from tests.conftest import Require
from tests.postgres_server import PostgresServer, serving

Played = tuple[asyncio.Runner, SqliteHistory | PostgresHistory]


@pytest.fixture(scope="module")
def server(require: Require) -> Iterator[PostgresServer]:
    yield from serving(require)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def played(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """One history for many examples, and the loop that it lives on."""
    history: SqliteHistory | PostgresHistory
    if request.param == "sqlite":
        path: Path = tmp_path_factory.mktemp("search") / "history.db"
        history = SqliteHistory(path)
    else:
        server: PostgresServer = request.getfixturevalue("server")
        history = PostgresHistory(server.place())
    with asyncio.Runner() as runner:
        runner.run(history.start())
        yield runner, history
        runner.run(history.stop())


async def emptied(history: SqliteHistory | PostgresHistory) -> None:
    for table in ("entries", "jobs", "attributes"):
        text = f"DELETE FROM regista_{table}"
        if isinstance(history, SqliteHistory):
            await history._run(lambda connection, text=text: connection.execute(text).close())  # type: ignore[misc]
        else:
            await history._ask(text)


async def pages(history: HistoryStorage, query: Query, size: int) -> list[list[str]]:
    """The ids that fit, page by page."""
    found: list[list[str]] = []
    after = None
    for _ in count():
        rows = await history.search(query, after, size)
        found.append([row.job_id for row in rows])
        if len(rows) < size:
            return found
        after = sort_position(query.order, rows[-1])
    raise AssertionError


@pytest.mark.timeout(60)  # a few seconds, but databases on a busy machine take their time
@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    told=batches(), text=queries, by=groups, size=st.integers(1, 4), client=st.sampled_from([None, "acme"])
)
@example(told=[], text="", by=None, size=1, client=None)
def test_random_searches_have_the_answer_of_the_reference(
    played: Played, told: list[OutboxEntry], text: str, by: str | None, size: int, client: str | None
) -> None:
    runner, history = played
    note(text)
    query = parse_query(text, ATTRIBUTES).restricted(client=client)
    field = None if by is None else field_named(by, ATTRIBUTES)

    async def body() -> None:
        memory = MemoryHistory()
        await emptied(history)
        await memory.record(told)
        await history.record(told)
        assert await history.search(query) == await memory.search(query)
        assert await pages(history, query, size) == await pages(memory, query, size)
        for without in ([], ["job-1", "nobody"]):
            asked = {"without": without, "limit": 3}
            assert await history.count(query, field, **asked) == await memory.count(query, field, **asked)  # type: ignore[arg-type]

    runner.run(body())
