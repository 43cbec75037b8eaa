"""SqliteHistory: history in a file of its own, written a batch at a time by a thread of its own."""

import logging
import re
import shlex
import sqlite3
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ..errors import ConfigError, HistoryUnavailable, SchemaError, StorageError, StorageFailed
from ..model import Event, JobSummary, OutboxEntry
from ..onethread import OneThread
from ..places import Places, real
from ..together import together
from .base import EntryPage, Place
from .encoding import decode_events, encode_json
from .indexed import Indexed
from .leads import IndexCondition, best, leads_of
from .query import Field, Query
from .query import Place as SearchPlace
from .query.counts import GroupRow, JobCounts, Member, counts_from
from .query.evaluate import in_order
from .query.index import keys_of, text_index
from .setting_aside import KEPT_ID, Refused, record_sparing, shown_entry
from .sqlite_rows import JobRow, index_rows, pack
from .sqlite_search import counting, statement, tallying
from .superseded import to_events

T = TypeVar("T")

log = logging.getLogger("regista.history")

#: `->>` came with it.
OLDEST_SQLITE = (3, 38, 0)
#: "REGH": says that a file is ours.
APPLICATION_ID = 0x52454748
#: Pages of WAL after which SQLite checkpoints by itself, inside `record`. `sync` comes long before;
#: this only bounds the file for somebody who never calls it.
AUTOCHECKPOINT_PAGES = 50_000
#: The step of the schema that brought an index of search attributes.
SEARCHABLE_FROM = 3

