"""SqliteStorage: the embedded default. One process, one file, fsync before every answer."""

import asyncio
import functools
import logging
import os
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ...aio import SerialThread
from ...clock import Clock
from ...errors import StorageError, StorageFailed, StorageUnavailable
from ...places import Places, real
from ...together import together
from ..journal import JournalBatch, Snapshot
from ..memory import MemoryStorage
from .checks import check_wal_fits_file, check_wal_has_file
from .file import connect, prepare, read_all, stretch
from .lock import acquire_lock
from .rows import Statement, statements_of

log = logging.getLogger("regista.storage")

#: Seconds without a flush after which the WAL is copied into the file.
_IDLE_S = 0.5
#: How often a flush is followed by a look whether the files are still there. The first one after a pause always is.
_LOOK_S = 0.1
#: How long a start waits for a predecessor to leave.
OWNER_PATIENCE_S = 10.0
_FORGET = "DELETE FROM jobs WHERE NOT live AND id IN (SELECT value FROM json_each(?))"


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


class SqliteJournal:
    """Writes batches to the file. Only this class knows SQLite.

    A batch is one statement (see `flush` in schema.sql) run by a thread of its own in autocommit mode:
    rows, commit and fsync are one call that does not hold the GIL.
    """

    keeps_ended = True

    def __init__(self, path: Path, owner_patience_s: float = OWNER_PATIENCE_S) -> None:
        self._path = path
        self._patience_s = owner_patience_s
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._thread: SerialThread | None = None
        self._owner: int | None = None
        self._places: Places | None = None
        self._looked = 0.0
        self._written = 0
        self._idle: asyncio.TimerHandle | None = None
        self._tidying: asyncio.Task[None] | None = None

    async def open(self) -> Snapshot:
        self._path = real(self._path)
        self._thread = SerialThread("regista-sqlite")
        try:
            # Not in the thread: whoever is told to stop meanwhile must not wait for it.
            self._owner = await acquire_lock(self._path, self._patience_s)
            snapshot = await self._thread.run(self._open)
            # The start does not wait for this. The first flush does: it is behind it, in the same thread.
            assert self._writer is not None
            stretching = self._thread.run(functools.partial(stretch, self._writer, self._path))
            self._tidying = asyncio.get_running_loop().create_task(stretching, name="sqlite-stretch")
            await asyncio.sleep(0)  # the thread gets the call before any flush
            return snapshot
        except BaseException:
            await self.close()
            raise

    def _open(self) -> Snapshot:
        try:
            check_wal_has_file(self._path)
            check_wal_fits_file(self._path)
            self._writer = connection = connect(self._path)
            prepare(connection, self._path)
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self._reader = connect(self._path)
            assert self._owner is not None
            self._places = Places(self._path, self._owner)
            return read_all(connection)
        except sqlite3.Error as error:
            raise StorageError(f"cannot open {self._path}: {error}") from error

    async def write(self, batch: JournalBatch) -> None:
        if self._thread is None:
            raise StorageFailed(f"{self._path} is closed")
        statements = statements_of(batch)
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

    def _insert(self, statements: list[Statement]) -> None:
        assert self._writer is not None
        try:
            if len(statements) == 1:
                self._writer.execute(*statements[0])
            else:
                together(self._writer, statements)
        except sqlite3.Error as error:
            raise StorageFailed(f"cannot write to {self._path}: {error}") from error

    async def forget(self, job_ids: Sequence[str]) -> None:
        """Delete these jobs, where they have ended. A crash may bring them back; then they are forgotten again."""
        if self._thread is not None:
            await self._thread.run(
                functools.partial(self._forget, msgspec.json.encode(list(job_ids)).decode())
            )

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
