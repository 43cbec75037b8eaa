"""SqliteHistory: history in a file of its own, written a batch at a time by a thread of its own."""

import logging
import shlex
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ..aio import SerialThread
from ..errors import ConfigError, HistoryUnavailable, SchemaError, StorageError, StorageFailed
from ..model import OutboxEntry
from ..places import Places, real
from ..together import together
from .rows import JOB_COLUMNS, AttributeValues, Batch
from .sql import EntryRejected, SqlHistory
from .sql_builder import SqlBuilder, SqliteSql

T = TypeVar("T")
R = TypeVar("R", bound=msgspec.Struct)

log = logging.getLogger("regista.history")

#: `->>` came with it.
OLDEST_SQLITE = (3, 38, 0)
#: "REGH": says that a file is ours.
APPLICATION_ID = 0x52454748
#: Pages of WAL after which SQLite checkpoints by itself, inside `record`. `sync` comes long before;
#: this only bounds the file where nothing calls it.
AUTOCHECKPOINT_PAGES = 50_000
#: Rows of one INSERT: SQLite takes 32,766 parameters.
_ROWS_AT_ONCE = 1000

#: What SQLite raises when it is the file or the disk that is wrong, and not the question.
_BROKEN = (sqlite3.OperationalError, sqlite3.DatabaseError)

_SQL = Path(__file__).parent / "sql" / "sqlite"

#: A statement and its parameters.
_Statement = tuple[str, Sequence[Any]]

_INSERT_ENTRIES = "INSERT INTO regista_entries (job_id, first_seq, number, body) {rows} "
_NEWER_ENTRY = (
    "ON CONFLICT (job_id, first_seq) DO UPDATE SET number = excluded.number, body = excluded.body "
    "WHERE excluded.number > regista_entries.number"
)
#: An entry that comes late may have been superseded since: then the last entry before it is newer.
_NOT_SUPERSEDED = (
    "SELECT column1, column2, column3, column4 FROM ({rows}) WHERE coalesce((SELECT old.number "
    "FROM regista_entries AS old WHERE old.job_id = column1 AND old.first_seq <= column2 "
    "ORDER BY old.first_seq DESC LIMIT 1), 0) <= column3"
)
# What never changes about a job is written once: an index whose columns are not set is not touched.
_INSERT_JOBS = """
INSERT INTO regista_jobs (
    job_id, number, client, blueprint, version, status, state,
    created_at, updated_at, finished_at, parent_id, error_code, search_attributes, words
) {rows}
ON CONFLICT (job_id) DO UPDATE SET
    number            = excluded.number,
    version           = excluded.version,
    status            = excluded.status,
    state             = excluded.state,
    updated_at        = excluded.updated_at,
    finished_at       = excluded.finished_at,
    error_code        = excluded.error_code,
    search_attributes = excluded.search_attributes,
    words             = excluded.words
WHERE excluded.number > regista_jobs.number
"""
_INSERT_ATTRIBUTES = "INSERT OR IGNORE INTO regista_attributes (name, key, created_at, job_id) {rows}"
_MOVE_CURSOR = "UPDATE regista_cursor SET value = ? WHERE value < ?"


