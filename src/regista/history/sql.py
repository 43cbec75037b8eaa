"""SqlHistory: everything that the histories in SQLite and in PostgreSQL do alike."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar, TypeVar

from msgspec import Struct

from ..errors import StorageError
from ..model import Event, JobSummary, OutboxEntry
from ..serialization import safe_text
from .base import EntryPage
from .encoding import encode_events
from .index_choice import IndexCondition, choose_index, index_conditions
from .query import Field, Place, Query
from .query.counts import GroupRow, JobCounts, Member, counts_from
from .query.evaluate import in_order
from .rows import AttributesRow, AttributeValues, Batch, CountRow, CursorRow, EntryRow, IdRow, JobRow, pack
from .sql_builder import SqlBuilder, micros
from .superseded import to_events

R = TypeVar("R", bound=Struct)

log = logging.getLogger("regista.history")

#: Bytes of a rejected entry that are kept with the reason.
KEPT_BYTES = 64 * 1024
#: Characters of its job's id that are kept with it: the id itself may be what was too long.
KEPT_ID = 200

_COUNT = """
WITH members (value, took) AS MATERIALIZED (
    SELECT {group}, (jobs.finished_at - jobs.created_at)
    FROM {source}
    WHERE {filters}
    UNION ALL
    {beside}
),
ranked AS (
    SELECT
        value,
        took,
        count(took) OVER (PARTITION BY value) AS ended,
        row_number() OVER (PARTITION BY value ORDER BY took IS NULL, took) AS place
    FROM members
    WHERE {grouped}
),
groups AS (
    SELECT
        false AS total,
        value,
        count(*) AS jobs,
        max(ended) AS ended,
        sum(took) AS took,
        max(took) FILTER (WHERE place = (ended * 50 + 99) / 100) AS p50,
        max(took) FILTER (WHERE place = (ended * 95 + 99) / 100) AS p95
    FROM ranked
    GROUP BY value
    ORDER BY jobs DESC, value IS NULL, value
    LIMIT {limit}
),
lined AS (
    SELECT took, count(took) OVER () AS ended, row_number() OVER (ORDER BY took IS NULL, took) AS place
    FROM members
)
SELECT total, value, jobs, ended, took, p50, p95 FROM groups
UNION ALL
SELECT
    true,
    NULL,
    count(*),
    coalesce(max(ended), 0),
    sum(took),
    max(took) FILTER (WHERE place = (ended * 50 + 99) / 100),
    max(took) FILTER (WHERE place = (ended * 95 + 99) / 100)
