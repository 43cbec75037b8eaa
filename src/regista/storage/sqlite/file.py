"""The file of a SQLite store: how it is opened, brought up to date and read."""

import contextlib
import logging
import sqlite3
from itertools import starmap
from pathlib import Path

import msgspec

from ...errors import SchemaError
from ..codec import readable
from ..journal import CountRow, JobRow, RecordRow, Snapshot
from .checks import check_is_store

log = logging.getLogger("regista.storage")

#: Bytes that the WAL has from the start. A flush into blocks that are there takes half as long as one that makes the
#: file longer, since the file system need not write down that it grew.
_WAL_BYTES = 8 << 20
#: Pages of WAL at which SQLite itself copies them into the file, in the middle of a flush, and begins it anew: when
#: those bytes are full. Mostly it does not come to that: we do it when nothing has been written for a while.
_AUTOCHECKPOINT_PAGES = _WAL_BYTES // 4200
#: `->>` and `substr` on blobs as the batch statement uses them.
_SQLITE_NEEDED = (3, 38, 0)
#: The version of schema.sql. Those below it were never released.
SCHEMA_VERSION = 4


class _Numbered(msgspec.Struct):
    """What has to be known of an entry of the outbox before it is read."""

    number: int


#: The entries of an outbox row, still encoded; and the number of one.
_split = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_numbered = msgspec.msgpack.Decoder(_Numbered).decode


def connect(path: Path) -> sqlite3.Connection:
    """Open the file, or make it. SchemaError where it is somebody else's."""
    # Inputs, results and the secret behind approval links are nobody else's business. SQLite gives the
    # files beside it the same mode.
    if not path.exists():
        path.touch(mode=0o600)
    # By its whole path: `:memory:` and `file:…` mean something else to SQLite.
    connection = sqlite3.connect(path.absolute(), isolation_level=None, check_same_thread=False)
    try:
        check_is_store(connection, path)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        # Some builds overwrite with zeros whatever is deleted, and write out even pages that nobody uses any more.
        connection.execute("PRAGMA secure_delete = FAST")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_AUTOCHECKPOINT_PAGES}")
    except (sqlite3.Error, SchemaError):
        connection.close()
        raise
    return connection


def stretch(connection: sqlite3.Connection, path: Path) -> None:
    """Give the WAL its blocks by writing them once, and let the next flush begin at its start.

    The pages stay in the file as free ones, which the next start uses again.
    """
    try:
        connection.execute("DROP TABLE IF EXISTS stretch")  # of a start that was killed here
        connection.execute(f"CREATE TABLE stretch AS SELECT zeroblob({_WAL_BYTES}) AS pages")
        connection.execute("DROP TABLE stretch")
        connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
    except sqlite3.Error as error:  # a full disk, for example: only the speed is lost
        log.warning("cannot stretch the WAL of %s: %s", path, error, extra={"action": "wal"})


def prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Create the schema in an empty file; SchemaError for a file of another version."""
    if sqlite3.sqlite_version_info < _SQLITE_NEEDED:
        needed = ".".join(map(str, _SQLITE_NEEDED))
        raise SchemaError(f"expected SQLite {needed} or newer, got {sqlite3.sqlite_version}")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == SCHEMA_VERSION:
        return
    if version:
        age = "a newer Regista: upgrade this one" if version > SCHEMA_VERSION else "a Regista before 0.1"
        raise SchemaError(
            f"{path} has schema version {version}, expected {SCHEMA_VERSION}: it was written by {age}, or use another file."
        )
    schema = Path(__file__).with_name("schema.sql").read_text()
    try:
        connection.executescript(f"BEGIN;\n{schema}\nPRAGMA user_version = {SCHEMA_VERSION};\nCOMMIT;")
    except sqlite3.Error:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def read_all(connection: sqlite3.Connection) -> Snapshot:
    """What is kept in memory."""
    jobs = connection.execute(
        "SELECT id, live, seq, open_branches, body FROM jobs INDEXED BY jobs_live WHERE live"
    )
    records = connection.execute("SELECT collection, key, revision, due, expires, value FROM records")
    return Snapshot(
        jobs=[
            JobRow(id, bool(live), seq, open_branches, body) for id, live, seq, open_branches, body in jobs
        ],
        tasks=[body for (body,) in connection.execute("SELECT body FROM tasks")],
        messages=[body for (body,) in connection.execute("SELECT body FROM messages ORDER BY rowid")],
        entries=_read_outbox(connection),
        last_id=connection.execute("SELECT coalesce(max(id), '') FROM jobs").fetchone()[0],
        records=list(starmap(RecordRow, records)),
        counts=list(starmap(CountRow, connection.execute("SELECT counter, used, expires FROM counts"))),
    )


def _read_outbox(connection: sqlite3.Connection) -> list[bytes]:
    """The entries that were not pruned; the last one in any case, since numbers go on from it."""
    (upto,) = connection.execute("SELECT upto FROM pruned").fetchone()
    rows = connection.execute("SELECT body FROM outbox ORDER BY number")
    batches = readable(_split, (body for (body,) in rows))
    entries = readable(_with_number, (entry for batch in batches for entry in batch))
    kept = [body for number, body in entries if number > upto]
    return kept or [body for _, body in entries[-1:]]


def _with_number(entry: msgspec.Raw) -> tuple[int, bytes]:
    return _numbered(entry).number, bytes(entry)