class SqliteHistory(SqlHistory):
    """One file, one connection, one thread.

    The file runs with WAL and `synchronous=NORMAL`: `record` survives the death of the process, and
    `sync` makes it survive a power cut. Until then the store's outbox has the durable copy. Every answer of
    SQLite is one row, a list as JSON: each further row gives up the GIL once more, and beside a busy loop it is
    milliseconds until it is back.
    """

    #: Orchestrators on other machines cannot read it.
    shared = False
    builder = SqliteSql

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        self._path = Path(path)
        self._thread: SerialThread | None = None
        #: Opened, used and closed by the thread alone.
        self._connection: sqlite3.Connection | None = None
        self._synced = 0
        self._fsync_failed = False
        #: Where the files were when they were opened.
        self._places: Places | None = None
        #: The last look into it failed, and the log says so.
        self._unreadable = False

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    async def start(self) -> None:
        if self._thread is not None:
            return
        self._thread = SerialThread("regista-history")
        try:
            await self._in_thread(self._thread, self._open)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        thread, self._thread = self._thread, None
        if thread is None:
            return
        try:
            await self._in_thread(thread, self._close)  # behind all that was asked before
        finally:
            thread.close()

    async def _write(self, batch: Batch) -> None:
        try:
            await self._run(lambda connection: together(connection, _statements(connection, batch)))
        except StorageError as error:
            if isinstance(error.__cause__, sqlite3.DataError):
                raise EntryRejected(str(error)) from error
            raise

    async def _reject(self, entry: OutboxEntry, job_id: str, reason: str, body: bytes) -> None:
        insert = "INSERT INTO regista_rejected (number, job_id, reason, body) VALUES (?, ?, ?, ?)"
        steps: list[_Statement] = [
            (insert, (entry.number, job_id, reason, body)),
            (_MOVE_CURSOR, (entry.number, entry.number)),
        ]
        await self._run(lambda connection: together(connection, steps))

    async def _delete(self, job_ids: Sequence[str], keys: Sequence[AttributeValues]) -> None:
        steps: list[_Statement] = [
            (f"DELETE FROM regista_attributes WHERE (name, key, created_at, job_id) IN ({rows})", values)
            for rows, values in _rows(keys, 4)
        ]
        for table in ("regista_entries", "regista_jobs"):
            steps += [
                (f"DELETE FROM {table} WHERE job_id IN ({rows})", values)
                for rows, values in _rows([(job_id,) for job_id in job_ids], 1)
            ]
        await self._run(lambda connection: together(connection, steps))

    async def sync(self) -> int:
        """See `HistoryStorage.sync`."""
        if self._fsync_failed:
            # The kernel drops what it could not write and calls the next fsync a success (FENCES 2).
            raise StorageFailed(f"the history {self._path}: an fsync failed, what it covered is unknown")
        synced = await self._run(_checkpoint)
        moved = None if self._places is None else self._places.moved()
        if moved:
            # Nothing may leave the outbox for a file without a name.
            raise StorageError(
                f"the history {self._path}: {moved}; restart the orchestrator to open it again"
            )
        self._synced = max(self._synced, synced)
        return self._synced

    async def _fetch(self, sql: SqlBuilder, text: str, row: type[R]) -> list[R]:
        assert isinstance(sql, SqliteSql)
        columns = ", ".join(row.__struct_fields__)
        question, params = f"SELECT json_group_array(json_array({columns})) FROM ({text})", sql.named()
        (answer,) = await self._ask(lambda connection: connection.execute(question, params).fetchone())
        return msgspec.json.decode(answer, type=list[row])  # type: ignore[valid-type]

    async def _ask(self, question: Callable[[sqlite3.Connection], T]) -> T:
        """What the file says. One that cannot be read is a history that is away."""
        try:
            answer = await self._run(question)
        except (StorageError, ConfigError) as error:
            cause = error.__cause__
            if isinstance(cause, sqlite3.Error) and type(cause) not in _BROKEN:
                raise
            raise self._unavailable(error) from error
        self._unreadable = False
        return answer

    def _unavailable(self, error: Exception) -> HistoryUnavailable:
        if not self._unreadable:
            self._unreadable = True
            log.warning("%s; jobs go on without it", error, extra={"action": "history_away"})
        return HistoryUnavailable(str(error))

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        thread, connection = self._thread, self._connection
        if thread is None or connection is None:
            raise StorageError(f"the history {self._path} is not open")
        return await self._in_thread(thread, lambda: work(connection))

    async def _in_thread(self, thread: SerialThread, work: Callable[[], T]) -> T:
        try:
            return await thread.run(work)
        except sqlite3.Error as error:
            self._fsync_failed |= getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_FSYNC
            raise StorageError(f"the history {self._path}: {error}") from error

    def _open(self) -> None:
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            expected = ".".join(map(str, OLDEST_SQLITE))
            raise SchemaError(f"expected SQLite {expected} or newer, got {sqlite3.sqlite_version}")
        self._make()
        path = real(self._path)
        # By its whole path: `:memory:` and `file:…` mean something else to SQLite.
        connection = self._connection = sqlite3.connect(path.absolute(), isolation_level=None)
        version = _version(connection, self._path)
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":  # some file systems cannot; `sync` would promise too much
            raise StorageError(f"the history {self._path}: expected journal mode wal, got {mode}")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {AUTOCHECKPOINT_PAGES}")
        _migrate(connection, version)
        self._places = Places(path)

    def _make(self) -> None:
        """An empty file, where there is none; a directory that is not there is more likely mistyped than meant."""
        parent = self._path.parent
        if not parent.is_dir():
            advice = f"`mkdir -p {shlex.quote(str(parent))}` makes it"
            expected = f"a file in a directory that exists ({advice})"
            raise ConfigError("HISTORY_DATABASE_URI", expected, f"sqlite:{self._path}")
        if not self._path.exists():
            self._path.touch(mode=0o600)  # it tells what every job carried

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()  # the last one to close checkpoints, as `sync` does


