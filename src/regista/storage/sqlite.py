"""SqliteStorage: the embedded default. One process, one file, fsync before every answer."""

import asyncio
import contextlib
import fcntl
import functools
import gc
import logging
import os
import sqlite3
import time
from collections.abc import Collection, Iterable, Sequence
from itertools import starmap
from pathlib import Path

import msgspec

from ..clock import Clock
from ..errors import SchemaError, StorageError, StorageFailed, StorageOwned, StorageUnavailable
from ..onethread import OneThread
from ..places import Places, lock_of, real, wal_of
from .journal import Batch, CountRow, ItemRow, JobRow, Snapshot, halves_of
from .memory import MemoryStorage
from .sqlite_file import refuse_misfit, refuse_orphan, refuse_strange

log = logging.getLogger("regista.storage")

#: Bytes that the WAL has from the start. A flush into blocks that are there takes half as long as one that makes the
#: file longer, since the file system need not write down that it grew.
_WAL_BYTES = 8 << 20
#: Pages of WAL at which SQLite itself copies them into the file, in the middle of a flush, and begins it anew: when
#: those bytes are full. Mostly it does not come to that: we do it when nothing has been written for a while.
_AUTOCHECKPOINT_PAGES = _WAL_BYTES // 4200
_IDLE_S = 0.5
#: How often a flush is followed by a look whether the files are still there. The first one after a pause always is.
_LOOK_S = 0.1
#: Bytes of a batch that is written without the thread: a few jobs with little in them.
_SMALL_BYTES = 4096
#: A flush that took longer is no work for the loop, and none is for so long afterwards.
_SLOW_S, _CAREFUL_S = 0.002, 1.0
#: How long a start waits for a predecessor to leave.
OWNER_PATIENCE_S = 10.0
#: When it says so: most predecessors are gone by then.
_TELL_AFTER_S = 1.0
#: `->>` and `substr` on blobs as the batch statement uses them.
_SQLITE_NEEDED = (3, 38, 0)
_FORGET = "DELETE FROM jobs WHERE NOT live AND id IN (SELECT value FROM json_each(?))"
_INSERT_BATCH = f"INSERT INTO flush VALUES ({', '.join(17 * '?')})"
#: What most batches have. Each NULL costs as much as it takes to ask what None may be adapted to.
_INSERT_USUAL = (
    "INSERT INTO flush (jobs, job_bodies, tasks, task_bodies, dropped_tasks, last_entry, entries, pruned)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
#: An index for json_each, and the bodies glued together; of nothing, as most batches have it of most tables.
_Packed = tuple[str | None, bytearray]
_NO_ROWS: _Packed = (None, bytearray())
#: A text and its values.
_Statement = tuple[str, tuple[object, ...]]
#: Bytes of bodies of one kind above which a batch becomes several statements. SQLite takes a value of 1,000,000,000 at most.
_STATEMENT_BYTES = 256 << 20
#: How bodies are glued together: not as `bytes`, for sqlite3 asks what those may be adapted to, as of None.
_glue = bytearray().join
#: Digits before the body of each job.
_COLUMNS = 21
_encode_json = msgspec.json.Encoder().encode


class _Numbered(msgspec.Struct):
    """What has to be known of an entry of the outbox before it is read."""

    number: int


#: The entries of an outbox row, still encoded; and the number of one.
_split = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_numbered = msgspec.msgpack.Decoder(_Numbered).decode


class SqliteStorage(MemoryStorage):
    """Hot state in memory, every commit in the file before it is answered."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        clock: Clock | None = None,
        owner_patience_s: float = OWNER_PATIENCE_S,
    ) -> None:
        self.path = Path(path)
        super().__init__(clock, SqliteJournal(self.path, owner_patience_s))

    async def start(self) -> None:
        """Open the file and rebuild the hot state from it."""
        await super().start()
        # What was rebuilt stays: no full collection needs to walk over it again.
        gc.freeze()

    async def stop(self) -> None:
        """Flush and close."""
        gc.unfreeze()
        await super().stop()


class SqliteJournal:
    """Writes batches to the file. Only this class knows SQLite.

    A batch is one statement (see `flush` in sql/) run by a thread of its own in autocommit mode:
    rows, commit and fsync are one call that holds no Python lock. Only a small one is run by the loop itself, as long as
    the disk is quick and the thread has nothing to do: where jobs come one by one, the way to the thread and back is a tenth
    of what each of them takes.
    """

    keeps_ended = True

    def __init__(self, path: Path, owner_patience_s: float = OWNER_PATIENCE_S) -> None:
        self._path = path
        self._patience_s = owner_patience_s
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._thread: OneThread | None = None
        self._owner: int | None = None
        self._places: Places | None = None
        self._looked = 0.0
        #: Until then every batch goes to the thread.
        self._careful_until = 0.0
        self._written = 0
        self._idle: asyncio.TimerHandle | None = None
        self._tidying: asyncio.Task[None] | None = None

    async def open(self) -> Snapshot:
        self._path = real(self._path)
        self._thread = OneThread("regista-sqlite")
        try:
            # Not in the thread: whoever is told to stop meanwhile must not wait for it.
            self._owner = await _own(self._path, self._patience_s)
            snapshot = await self._thread.run(self._open)
            # Who starts need not wait for this. The first flush does: it is behind it, in the same thread.
            stretching = self._thread.run(functools.partial(_stretch, self._path))
            self._tidying = asyncio.get_running_loop().create_task(stretching, name="sqlite-stretch")
            await asyncio.sleep(0)  # now the thread has been told, and nobody has asked for a flush yet
            return snapshot
        except BaseException:
            await self.close()
            raise

    def _open(self) -> Snapshot:
        try:
            refuse_orphan(self._path)
            refuse_misfit(self._path)
            self._writer = connection = _connect(self._path)
            migrate(connection, self._path)
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self._reader = _connect(self._path)
            assert self._owner is not None
            self._places = Places(self._path, self._owner)
            return _read(connection)
        except sqlite3.Error as error:
            raise StorageError(f"cannot open {self._path}: {error}") from error

    async def write(self, batch: Batch) -> None:
        if self._thread is None:
            raise StorageFailed(f"{self._path} is closed")
        statements = _statements(batch)
        began = time.monotonic()
        if began >= self._careful_until and self._thread.is_idle and _is_small(statements):
            # To hand it to the thread and back would take longer than the disk does.
            self._insert(statements)
            now = time.monotonic()
            if now - began > _SLOW_S:
                self._careful_until = now + _CAREFUL_S
        else:
            await self._thread.run(functools.partial(self._insert, statements))
            now = time.monotonic()
        if now - self._looked >= _LOOK_S:
            self._looked = now
            self._look()
        self._written += 1
        if self._idle is None:
            self._wait_for_idle()

    def _look(self) -> None:
        """Not in the thread, which would have to wait for the GIL once more for each file."""
        moved = self._places and self._places.moved()
        if moved:
            raise StorageFailed(
                f"{moved}: what is written to the one that was opened would be lost. "
                "Stop the orchestrator before its files are moved, removed or put back."
            )

    def _wait_for_idle(self) -> None:
        loop = asyncio.get_running_loop()
        self._idle = loop.call_later(_IDLE_S, self._when_idle, self._written)

    def _when_idle(self, written: int) -> None:
        self._idle = None
        if self._thread is None:
            return
        if written != self._written:
            self._wait_for_idle()
        else:
            work = self._thread.run(self._checkpoint)
            self._tidying = asyncio.get_running_loop().create_task(work, name="sqlite-checkpoint")

    def _checkpoint(self) -> None:
        assert self._writer is not None
        try:
            self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except sqlite3.Error:  # only tidying up: what is in the WAL is durable
            log.warning("cannot checkpoint %s", self._path, exc_info=True, extra={"action": "checkpoint"})

    def _insert(self, statements: list[_Statement]) -> None:
        assert self._writer is not None
        try:
            if len(statements) == 1:
                self._writer.execute(*statements[0])
            else:
                _together(self._writer, statements)
        except sqlite3.Error as error:
            raise StorageFailed(f"cannot write to {self._path}: {error}") from error

    async def forget(self, job_ids: Sequence[str]) -> None:
        """Delete these jobs, where they have ended. A crash may bring them back; then they are forgotten again."""
        if self._thread is not None:
            await self._thread.run(functools.partial(self._forget, _encode_json(list(job_ids)).decode()))

    def _forget(self, job_ids: str) -> None:
        assert self._writer is not None
        try:
            self._writer.execute(_FORGET, (job_ids,))
        except sqlite3.Error as error:
            raise StorageError(f"cannot delete from {self._path}: {error}") from error

    def find_job(self, job_id: str) -> bytes | None:
        if self._reader is None:
            return None
        try:
            row = self._reader.execute("SELECT body FROM jobs WHERE id = ?", (job_id,)).fetchone()
        except sqlite3.Error as error:
            raise StorageUnavailable(f"cannot read {self._path}: {error}") from error
        return bytes(row[0]) if row else None

    async def close(self) -> None:
        if self._thread is None:
            return
        thread, self._thread = self._thread, None
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        await thread.run(self._close)
        thread.close()

    def _close(self) -> None:
        for connection in (self._reader, self._writer):
            if connection is not None:
                connection.close()
        self._reader = self._writer = None
        if self._owner is not None:
            os.close(self._owner)  # the lock goes with it; the file stays, so that nobody races its removal
            self._owner = None


def _statements(batch: Batch) -> list[_Statement]:
    """What writes the batch: one statement, or several where one would carry more than SQLite takes."""
    statement = _statement(batch)
    large = any(type(part) is bytearray and len(part) > _STATEMENT_BYTES for part in statement[1])
    if large and (halves := halves_of(batch)):
        return [part for half in halves for part in _statements(half)]
    return [statement]


def _is_small(statements: list[_Statement]) -> bool:
    """It is one of the usual kind, with next to nothing in it."""
    (text, parts), *more = statements
    size = sum(len(part) for part in parts if type(part) is bytearray)
    return text is _INSERT_USUAL and size <= _SMALL_BYTES and not more


def _together(connection: sqlite3.Connection, statements: list[_Statement]) -> None:
    """All of them, in one flush, or none."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in statements:
            connection.execute(*statement)
        connection.execute("COMMIT")
    except sqlite3.Error:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def _statement(batch: Batch) -> _Statement:
    """What writes the batch: columns of the view `flush`, and their values."""
    jobs, tasks = _pack_jobs(batch.jobs.values()), _pack_kept(batch.tasks)
    events = (*_pack_entries(batch.entries), batch.prune)
    if not (batch.messages or batch.meta or batch.items or batch.counts):
        return _INSERT_USUAL, (*jobs, *tasks, *events)
    return _INSERT_BATCH, (
        *jobs,
        *tasks,
        *_pack_kept(batch.messages),
        *events,
        *_pack(batch.meta.items()),
        *_pack_items(batch.items.values()),
        *_pack_counts(batch.counts.values()),
    )


def _pack(rows: Collection[tuple[str, bytes]]) -> _Packed:
    """Where the body of each id is, for json_each, and the bodies glued together."""
    if not rows:
        return _NO_ROWS
    places = {}
    bodies = []
    offset = 1  # substr counts from one
    for id, body in rows:
        length = len(body)
        places[id] = offset << 30 | length
        bodies.append(body)
        offset += length
    return _index(places), _glue(bodies)


def _index(rows: object) -> str | None:
    """JSON for json_each; None: no rows."""
    return _encode_json(rows).decode() if rows else None


def _pack_jobs(rows: Iterable[JobRow]) -> _Packed:
    """The same for jobs, each body behind the store's own columns."""
    places = {}
    bodies: list[bytes] = []
    offset = 1
    for id, live, seq, open_branches, body in rows:
        length = _COLUMNS + len(body)
        places[id] = offset << 30 | length
        bodies += (_columns(live, seq, open_branches), body)
        offset += length
    return _index(places), _glue(bodies)


@functools.lru_cache(maxsize=1024)
def _columns(live: bool, seq: int, open_branches: int) -> bytes:
    """Remembered: most jobs take the same few steps."""
    return b"%d%010d%010d" % (live, seq, open_branches)


def _pack_kept(rows: dict[str, bytes | None]) -> tuple[str | None, bytearray, str | None]:
    """The same, and the ids of those that are dropped."""
    if not rows:
        return *_NO_ROWS, None
    kept = _pack([(id, body) for id, body in rows.items() if body is not None])
    return *kept, _index([id for id, body in rows.items() if body is None])


def _pack_entries(entries: list[tuple[int, bytes]]) -> tuple[int | None, bytearray]:
    """The number of the last, and the msgpack list of all of them."""
    if not entries:
        return None, bytearray()
    head = b"\xdd" + len(entries).to_bytes(4, "big")
    return entries[-1][0], _glue([head, *[body for _, body in entries]])


def _pack_counts(rows: Collection[CountRow]) -> _Packed:
    """An index for json_each whose rows end in offset and length, and the names glued together."""
    if not rows:
        return _NO_ROWS
    index = []
    names = []
    offset = 1
    for row in rows:
        name = row.counter.encode()
        index.append((row.used, row.expires, offset, len(name)))
        names.append(name)
        offset += len(name)
    return _index(index), _glue(names)


def _pack_items(rows: Collection[ItemRow]) -> _Packed:
    """The same for items, whose names are glued to their values."""
    if not rows:
        return _NO_ROWS
    index = []
    bodies: list[bytes] = []
    offset = 1
    for row in rows:
        parts = (row.shelf.encode(), row.key.encode(), row.value)
        lengths = tuple(map(len, parts))
        index.append((row.revision, row.due, row.expires, offset, *lengths))
        bodies += parts
        offset += sum(lengths)
    return _index(index), _glue(bodies)


def _connect(path: Path) -> sqlite3.Connection:
    # Inputs, results and the secret behind approval links are nobody else's business. SQLite gives the
    # files beside it the same mode.
    if not path.exists():
        path.touch(mode=0o600)
    # By its whole path: `:memory:` and `file:…` mean something else to SQLite.
    connection = sqlite3.connect(path.absolute(), isolation_level=None, check_same_thread=False)
    try:
        refuse_strange(connection, path)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        # Some builds overwrite with zeros whatever is deleted, and write out even pages that nobody uses any more.
        connection.execute("PRAGMA secure_delete = FAST")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_AUTOCHECKPOINT_PAGES}")
    except (sqlite3.Error, SchemaError):
        connection.close()
        raise
    return connection


