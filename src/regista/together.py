"""Together: several statements of SQLite, all or none."""

import contextlib
import sqlite3
from collections.abc import Iterable
from typing import Any


def together(connection: sqlite3.Connection, statements: Iterable[tuple[str, Any]]) -> None:
    """Execute them in one transaction. Whatever fails, also at the very end, none is left open."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for text, asked in statements:
            connection.execute(text, asked)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # a full disk, say, has rolled it back already
            with contextlib.suppress(sqlite3.Error):  # what went wrong first is what counts
                connection.execute("ROLLBACK")
        raise
