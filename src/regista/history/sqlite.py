"""SqliteHistory: history in a file of its own, written a batch at a time by a thread of its own."""

import asyncio
import re
import sqlite3
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from ..clock import EPOCH
from ..errors import SchemaError, StorageError, StorageFailed
from ..model import Entry, Event, Summary
from ..onethread import OneThread
from .base import Place, Stretch
from .encoding import decode_events, encode_events, encode_json

T = TypeVar("T")

#: `->>` came with it.
OLDEST_SQLITE = (3, 38, 0)
#: "REGH": says that a file is ours.
APPLICATION_ID = 0x52454748
#: Pages of WAL after which SQLite checkpoints by itself, inside `record`. `sync` comes long before;
#: this only bounds the file for somebody who never calls it.
AUTOCHECKPOINT_PAGES = 50_000
#: Entries encoded before the loop gets a turn: about a millisecond.
ENCODED_AT_ONCE = 200

_SQL = Path(__file__).with_name("sql")
#: Each query of queries.sql under its name, without the sentence that explains it.
_QUERIES = dict(
    re.findall(r"(?m)^-- name: (\w+)\n(?:--.*\n)+((?:(?!--).*\n)+)", (_SQL / "queries.sql").read_text())
)


class SqliteHistory:
    """One file, one connection, one thread.

    The file runs with WAL and `synchronous=NORMAL`: `record` survives the death of the process, and
    `sync` makes it survive a power cut. Until then the store's outbox has the durable copy.
    Everything that SQLite does happens in one thread, and each call is one statement with one row for
    an answer: every step gives up the GIL, and beside a busy loop it is milliseconds until it is back.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._thread: OneThread | None = None
        #: Opened, used and closed by the thread alone.
        self._connection: sqlite3.Connection | None = None
        self._synced = 0
        self._fsync_failed = False

    async def start(self) -> None:
        if self._thread is not None:
            return
        self._thread = OneThread("regista-history")
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

    async def cursor(self) -> int:
        return await self._run(_read_cursor)

    async def record(self, entries: Sequence[Entry]) -> None:
        if entries:
            batch = await _pack(entries)
            await self._run(lambda connection: connection.execute(_QUERIES["record"], batch).close())

    async def sync(self) -> int:
        if self._fsync_failed:
            # The kernel drops what it could not write and calls the next fsync a success (FENCES 2).
            raise StorageFailed(f"the history {self._path}: an fsync failed, what it covered is unknown")
        self._synced = max(self._synced, await self._run(_checkpoint))
        return self._synced

    async def events(self, job_id: str, after_seq: int = 0, limit: int = 1000) -> list[Event]:
        asked = {"job_id": job_id, "after_seq": after_seq, "limit": limit}
        found: list[Event] = []
        for first_seq, body in sorted(await self._read(_QUERIES["events"], asked, list[tuple[int, str]])):
            entry = Entry(0, job_id, first_seq, decode_events(bytes.fromhex(body)))
            found += (event for event in entry.numbered() if event.seq > after_seq)
        return found[:limit]

    async def stories(self, job_ids: Sequence[str], limit: int = 1000) -> dict[str, list[Event]]:
        asked = {"job_ids": encode_json(job_ids).decode(), "limit": limit}
        rows = await self._read(_QUERIES["stories"], asked, list[tuple[str, int, str]])
        found: dict[str, list[Event]] = {}
        for job_id, first_seq, body in sorted(rows):
            entry = Entry(0, job_id, first_seq, decode_events(bytes.fromhex(body)))
            found.setdefault(job_id, []).extend(entry.numbered())
        return {job_id: events[:limit] for job_id, events in found.items()}

    async def entries(self, after: int, limit: int = 1000, client: str | None = None) -> Stretch:
        asked = {"after": after, "limit": limit, "client": client}
        rows = await self._read(_QUERIES["entries"], asked, list[tuple[int, str, int, str, str | None]])
        rows.sort()
        found = [
            Entry(number, job_id, first_seq, decode_events(bytes.fromhex(body)))
            for number, job_id, first_seq, _, body in rows
            if body is not None
        ]
        return Stretch(found, rows[-1][0] if rows else after)

    async def summary(self, job_id: str) -> Summary | None:
        rows = await self._summaries(["job_id = :job_id"], {"job_id": job_id, "limit": 1})
        return rows[0] if rows else None

    async def summaries(
        self,
        *,
        client: str | None = None,
        blueprint: str | None = None,
        status: str | None = None,
        before: Place | None = None,
        limit: int = 100,
    ) -> list[Summary]:
        asked: dict[str, Any] = {"client": client, "blueprint": blueprint, "status": status}
        filters = [f"{column} = :{column}" for column, value in asked.items() if value is not None]
        if status is not None and status != "finished":
            filters.append("status <> 'finished'")  # lets the partial index answer
        if before is not None:
            filters.append("(created_at, job_id) < (:created_at, :job_id)")
            asked |= {"created_at": before[0].timestamp(), "job_id": before[1]}
        return await self._summaries(filters, {**asked, "limit": limit})

    async def _summaries(self, filters: list[str], asked: dict[str, Any]) -> list[Summary]:
        query = _QUERIES["summaries"].format(filters=" AND ".join(filters) or "true")
        rows = await self._read(query, asked, list[_JobRow])
        rows.sort(key=lambda row: (row.created_at, row.job_id), reverse=True)
        return [row.summary() for row in rows]

    async def _read(self, query: str, asked: dict[str, Any], shape: type[T]) -> T:
        (answer,) = await self._run(lambda connection: connection.execute(query, asked).fetchone())
        return msgspec.json.decode(answer, type=shape)

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        thread, connection = self._thread, self._connection
        if thread is None or connection is None:
            raise StorageError(f"the history {self._path} is not open")
        return await self._in_thread(thread, lambda: work(connection))

    async def _in_thread(self, thread: OneThread, work: Callable[[], T]) -> T:
        try:
            return await thread.run(work)
        except sqlite3.Error as error:
            self._fsync_failed |= getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_FSYNC
            raise StorageError(f"the history {self._path}: {error}") from error

    def _open(self) -> None:
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            expected = ".".join(map(str, OLDEST_SQLITE))
            raise SchemaError(f"expected SQLite {expected} or newer, got {sqlite3.sqlite_version}")
        if not self._path.exists():
            self._path.touch(mode=0o600)  # it tells what every job carried
        connection = self._connection = sqlite3.connect(self._path, isolation_level=None)
        version = _version(connection, self._path)
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":  # some file systems cannot; `sync` would promise too much
            raise StorageError(f"the history {self._path}: expected journal mode wal, got {mode}")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {AUTOCHECKPOINT_PAGES}")
        _migrate(connection, version)

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()  # the last one to close checkpoints, as `sync` does


class _Batch(NamedTuple):
    """The columns of the view `batches`."""

    entries: str
    bodies: bytearray
    jobs: str
    cursor: int


async def _pack(entries: Sequence[Entry]) -> _Batch:
    """Encode each entry once, and of each job's summaries only the last."""
    bodies = bytearray()
    rows: list[tuple[str, int, int, int, int]] = []
    latest: dict[str, Entry] = {}
    for count, entry in enumerate(entries, 1):
        if entry.events:
            start = len(bodies)
            encode_events(entry.events, bodies)
            rows.append((entry.job_id, entry.first_seq, entry.number, start + 1, len(bodies) - start))
        if entry.summary is not None:
            rival = latest.get(entry.job_id)
            if rival is None or rival.number < entry.number:
                latest[entry.job_id] = entry
        if count % ENCODED_AT_ONCE == 0:
            await asyncio.sleep(0)
    jobs = [_job_row(entry.number, entry.summary) for entry in latest.values() if entry.summary is not None]
    cursor = max(entry.number for entry in entries)
    return _Batch(encode_json(rows).decode(), bodies, encode_json(jobs).decode(), cursor)


