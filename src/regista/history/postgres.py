"""PostgresHistory: history on a PostgreSQL server, for orchestrators that share a store and for whoever has one anyway."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import msgspec

from ..errors import HistoryUnavailable, SchemaError, StorageError
from ..model import Event, JobSummary, OutboxEntry
from .base import EntryPage, Place
from .encoding import decode_events
from .indexed import Indexed
from .leads import IndexCondition, best, leads_of
from .postgres_rows import Keys, entry_of, pack, storable, summary_of
from .postgres_search import counting, searching, tallying
from .query import Field, Query
from .query import Place as SearchPlace
from .query.counts import GroupRow, JobCounts, Member, counts_from
from .query.index import keys_of, text_index
from .setting_aside import KEPT_ID, Refused, record_sparing, shown_entry
from .superseded import to_events

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    _Connection = PoolConnectionProxy[asyncpg.Record]

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
#: The step of the schema that brought an index of search attributes.
SEARCHABLE_FROM = 2
#: No seq and no number is higher.
_HIGHEST = 1 << 62

_SQL = Path(__file__).parent / "sql" / "postgres"
#: Each query of queries.sql under its name, without the sentence that explains it.
_QUERIES = dict(
    re.findall(r"(?m)^-- name: (\w+)\n(?:--.*\n)+((?:(?!--).*\n)+)", (_SQL / "queries.sql").read_text())
)


class PostgresHistory:
    """A few connections to one database; a batch is one statement, and so one transaction and one round trip.

    A commit is answered when it is on the server's disk, so what can be read there may leave the outbox. Any
    number of recorders may write at once: they take turns at the row of the cursor, and what one finds written
    it leaves alone. While the server is away every call raises `HistoryUnavailable`, the log says so once, and
    nobody needs to be restarted.

    `uri` is `postgresql://user:password@host:port/database`; parameters behind `?` that are no options of the
    connection are settings of the server, so `?search_path=NAME` puts the tables into a schema of that name.
    `store` tells whose history this is: numbers of two stores cannot be told apart, so a second one is refused.
    """

    def __init__(self, uri: str, store: Callable[[], Awaitable[str]] | None = None) -> None:
        self._uri = uri
        self._store = store
        #: Where it is, fit for a log: without user and password.
        self._name = re.sub(r"^\w+://(.*@)?|\?.*$", "", uri, flags=re.DOTALL)
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._away = False
        self._indexed = Indexed()
        #: Entries that the server refused, since the start.
        self.set_aside = 0

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

    async def cursor(self) -> int:
        return self._cursor_in(await self._ask(_QUERIES["cursor"]))

    async def record(self, entries: Sequence[OutboxEntry]) -> None:
        if entries:
            await record_sparing(self._write, self._set_aside, entries)

    async def _write(self, entries: Sequence[OutboxEntry]) -> None:
        batch, news = await pack(entries, self._indexed)
        try:
            rows = await self._ask(_QUERIES["record"], *batch.arguments(), timeout_s=RECORD_S)
        except StorageError as error:
            cause = error.__cause__
            if isinstance(cause, _REFUSALS) or (getattr(cause, "sqlstate", None) or "").startswith(_REFUSED):
                raise Refused(str(cause)) from error
            raise
        self._cursor_in(rows)
        self._indexed.written(news)

    async def _set_aside(self, entry: OutboxEntry, reason: str) -> None:
        kept = (storable(entry.job_id[:KEPT_ID]), storable(reason), shown_entry(entry))
        await self._ask(_QUERIES["set_aside"], entry.number, *kept)
        self.set_aside += 1

    def _cursor_in(self, rows: list[asyncpg.Record]) -> int:
        if not rows:  # nothing was written either
            raise StorageError(f"the history {self._name}: its cursor is gone; start again to have a new one")
        return int(rows[0]["value"])

    async def sync(self) -> int:
        """The cursor: no commit can be read before it is on the disk."""
        return await self.cursor()

    async def events(self, job_id: str, after_seq: int = 0, limit: int = 1000) -> list[Event]:
        rows = await self._ask(_QUERIES["events"], storable(job_id), min(after_seq, _HIGHEST), limit)
        told = to_events(entry_of(job_id, *row) for row in rows)
        return [event for event in told if event.seq > after_seq][:limit]

    async def events_of_jobs(self, job_ids: Sequence[str], limit: int = 1000) -> dict[str, list[Event]]:
        asked = {storable(job_id): job_id for job_id in job_ids}
        found: dict[str, list[OutboxEntry]] = {}
        for stored, first_seq, body in await self._ask(_QUERIES["stories"], list(asked), limit):
            found.setdefault(asked[stored], []).append(entry_of(asked[stored], first_seq, body))
        return {job_id: to_events(told)[:limit] for job_id, told in found.items()}

    async def entries(self, after: int, limit: int = 1000, client: str | None = None) -> EntryPage:
        wanted = None if client is None else storable(client)
        rows = await self._ask(_QUERIES["entries"], min(after, _HIGHEST), limit, wanted)
        found = [
            OutboxEntry(number, job_id, first_seq, decode_events(body))
            for number, job_id, first_seq, body in rows
            if body is not None
        ]
        return EntryPage(found, rows[-1]["number"] if rows else after)

    async def summary(self, job_id: str) -> JobSummary | None:
        rows = await self._ask(_QUERIES["summaries"].format(filters="job_id = $2"), 1, storable(job_id))
        return summary_of(dict(rows[0])) if rows else None

    async def summaries(
        self,
        *,
        client: str | None = None,
        blueprint: str | None = None,
        status: str | None = None,
        before: Place | None = None,
        limit: int = 100,
    ) -> list[JobSummary]:
        asked: list[Any] = [limit]
        filters = ["true"]
        for column, value in (("client", client), ("blueprint", blueprint), ("status", status)):
            if value is not None:
                asked.append(storable(value))
                filters.append(f"{column} = ${len(asked)}")
        if status is not None and status != "finished":
            filters.append("status <> 'finished'")  # lets the partial index answer
        if before is not None:
            asked += [before[0], storable(before[1])]
            filters.append(f"(created_at, job_id) < (${len(asked) - 1}, ${len(asked)})")
        rows = await self._ask(_QUERIES["summaries"].format(filters=" AND ".join(filters)), *asked)
        return [summary_of(dict(row)) for row in rows]

    async def search(
        self, query: Query, after: SearchPlace | None = None, limit: int = 100
    ) -> list[JobSummary]:
        text, asked = searching(_QUERIES["search"], query, await self._lead(query), after, limit)
        return [summary_of(dict(row)) for row in await self._ask(text, *asked)]

    async def _lead(self, query: Query) -> IndexCondition | None:
        # Of columns the server knows more than we do; of search attributes it knows nothing.
        leads = leads_of(query)
        if not any(lead.name for lead in leads):
            return None
        text, asked = counting(leads)
        (row,) = await self._ask(text, *asked)
        chosen = best(leads, list(row))
        return chosen if chosen is not None and chosen.name else None

    async def count(
        self,
        query: Query,
        by: Field | None = None,
        *,
        without: Sequence[str] = (),
        beside: Sequence[Member] = (),
        limit: int = 100,
    ) -> JobCounts:
        lead = await self._lead(query)
        text, asked = tallying(_QUERIES["tally"], query, lead, by, without, beside, limit)
        rows = await self._ask(text, *asked)
        return counts_from([msgspec.convert(_plain(row), GroupRow) for row in rows], by)

    async def expired(self, before: datetime | None, keep: int | None, limit: int = 500) -> list[str]:
        rows: list[asyncpg.Record] = []
        if before is not None:
            rows = await self._ask(_QUERIES["expired_by_age"], before, limit)
        if keep and not rows:
            rows = await self._ask(_QUERIES["expired_by_count"], keep, limit)
        return [row["job_id"] for row in rows]

    async def forget(self, job_ids: Sequence[str]) -> None:
        gone = [storable(job_id) for job_id in job_ids]
        keys = Keys([], [], [], [])
        for job_id, created_at, attributes in await self._ask(_QUERIES["attributes"], gone):
            keys.add(job_id, created_at, keys_of(msgspec.json.decode(attributes)))
        await self._ask(_QUERIES["forget"], gone, *keys, timeout_s=RECORD_S)
        self._indexed.forget(job_ids)

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
            await connection.execute(_QUERIES["migrations"])
        version = await connection.fetchval(_QUERIES["version"])
        steps = _migrations()
        if version > len(steps):
            raise SchemaError(
                f"the history {self._name}: expected schema {len(steps)} or older, got {version}; "
                "a newer Regista wrote it"
            )
        for number, step in enumerate(steps[version:], version + 1):
            await connection.execute(step.read_text(), timeout=MIGRATE_S)
            if number == SEARCHABLE_FROM:
                await self._index(connection)
            await connection.execute(_QUERIES["migrated"], number, step.stem)

    async def _index(self, connection: "_Connection") -> None:
        """What leads to the jobs that were recorded before there was an index."""
        for job_id, created_at, text in await connection.fetch(_QUERIES["unindexed"], timeout=MIGRATE_S):
            attributes = msgspec.json.decode(text)
            pairs = list(keys_of(attributes))
            names, keys = [name for name, _ in pairs], [storable(key) for _, key in pairs]
            words = storable(text_index(attributes))
            await connection.execute(_QUERIES["index"], names, keys, created_at, job_id, words)

    async def _claim(self, connection: "_Connection", store: str) -> None:
        known = await connection.fetchval(_QUERIES["claim"], store)
        if store and known != store:
            raise SchemaError(
                f"the history {self._name} belongs to another store: expected {store!r}, got {known!r}; give this "
                "one a database, or a schema (?search_path=NAME), of its own. If the other store is gone for "
                "good, DELETE FROM regista_cursor hands the history over"
            )


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