def _rows(values: Sequence[Sequence[Any]], columns: int) -> Iterator[tuple[str, list[Any]]]:
    """A VALUES clause for each thousand of these rows, and its parameters."""
    row = f"({', '.join('?' * columns)})"
    for start in range(0, len(values), _ROWS_AT_ONCE):
        some = values[start : start + _ROWS_AT_ONCE]
        yield f"VALUES {', '.join([row] * len(some))}", [value for each in some for value in each]


def _statements(connection: sqlite3.Connection, batch: Batch) -> Iterator[_Statement]:
    """The steps of one batch. Each is executed before the next one is asked for."""
    source = "{rows}" if batch.lowest > _read_cursor(connection) else _NOT_SUPERSEDED
    for rows, values in _rows(batch.entries, 4):
        yield _INSERT_ENTRIES.format(rows=source.format(rows=rows)) + _NEWER_ENTRY, values
    superseded = {job_id for (job_id,) in connection.execute("SELECT job_id FROM regista_superseded")}
    if superseded:
        yield "DELETE FROM regista_superseded", ()
        # With its row goes what else never changes about a job.
        for job_id, number, *_ in batch.jobs:
            if job_id in superseded:
                yield "DELETE FROM regista_jobs WHERE job_id = ? AND number < ?", (job_id, number)
    for rows, values in _rows(batch.jobs, JOB_COLUMNS):
        yield _INSERT_JOBS.format(rows=rows), values
    for rows, values in _rows(batch.attributes, 4):
        yield _INSERT_ATTRIBUTES.format(rows=rows), values
    yield _MOVE_CURSOR, (batch.cursor, batch.cursor)


def _read_cursor(connection: sqlite3.Connection) -> int:
    (cursor,) = connection.execute("SELECT value FROM regista_cursor").fetchone()
    return int(cursor)


def _checkpoint(connection: sqlite3.Connection) -> int:
    """Move the WAL into the database; returns the cursor that is safe then, or 0 if that was not possible.

    With `synchronous=NORMAL` a commit is written to the WAL without fsync. A checkpoint fsyncs the WAL
    before it copies the first page, and the database after the last one, before it counts the frames as
    moved. So when all frames are moved, every commit up to here is on the disk twice over, and with it
    the cursor, which was read before and is part of those commits. Another process that reads the file for long
    can hold frames back: then nothing is promised, and the next call tries again.
    """
    cursor = _read_cursor(connection)
    busy, frames, moved = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return cursor if not busy and frames == moved else 0


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """The schema version of a file that is ours, or new and empty; anything else is refused untouched."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (things,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application != APPLICATION_ID and (application, version, things) != (0, 0, 0):
        raise SchemaError(f"{path} is a database, but not a history of Regista")
    newest = len(_migrations())
    if version > newest:
        raise SchemaError(
            f"{path}: expected schema {newest} or older, got {version}; a newer Regista wrote it"
        )
    return int(version)


def _migrate(connection: sqlite3.Connection, version: int) -> None:
    """Bring the file from `version` to the newest, each step whole or not at all."""
    for number, step in enumerate(_migrations()[version:], version + 1):
        connection.executescript(
            f"BEGIN IMMEDIATE; {step.read_text()}"
            f"; PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {number}"
        )
        connection.execute("COMMIT")


def _migrations() -> list[Path]:
    """The steps in their order; the first takes an empty file to version 1."""
    return sorted(_SQL.glob("[0-9]*.sql"))
