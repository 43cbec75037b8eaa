"""PostgresHistory: history on a PostgreSQL server, for orchestrators that share a store and for whoever has one anyway."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import asyncpg
import msgspec

from ..errors import HistoryUnavailable, SchemaError, StorageError
from ..model import OutboxEntry
from .rows import JOB_COLUMNS, AttributeValues, Batch, CursorRow
from .sql import EntryRejected, SqlHistory
from .sql_builder import PostgresSql, SqlBuilder

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    _Connection = PoolConnectionProxy[asyncpg.Record]

R = TypeVar("R", bound=msgspec.Struct)

log = logging.getLogger("regista.history")

#: Connections at most: one writes, the others read. Every orchestrator has as many.
MAX_CONNECTIONS = 4
#: Seconds for a connection, for a question and for a batch. Longer counts as away.
CONNECT_S, READ_S, RECORD_S = 5.0, 10.0, 20.0
#: Seconds that a start waits for a schema: another orchestrator may be changing a large one.
MIGRATE_S = 300.0
#: Names the lock under which schemas are changed, in each database: "REGH".
MIGRATION_LOCK = 0x52454748
#: Classes of SQLSTATE that pass: no connection, a server that only reads, turns that met, no room, interference.
_PASSING = ("08", "25", "40", "53", "57")
#: Classes of SQLSTATE that mean the data itself: it does not fit, or is beyond a limit. A broken constraint is not
#: among them: somebody has changed the tables, and setting everything aside would only hide that.
_REFUSED = ("22", "54")
#: How asyncpg says that a value does not fit the type of its parameter.
_REFUSALS = (asyncpg.DataError, OverflowError)

_SQL = Path(__file__).parent / "sql" / "postgres"
_RECORD = re.sub(r"(?m)^--.*\n", "", (_SQL / "record.sql").read_text())
_REJECT = """
WITH moved AS (
    UPDATE regista_cursor SET value = greatest(value, $1::BIGINT) RETURNING value
)
INSERT INTO regista_rejected (number, job_id, reason, body)
SELECT $1, $2, $3, $4 FROM moved
"""
_DELETE = """
WITH entries AS (
    DELETE FROM regista_entries WHERE job_id = ANY($1::TEXT[])
),
keys AS (
    DELETE FROM regista_attributes AS old
    USING unnest($2::TEXT[], $3::TEXT[], $4::BIGINT[], $5::TEXT[]) AS gone (name, key, created_at, job_id)
    WHERE
        old.name = gone.name AND old.key = gone.key AND old.created_at = gone.created_at AND old.job_id = gone.job_id
)
DELETE FROM regista_jobs WHERE job_id = ANY($1::TEXT[])
"""
# Which steps a database has seen. In the first schema of the search path, as everything else.
_MIGRATIONS = """
CREATE TABLE regista_migrations (
    number     INTEGER     NOT NULL PRIMARY KEY,
    name       TEXT        NOT NULL,
    applied_at TIMESTAMPTZ NOT NULL DEFAULT now()
)
"""
# Gives a history that has no store yet to this one; says whose it is now.
_CLAIM = """
INSERT INTO regista_cursor AS known (store) VALUES ($1)
ON CONFLICT (id) DO UPDATE SET store = coalesce(nullif(known.store, ''), excluded.store)
RETURNING store
"""


class PostgresHistory(SqlHistory):
    """A few connections to one database; a batch is one statement, and so one transaction and one round trip.

    A commit is answered when it is on the server's disk, so what can be read there may leave the outbox. Any
    number of recorders may write at once: they take turns at the row of the cursor, and what one finds written
    it leaves alone. While the server is away every call raises `HistoryUnavailable`, the log says so once, and
    nobody needs to be restarted.

    `uri` is `postgresql://user:password@host:port/database`; parameters behind `?` that are no options of the
    connection are settings of the server, so `?search_path=NAME` puts the tables into a schema of that name.
    `store` tells whose history this is: numbers of two stores cannot be told apart, so a second one is refused.
    """

    #: All orchestrators of a store read it.
    shared = True
    builder = PostgresSql

    def __init__(self, uri: str, store: Callable[[], Awaitable[str]] | None = None) -> None:
        super().__init__()
        self._uri = uri
        self._store = store
        #: Where it is, fit for a log: without user and password.
        self._name = re.sub(r"^\w+://(.*@)?|\?.*$", "", uri, flags=re.DOTALL)
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._away = False

    async def start(self) -> None:
        if self._pool is not None:
            return
        store = "" if self._store is None else await self._store()
        # Whoever starts us says that it waits, and for how long; that jobs go on would not be true yet.
        async with self._translated(quiet=True):
            pool = await asyncpg.create_pool(
                self._uri,
                min_size=0,
                max_size=MAX_CONNECTIONS,
                timeout=CONNECT_S,
                server_settings={"application_name": "regista"},
                init=_without_jit,
                reset=_as_it_is,
            )
        self._pool = pool
        try:
            async with self._translated(quiet=True), pool.acquire(timeout=CONNECT_S) as connection:
                await self._check(connection)
                async with connection.transaction():
                    await self._migrate(connection)
                    await self._claim(connection, store)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            async with asyncio.timeout(CONNECT_S):
                await pool.close()  # behind all that was asked before
        except (TimeoutError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            log.debug("the history %s was left without a goodbye: %r", self._name, error)
        finally:
            pool.terminate()  # what is closed by now stays so

    def _cursor_of(self, rows: Sequence[CursorRow]) -> int:
        if not rows:  # nothing was written either
            raise StorageError(f"the history {self._name}: its cursor is gone; start again to have a new one")
        return rows[0].value

    async def _write(self, batch: Batch) -> None:
        asked = (
            *_columns(batch.entries, 4),
            *_columns(batch.jobs, JOB_COLUMNS),
            *_columns(batch.attributes, 4),
            batch.cursor,
        )
        try:
            rows = await self._ask(_RECORD, *asked, timeout_s=RECORD_S)
        except StorageError as error:
            cause = error.__cause__
            if isinstance(cause, _REFUSALS) or (getattr(cause, "sqlstate", None) or "").startswith(_REFUSED):
                raise EntryRejected(str(cause)) from error
            raise
        self._cursor_of([CursorRow(row["value"]) for row in rows])

    async def _reject(self, entry: OutboxEntry, job_id: str, reason: str, body: bytes) -> None:
        await self._ask(_REJECT, entry.number, job_id, reason, body)

    async def _delete(self, job_ids: Sequence[str], keys: Sequence[AttributeValues]) -> None:
        await self._ask(_DELETE, list(job_ids), *_columns(keys, 4), timeout_s=RECORD_S)

    async def sync(self) -> int:
        """The cursor: no commit can be read before it is on the disk."""
        return await self.cursor()

    async def _fetch(self, sql: SqlBuilder, text: str, row: type[R]) -> list[R]:
        return [msgspec.convert(_plain(found), row) for found in await self._ask(text, *sql.params)]

    async def _ask(self, query: str, *asked: Any, timeout_s: float = READ_S) -> list[asyncpg.Record]:
        pool = self._pool
        if pool is None:
            raise StorageError(f"the history {self._name} is not open")
        async with self._translated(), pool.acquire(timeout=CONNECT_S) as connection:
            try:
                return await connection.fetch(query, *asked, timeout=timeout_s)
            except asyncpg.InternalClientError:
                # The server has hung up, and the client has not noticed all of it: nobody else shall have this one.
                connection.terminate()
                raise

    @asynccontextmanager
    async def _translated(self, quiet: bool = False) -> AsyncIterator[None]:
        """What asyncpg raises leaves as one of ours; `quiet`: and the log does not hear of it."""
        try:
            yield
        except asyncpg.PostgresError as error:
            if not (error.sqlstate or "").startswith(_PASSING):
                raise StorageError(f"the history {self._name}: {error}") from error
            raise self._unavailable(error, quiet) from error
        except ValueError as error:  # said of the URI, and its words may hold a part of the password
            raise StorageError(
                f"the history {self._name}: expected postgresql://user:password@host:port/database, with "
                "%40 for @, %3A for : and %2F for / in user and password, and options that PostgreSQL knows"
            ) from error
        except (OSError, TimeoutError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
            raise self._unavailable(error, quiet) from error
        if self._away:
            self._away = False
            log.info("the history %s answers again", self._name, extra={"action": "history_back"})

    def _unavailable(self, error: Exception, quiet: bool) -> HistoryUnavailable:
        words = str(error) or type(error).__name__
        if not self._away and not quiet:
            self._away = True
            log.warning(
                "the history %s does not answer: %s; jobs go on, and the outbox keeps what happens to them",
                self._name,
                words,
                extra={"action": "history_away"},
            )
        return HistoryUnavailable(f"the history {self._name} does not answer: {words}")

    async def _check(self, connection: "_Connection") -> None:
        encoding, fsync = await connection.fetchrow(
            "SELECT current_setting('server_encoding'), current_setting('fsync')"
        ) or ("", "")
        if encoding != "UTF8":
            raise SchemaError(f"the history {self._name}: expected a database in UTF8, got {encoding}")
        if fsync != "on":
            log.warning(
                "the history %s runs with fsync=%s: a power cut there may cost what has left the outbox",
                self._name,
                fsync,
                extra={"action": "history_fsync"},
            )

    async def _migrate(self, connection: "_Connection") -> None:
        """Bring the schema to the newest, whole or not at all, while nobody else does."""
        await connection.execute("SELECT pg_advisory_xact_lock($1)", MIGRATION_LOCK, timeout=MIGRATE_S)
        if not await connection.fetchval("SELECT to_regclass('regista_migrations') IS NOT NULL"):
            await connection.execute(_MIGRATIONS)
        version = await connection.fetchval("SELECT coalesce(max(number), 0) FROM regista_migrations")
        steps = _migrations()
        if version > len(steps):
            raise SchemaError(
                f"the history {self._name}: expected schema {len(steps)} or older, got {version}; "
                "a newer Regista wrote it"
            )
        for number, step in enumerate(steps[version:], version + 1):
            await connection.execute(step.read_text(), timeout=MIGRATE_S)
            await connection.execute(
                "INSERT INTO regista_migrations (number, name) VALUES ($1, $2)", number, step.stem
            )

    async def _claim(self, connection: "_Connection", store: str) -> None:
        known = await connection.fetchval(_CLAIM, store)
        if store and known != store:
            raise SchemaError(
                f"the history {self._name} belongs to another store: expected {store!r}, got {known!r}; give this "
                "one a database, or a schema (?search_path=NAME), of its own. If the other store is gone for "
                "good, DELETE FROM regista_cursor hands the history over"
            )


def _columns(rows: Sequence[Sequence[Any]], count: int) -> list[list[Any]]:
    """The rows as lists of their columns."""
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(count)]


def _plain(row: asyncpg.Record) -> list[Any]:
    """Numbers of PostgreSQL's as those of Python."""
    return [_number(value) if isinstance(value, Decimal) else value for value in row]


def _number(value: Decimal) -> int | float:
    whole = value == value.to_integral_value() and abs(value) < 1 << 63
    return int(value) if whole else float(value)


async def _without_jit(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    """A second of compiling for a query of milliseconds: what the server guesses of its cost is far off for new tables."""
    await connection.execute("SET jit = off")


async def _as_it_is(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    """Nothing is left behind in a connection of ours, so giving it back need not cost a second round trip."""


def _migrations() -> list[Path]:
    """The steps in their order; the first takes an empty schema to version 1."""
    return sorted(_SQL.glob("[0-9]*.sql"))


async def server_version(uri: str) -> str:
    """What answers there, by its own word. Only looks."""
    async with PostgresHistory(uri)._translated(quiet=True):
        connection = await asyncpg.connect(uri, timeout=CONNECT_S)
        try:
            return str(await connection.fetchval("SHOW server_version"))
        finally:
            await connection.close()