def _job_row(number: int, summary: Summary) -> tuple[Any, ...]:
    """The columns of `jobs`, in their order."""
    return (
        summary.job_id,
        number,
        summary.client,
        summary.blueprint,
        summary.version,
        summary.status,
        summary.state,
        summary.created_at.timestamp(),
        summary.updated_at.timestamp(),
        None if summary.finished_at is None else summary.finished_at.timestamp(),
        summary.parent_id,
        summary.error_code,
        summary.search_attributes,
    )


class _JobRow(msgspec.Struct, array_like=True):
    """A row of `jobs` as the query `summaries` gives it back; times in microseconds."""

    job_id: str
    client: str
    blueprint: str
    version: str
    status: str
    state: str
    created_at: int
    updated_at: int
    finished_at: int | None
    parent_id: str | None
    error_code: str | None
    search_attributes: dict[str, Any]

    def summary(self) -> Summary:
        fields = msgspec.structs.asdict(self)
        for name in ("created_at", "updated_at", "finished_at"):
            if fields[name] is not None:
                fields[name] = EPOCH + timedelta(microseconds=fields[name])
        return Summary(**fields)


def _read_cursor(connection: sqlite3.Connection) -> int:
    (cursor,) = connection.execute(_QUERIES["cursor"]).fetchone()
    return int(cursor)


def _checkpoint(connection: sqlite3.Connection) -> int:
    """Move the WAL into the database; returns the cursor that is safe then, or 0 if that was not possible.

    With `synchronous=NORMAL` a commit is written to the WAL without fsync. A checkpoint fsyncs the WAL
    before it copies the first page, and the database after the last one, before it counts the frames as
    moved. So when all frames are moved, every commit up to here is on the disk twice over, and with it
    the cursor, which was read before and is part of those commits. Somebody else's long read of the file
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
            f"; PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {number}; COMMIT"
        )


def _migrations() -> list[Path]:
    """The steps in their order; the first takes an empty file to version 1."""
    return sorted(_SQL.glob("[0-9]*.sql"))