def _stretch(path: Path) -> None:
    """Give the WAL its blocks, if it is empty. Zeros are no frames: whoever recovers from them finds nothing."""
    try:
        with open(wal_of(path), "r+b", buffering=0) as wal:
            if os.fstat(wal.fileno()).st_size:
                return  # somebody reads the file, or writes to it: what is there must stay
            for _ in range(_WAL_BYTES >> 20):
                wal.write(bytes(1 << 20))
            os.fsync(wal.fileno())
    except OSError as error:  # a full disk, say: only the speed is lost
        log.warning("cannot stretch the WAL of %s: %s", path, error, extra={"action": "wal"})


async def _own(path: Path, patience_s: float) -> int:
    """Take the side file's lock, waiting for a predecessor to leave."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(lock_of(path), os.O_RDWR | os.O_CREAT, 0o600)
    began = time.monotonic()
    told = False
    try:
        while not _locked(handle):
            waited = time.monotonic() - began
            if not told and waited >= _TELL_AFTER_S:
                told = True
                words = "%s: waiting for pid %s to let go of it, for %.0f s at most"
                log.warning(words, path, _owner(handle), patience_s, extra={"action": "store_taken"})
            if waited >= patience_s:
                owner = _owner(handle)
                whose = "this very process" if owner == str(os.getpid()) else f"another process (pid {owner})"
                raise StorageOwned(
                    f"{path} is owned by {whose}. One orchestrator owns a SQLite store: stop the other one, "
                    "or give this one another path."
                )
            await asyncio.sleep(0.05)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        return handle
    except BaseException:
        os.close(handle)
        raise


def _owner(handle: int) -> str:
    """The pid of whoever has the lock, as it wrote it down."""
    return os.pread(handle, 32, 0).decode(errors="replace").strip() or "unknown"


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def migrations() -> list[str]:
    """The numbered steps, in order: the schema's version is how many were taken."""
    return [step.read_text() for step in sorted(Path(__file__).with_name("sql").glob("*.sql"))]


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring the file up to date: all the steps that it lacks, or none."""
    if sqlite3.sqlite_version_info < _SQLITE_NEEDED:
        needed = ".".join(map(str, _SQLITE_NEEDED))
        raise SchemaError(f"expected SQLite {needed} or newer, got {sqlite3.sqlite_version}")
    steps = migrations()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > len(steps):
        raise SchemaError(
            f"{path} has schema version {version}, this Regista knows {len(steps)}: it was written by a "
            "newer one. Upgrade Regista, or use another file."
        )
    if version == len(steps):
        return
    missing = "\n".join(steps[version:])
    try:
        connection.executescript(f"BEGIN;\n{missing}\nPRAGMA user_version = {len(steps)};\nCOMMIT;")
    except sqlite3.Error:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def _read(connection: sqlite3.Connection) -> Snapshot:
    jobs = connection.execute(
        "SELECT id, live, seq, open_branches, body FROM jobs INDEXED BY jobs_live WHERE live"
    )
    items = connection.execute("SELECT shelf, key, revision, due, expires, value FROM items")
    return Snapshot(
        jobs=[
            JobRow(id, bool(live), seq, open_branches, body) for id, live, seq, open_branches, body in jobs
        ],
        tasks=[body for (body,) in connection.execute("SELECT body FROM tasks")],
        messages=[body for (body,) in connection.execute("SELECT body FROM messages ORDER BY rowid")],
        entries=_read_outbox(connection),
        meta=dict(connection.execute("SELECT key, value FROM meta")),
        last_id=connection.execute("SELECT coalesce(max(id), '') FROM jobs").fetchone()[0],
        items=list(starmap(ItemRow, items)),
        counts=list(starmap(CountRow, connection.execute("SELECT counter, used, expires FROM counts"))),
    )


def _read_outbox(connection: sqlite3.Connection) -> list[bytes]:
    """The entries that were not pruned; the last one in any case, since numbers go on from it."""
    (upto,) = connection.execute("SELECT upto FROM pruned").fetchone()
    rows = connection.execute("SELECT body FROM outbox ORDER BY number")
    entries = [bytes(entry) for (body,) in rows for entry in _split(body)]
    return [entry for entry in entries if _numbered(entry).number > upto] or entries[-1:]
