"""Raw SQLite: what the disk and the library give to anybody, on this machine, at this moment."""

import sqlite3
import time
from pathlib import Path

from msgspec import Struct

#: Rows of a batched commit.
BATCH = 100
_BODY = b"x" * 400  # about what a small job takes


class Raw(Struct, frozen=True):
    """Rates with WAL and `synchronous=FULL`, on the file system of the bench."""

    #: Commits of one row each, per second.
    commits_s: float
    #: Rows per second in commits of BATCH rows.
    rows_s: float


def measure(folder: Path, seconds: float = 0.3) -> Raw:
    """Write for `seconds` in each of the two ways."""
    folder.mkdir(parents=True, exist_ok=True)
    return Raw(commits_s=_rate(folder, 1, seconds), rows_s=_rate(folder, BATCH, seconds))


def _rate(folder: Path, rows: int, seconds: float) -> float:
    path = folder / f"raw-{rows}.db"
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, body BLOB)")
        return _write(connection, rows, seconds)
    finally:
        connection.close()
        for file in folder.glob(path.name + "*"):
            file.unlink()


def _write(connection: sqlite3.Connection, rows: int, seconds: float) -> float:
    batch = [(_BODY,)] * rows
    written, began = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - began) < seconds:
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO rows (body) VALUES (?)", batch)
        connection.execute("COMMIT")
        written += rows
    return written / elapsed
