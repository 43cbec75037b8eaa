"""Together: whatever fails, nothing is written, no transaction stays open, and the first error is told."""

import sqlite3
from collections.abc import Iterator

import pytest

from regista.together import together

INSERT = "INSERT INTO t VALUES (zeroblob(?))"


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    opened = sqlite3.connect(":memory:", isolation_level=None)
    opened.execute("PRAGMA foreign_keys = ON")
    opened.execute("CREATE TABLE t (x)")
    opened.execute("CREATE TABLE child (t INTEGER REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)")
    opened.execute("CREATE TABLE parent (id INTEGER PRIMARY KEY)")
    yield opened
    opened.close()


def rows(connection: sqlite3.Connection) -> int:
    found: int = connection.execute("SELECT count(*) FROM t").fetchone()[0]
    return found


def test_all_are_written(connection: sqlite3.Connection) -> None:
    together(connection, [(INSERT, (1,)), (INSERT, (2,))])
    assert (rows(connection), connection.in_transaction) == (2, False)


@pytest.mark.parametrize(
    ("last", "words"),
    [
        pytest.param((INSERT, (1_000_000,)), "full", id="a full disk, which rolls back by itself"),
        pytest.param(("INSERT INTO nowhere VALUES (?)", (1,)), "no such table", id="a wrong statement"),
        pytest.param(("INSERT INTO child VALUES (?)", (7,)), "FOREIGN KEY", id="the commit itself"),
    ],
)
def test_of_a_failure_nothing_is_left_but_its_own_error(
    connection: sqlite3.Connection, last: tuple[str, tuple[int]], words: str
) -> None:
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 3}")
    with pytest.raises(sqlite3.Error, match=words):
        together(connection, [(INSERT, (1,)), last])
    assert (rows(connection), connection.in_transaction) == (0, False)
    together(connection, [(INSERT, (1,))])  # and the next one is none the worse