FROM lined
"""


class EntryRejected(Exception):
    """The database does not take a batch because of what is in it, and never will."""


class SqlHistory(ABC):
    """The queries of a history, over one dialect. Subclasses open the database, write to it and run the queries."""

    #: The dialect.
    builder: ClassVar[type[SqlBuilder]]

    def __init__(self) -> None:
        #: Entries that the database rejected, since the start.
        self.rejected = 0

    @abstractmethod
    async def _fetch(self, sql: SqlBuilder, text: str, row: type[R]) -> list[R]:
        """The rows of a query; their columns are the fields of `row`, in this order."""

    @abstractmethod
    async def _write(self, batch: Batch) -> None:
        """Write a batch and move the cursor, all or nothing. EntryRejected where it can never be written."""

    @abstractmethod
    async def _reject(self, entry: OutboxEntry, job_id: str, reason: str, body: bytes) -> None:
        """Keep the entry apart and move the cursor over it, all or nothing."""

    @abstractmethod
    async def _delete(self, job_ids: Sequence[str], keys: Sequence[AttributeValues]) -> None:
        """Delete jobs, their entries, and these rows of the index, all or nothing."""

    # -- writing ---------------------------------------------------------------------------------

    async def record(self, entries: Sequence[OutboxEntry]) -> None:
        """See `HistoryStorage.record`."""
        if not entries:
            return
        try:
            await self._write(await pack(entries, self.builder))
        except EntryRejected as rejection:
            # The halves in their order: the cursor never passes over an entry that is not written yet.
            if len(entries) == 1:
                await self._keep_apart(entries[0], safe_text(str(rejection)))
                return
            middle = len(entries) // 2
            await self.record(entries[:middle])
            await self.record(entries[middle:])

    async def _keep_apart(self, entry: OutboxEntry, reason: str) -> None:
        job_id = entry.job_id[:KEPT_ID]
        storable = self.builder.storable
        await self._reject(entry, storable(job_id), storable(reason), encode_events(entry)[:KEPT_BYTES])
        self.rejected += 1
        fields = {"action": "history_rejected", "job_id": job_id, "number": entry.number}
        log.error("the history rejected an entry of job %s: %s", job_id, reason[:500], extra=fields)

    async def delete_jobs(self, job_ids: Sequence[str]) -> None:
        """See `HistoryStorage.delete_jobs`."""
        sql = self.builder()
        rows = await self._fetch(
            sql,
            "SELECT job_id, created_at, search_attributes FROM regista_jobs "
            f"WHERE {sql.is_one_of('job_id', job_ids)} AND search_attributes <> '{{}}'",
            AttributesRow,
        )
        keys = [key for row in rows for key in row.keys(self.builder)]
        await self._delete([self.builder.storable(job_id) for job_id in job_ids], keys)

    # -- reading ---------------------------------------------------------------------------------

    async def cursor(self) -> int:
        """See `HistoryStorage.cursor`."""
        return self._cursor_of(
            await self._fetch(self.builder(), "SELECT value FROM regista_cursor", CursorRow)
        )

    def _cursor_of(self, rows: Sequence[CursorRow]) -> int:
        if not rows:
            raise StorageError("the history has lost its cursor; restart the orchestrator to make a new one")
        return rows[0].value

    async def events(self, job_id: str, after_seq: int = 0, limit: int = 1000) -> list[Event]:
        """See `HistoryStorage.events`."""
        sql = self.builder()
        job, first = sql.text(job_id), sql.integer(after_seq + 1)
        rows = await self._fetch(
            sql,
            f"SELECT number, job_id, first_seq, {sql.hex('body')} AS body FROM regista_entries "
            f"WHERE job_id = {job} AND first_seq >= coalesce("
            f"(SELECT max(first_seq) FROM regista_entries WHERE job_id = {job} AND first_seq <= {first}), 0) "
            # One entry more than events asked for: the first may hold none of them.
            f"ORDER BY first_seq LIMIT {sql.integer(limit + 1)}",
            EntryRow,
        )
        found = to_events(row.entry(job_id) for row in rows)
        return [event for event in found if event.seq > after_seq][:limit]

    async def events_of_jobs(self, job_ids: Sequence[str], limit: int = 1000) -> dict[str, list[Event]]:
        """See `HistoryStorage.events_of_jobs`."""
        sql = self.builder()
        asked = {sql.storable(job_id): job_id for job_id in job_ids}
        rows = await self._fetch(
            sql,
            f"SELECT number, job_id, first_seq, {sql.hex('body')} AS body FROM regista_entries "
            f"WHERE {sql.is_one_of('job_id', list(asked))} AND first_seq <= {sql.integer(limit)} "
            "ORDER BY job_id, first_seq",
            EntryRow,
        )
        found: dict[str, list[OutboxEntry]] = {}
        for row in rows:
            job_id = asked[row.job_id]
            found.setdefault(job_id, []).append(row.entry(job_id))
        return {job_id: to_events(entries)[:limit] for job_id, entries in found.items()}

    async def entries(self, after: int, limit: int = 1000, client: str | None = None) -> EntryPage:
        """See `HistoryStorage.entries`."""
        sql = self.builder()
        body = sql.hex("entry.body")
        if client is not None:  # without the bodies of others the caller still knows how far this went
            body = f"CASE WHEN coalesce(job.client, '') = {sql.text(client)} THEN {body} END"
        rows = await self._fetch(
            sql,
            f"SELECT entry.number AS number, entry.job_id AS job_id, entry.first_seq AS first_seq, {body} AS body "
            "FROM (SELECT number, job_id, first_seq, body FROM regista_entries "
            f"WHERE number > {sql.integer(after)} ORDER BY number, job_id, first_seq LIMIT {sql.integer(limit)}"
            ") AS entry LEFT JOIN regista_jobs AS job ON job.job_id = entry.job_id",
            EntryRow,
        )
        rows.sort(key=lambda row: (row.number, row.job_id, row.first_seq))
        found = [row.entry() for row in rows if row.body is not None]
        return EntryPage(found, rows[-1].number if rows else after)

    async def search(self, query: Query, after: Place | None = None, limit: int = 100) -> list[JobSummary]:
        """See `HistoryStorage.search`."""
        sql = self.builder()
        text = search_text(sql, query, await self._index_for(query), after, limit)
        return in_order(query.order, [row.summary() for row in await self._fetch(sql, text, JobRow)])

    async def count(
        self,
        query: Query,
        by: Field | None = None,
        *,
        without: Sequence[str] = (),
        beside: Sequence[Member] = (),
        limit: int = 100,
    ) -> JobCounts:
        """See `HistoryStorage.count`."""
        sql = self.builder()
        source, filters = matching(sql, query, await self._index_for(query))
        filters.append(f"NOT {sql.is_one_of('jobs.job_id', list(without))}")
        text = _COUNT.format(
            group="CAST(NULL AS TEXT)" if by is None else sql.value(by),
            source=source,
            filters=" AND ".join(filters),
            beside=sql.members(beside, by),
            grouped=sql.FALSE if by is None else sql.TRUE,
            limit=sql.integer(limit),
        )
        return counts_from(await self._fetch(sql, text, GroupRow), by)

    async def _index_for(self, query: Query) -> IndexCondition | None:
        """The condition whose index leads to the fewest rows; None: the database decides, or walks along the time."""
        conditions = index_conditions(query)
        if self.builder.knows_columns:
            if not any(condition.name for condition in conditions):
                return None
        elif not conditions or (len(conditions) == 1 and (conditions[0].column or conditions[0].exact)):
            return conditions[0] if conditions else None
        sql = self.builder()
        rows = await self._fetch(sql, sql.counts(conditions), CountRow)
        numbers = {row.place: row.number for row in rows}
        chosen = choose_index(conditions, [numbers[place] for place in range(len(conditions))])
        return None if chosen is not None and self.builder.knows_columns and not chosen.name else chosen

    # -- retention -------------------------------------------------------------------------------

    async def expired(self, before: datetime | None, keep: int | None, limit: int = 500) -> list[str]:
        """See `HistoryStorage.expired`."""
        rows: list[IdRow] = []
        if before is not None:
            sql = self.builder()
            moment = sql.integer(micros(before))
            # What was created later cannot have ended earlier: the index bounds the walk.
            rows = await self._expired(sql, f"created_at < {moment} AND finished_at < {moment}", limit)
        if keep and not rows:
            sql = self.builder()
            newest = (
                "SELECT created_at, job_id FROM regista_jobs ORDER BY created_at DESC, job_id DESC "
                f"LIMIT 1 OFFSET {sql.integer(keep - 1)}"
            )
            rows = await self._expired(sql, f"(created_at, job_id) < ({newest})", limit)
        return [row.job_id for row in rows]

    async def _expired(self, sql: SqlBuilder, condition: str, limit: int) -> list[IdRow]:
        sql.muted = frozenset({"status"})
        return await self._fetch(
            sql,
            f"SELECT job_id FROM regista_jobs AS jobs WHERE {condition} "
            f"AND {sql.column('status')} IN ('finished', 'failed', 'cancelled') "
            f"ORDER BY created_at, job_id LIMIT {sql.integer(limit)}",
            IdRow,
        )


#: The columns that have an index for searches.
_INDEXED = frozenset({"client", "blueprint", "status"})


def matching(sql: SqlBuilder, query: Query, chosen: IndexCondition | None) -> tuple[str, list[str]]:
    """The source and the conditions of the rows that match, found along the chosen index."""
    sql.muted = _INDEXED - {chosen.column if chosen is not None else ""}
    source, filters = sql.source(chosen)
    return source, [*filters, sql.where(query.where)]


def search_text(
    sql: SqlBuilder, query: Query, chosen: IndexCondition | None, after: Place | None, limit: int
) -> str:
    """The query for the rows that match, in order, behind a place."""
    source, filters = matching(sql, query, chosen)
    table = "lead" if chosen is not None and chosen.name and chosen.exact else "jobs"
    by_start = query.by_start
    if after is not None:
        behind = sql.behind_start(table, query.order, after) if by_start else sql.behind(query.order, after)
        filters.append(behind)
    order = sql.order_by_start(table, query.order) if by_start else sql.order(query.order)
    columns = ", ".join(f"jobs.{name} AS {name}" for name in JobRow.__struct_fields__)
    condition = " AND ".join(filters)
    return f"SELECT {columns} FROM {source} WHERE {condition} ORDER BY {order} LIMIT {sql.integer(limit)}"