#: What SQLite raises when it is the file or the disk that is wrong, and not the question.
_BROKEN = (sqlite3.OperationalError, sqlite3.DatabaseError)

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

    #: Orchestrators on other machines cannot read it.
    shared = False

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._thread: OneThread | None = None
        #: Opened, used and closed by the thread alone.
        self._connection: sqlite3.Connection | None = None
        self._synced = 0
        self._indexed = Indexed()
        #: Entries that could not be written, since the start.
        self.set_aside = 0
        self._fsync_failed = False
        #: Where the files were when they were opened.
        self._places: Places | None = None
        #: It was opened anew, and who writes does not know yet: the cursor is another one.
        self._untold = False
        #: The last look into it failed, and the log says so.
        self._unreadable = False

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

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
        return await self._ask(_read_cursor)

    async def record(self, entries: Sequence[OutboxEntry]) -> None:
        if entries:
            await record_sparing(self._write, self._set_aside, entries)

    async def _write(self, entries: Sequence[OutboxEntry]) -> None:
        indexed = self._indexed
        batch, news = await pack(entries, indexed)
        self._tell_once()
        try:
            await self._run(lambda connection: connection.execute(_QUERIES["record"], batch).close())
        except StorageError as error:
            if isinstance(error.__cause__, sqlite3.DataError):
                raise Refused(str(error)) from error
            raise
        indexed.written(news)

    async def _set_aside(self, entry: OutboxEntry, reason: str) -> None:
        self._tell_once()
        asked = (entry.number, entry.job_id[:KEPT_ID], reason, shown_entry(entry))
        await self._run(
            lambda connection: together(
                connection, [(_QUERIES["set_aside"], asked), (_QUERIES["move"], (entry.number, entry.number))]
            )
        )
        self.set_aside += 1

    async def sync(self) -> int:
        if self._fsync_failed:
            # The kernel drops what it could not write and calls the next fsync a success (FENCES 2).
            raise StorageFailed(f"the history {self._path}: an fsync failed, what it covered is unknown")
        self._tell_once()
        synced = await self._run(_checkpoint)
        if moved := self._moved():
            # Whoever prunes behind what went into a file without a name has lost it twice.
            raise StorageError(
                f"the history {self._path}: {moved}; it is opened anew, and told what the store still has"
            )
        self._synced = max(self._synced, synced)
        return self._synced

    def _tell_once(self) -> None:
        """Nothing is written, or called safe, by who goes on from the cursor of the file before: it has to ask again."""
        if self._untold:
            self._untold = False
            raise StorageError(
                f"the history {self._path} was opened anew; it is told what the store still has"
            )

    def _moved(self) -> str | None:
        return None if self._places is None else self._places.moved()

    async def _begin_anew(self) -> None:
        """Open what is there by that name now, or a new file. What the one before had is asked of it no more."""
        if self._thread is None:
            return
        # Before the thread is asked: whatever is asked of it from now on is done to the new file.
        self._synced, self._indexed, self._fsync_failed, self._untold = 0, Indexed(), False, True
        if not await self._in_thread(self._thread, self._reopen):
            return
        log.warning(
            "the history %s was moved or removed under us; it is opened anew",
            self._path,
            extra={"action": "history_anew"},
        )

    async def events(self, job_id: str, after_seq: int = 0, limit: int = 1000) -> list[Event]:
        asked = {"job_id": job_id, "after_seq": after_seq, "limit": limit}
        rows = await self._read(_QUERIES["events"], asked, list[tuple[int, str]])
        told = to_events(_entry(job_id, first_seq, body) for first_seq, body in rows)
        return [event for event in told if event.seq > after_seq][:limit]

    async def events_of_jobs(self, job_ids: Sequence[str], limit: int = 1000) -> dict[str, list[Event]]:
        asked = {"job_ids": encode_json(job_ids).decode(), "limit": limit}
        rows = await self._read(_QUERIES["stories"], asked, list[tuple[str, int, str]])
        found: dict[str, list[OutboxEntry]] = {}
        for job_id, first_seq, body in rows:
            found.setdefault(job_id, []).append(_entry(job_id, first_seq, body))
        return {job_id: to_events(told)[:limit] for job_id, told in found.items()}

    async def entries(self, after: int, limit: int = 1000, client: str | None = None) -> EntryPage:
        asked = {"after": after, "limit": limit, "client": client}
        rows = await self._read(_QUERIES["entries"], asked, list[tuple[int, str, int, str, str | None]])
        rows.sort()
        found = [
            OutboxEntry(number, job_id, first_seq, decode_events(bytes.fromhex(body)))
            for number, job_id, first_seq, _, body in rows
            if body is not None
        ]
        return EntryPage(found, rows[-1][0] if rows else after)

    async def summary(self, job_id: str) -> JobSummary | None:
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
    ) -> list[JobSummary]:
        asked: dict[str, Any] = {"client": client, "blueprint": blueprint, "status": status}
        filters = [f"{column} = :{column}" for column, value in asked.items() if value is not None]
        if status is not None and status != "finished":
            filters.append("status <> 'finished'")  # lets the partial index answer
        if before is not None:
            filters.append("(created_at, job_id) < (:created_at, :job_id)")
            asked |= {"created_at": before[0].timestamp(), "job_id": before[1]}
        return await self._summaries(filters, {**asked, "limit": limit})

    async def _summaries(self, filters: list[str], asked: dict[str, Any]) -> list[JobSummary]:
        query = _QUERIES["summaries"].format(filters=" AND ".join(filters) or "true")
        rows = await self._read(query, asked, list[JobRow])
        rows.sort(key=lambda row: (row.created_at, row.job_id), reverse=True)
        return [row.summary() for row in rows]

    async def search(
        self, query: Query, after: SearchPlace | None = None, limit: int = 100
    ) -> list[JobSummary]:
        found = statement(query, await self._lead(query), after)
        text = _QUERIES["search"].format(source=found.source, filters=found.filters, order=found.order)
        rows = await self._read(text, {**found.asked, "limit": limit}, list[JobRow])
        return in_order(query.order, [row.summary() for row in rows])

    async def _lead(self, query: Query) -> IndexCondition | None:
        leads = leads_of(query)
        if not leads:
            return None
        if len(leads) == 1 and (leads[0].column or leads[0].exact):
            return leads[0]
        return best(leads, await self._read(*counting(leads), list[int]))

    async def count(
        self,
        query: Query,
        by: Field | None = None,
        *,
        without: Sequence[str] = (),
        beside: Sequence[Member] = (),
        limit: int = 100,
    ) -> JobCounts:
        source, filters, group, asked = tallying(query, await self._lead(query), by, without, beside)
        text = _QUERIES["tally"].format(source=source, filters=filters, group=group)
        rows = await self._read(text, {**asked, "limit": limit}, list[GroupRow])
        return counts_from(rows, by)

    async def expired(self, before: datetime | None, keep: int | None, limit: int = 500) -> list[str]:
        found: list[str] = []
        if before is not None:
            asked: dict[str, Any] = {"before": before.timestamp(), "limit": limit}
            found = await self._read(_QUERIES["expired_by_age"], asked, list[str])
        if keep and not found:
            found = await self._read(_QUERIES["expired_by_count"], {"keep": keep, "limit": limit}, list[str])
        return found

    async def forget(self, job_ids: Sequence[str]) -> None:
        asked = {"jobs": encode_json(job_ids).decode()}
        rows = await self._read(_QUERIES["attributes"], asked, list[tuple[str, dict[str, Any]]])
        keys = [(*key, job_id) for job_id, attributes in rows for key in keys_of(attributes)]
        asked["keys"] = encode_json(keys).decode()
        await self._run(lambda connection: _forget(connection, asked))
        self._indexed.forget(job_ids)

    async def _read(self, query: str, asked: dict[str, Any], shape: type[T]) -> T:
        (answer,) = await self._ask(lambda connection: connection.execute(query, asked).fetchone())
        return msgspec.json.decode(answer, type=shape)

    async def _ask(self, question: Callable[[sqlite3.Connection], T]) -> T:
        """What the file says. One that was moved is opened anew first; one that cannot say is a history that is away."""
        try:
            if self._moved():
                await self._begin_anew()
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
        return await self._in_thread(thread, lambda: work(self._connection or connection))

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

    def _reopen(self) -> bool:
        """Whether that was necessary: somebody may have asked for it just before."""
        if not self._moved():
            return False
        self._close()
        try:
            self._open()
        except BaseException:
            self._close()  # what is there now may be anybody's
            raise
        return True

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


def _entry(job_id: str, first_seq: int, body: str) -> OutboxEntry:
    return OutboxEntry(0, job_id, first_seq, decode_events(bytes.fromhex(body)))


def _forget(connection: sqlite3.Connection, gone: dict[str, str]) -> None:
    # Keys first: they are found by way of the rows of their jobs.
    steps = ("forget_keys", "forget_entries", "forget_jobs")
    together(connection, ((_QUERIES[step], gone) for step in steps))


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
            f"; PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {number}"
        )
        if number == SEARCHABLE_FROM:
            _index(connection)
        connection.execute("COMMIT")


def _index(connection: sqlite3.Connection) -> None:
    """What leads to the jobs that were recorded before there was an index."""
    found = connection.execute(_QUERIES["unindexed"]).fetchall()
    for job_id, created_at, text in found:
        attributes = msgspec.json.decode(text)
        connection.execute("UPDATE jobs SET words = ? WHERE job_id = ?", (text_index(attributes), job_id))
        connection.executemany(
            "INSERT OR IGNORE INTO attributes VALUES (?, ?, ?, ?)", index_rows(job_id, created_at, attributes)
        )


def _migrations() -> list[Path]:
    """The steps in their order; the first takes an empty file to version 1."""
    return sorted(_SQL.glob("[0-9]*.sql"))
