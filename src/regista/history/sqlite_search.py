"""Searches as statements of SQLite: each is one statement with one row for an answer."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from .encoding import encode_json
from .leads import COUNTED, IndexCondition
from .query import Field, Place, Query
from .query.compile import SqliteSql
from .query.counts import Member
from .query.nodes import Key

#: The columns that have an index for searches.
_INDEXED = frozenset({"client", "blueprint", "status"})


class Statement(NamedTuple):
    """The parts of a query that `queries.sql` leaves open, and the parameters of all of them."""

    source: str
    filters: str
    order: str
    asked: dict[str, Any]


def counting(leads: Sequence[IndexCondition]) -> tuple[str, dict[str, Any]]:
    """How many rows each lead leads to, up to a bound: one list."""
    sql = SqliteSql()
    counts = [
        f"(SELECT count(*) FROM (SELECT 1 FROM {_rows_of(lead, sql)} LIMIT {COUNTED}))" for lead in leads
    ]
    return f"SELECT json_array({', '.join(counts)})", sql.named()


def _rows_of(lead: IndexCondition, sql: SqliteSql) -> str:
    if lead.column:
        wanted = ", ".join(sql.text(value) for value in lead.values)
        few = " AND status <> 'finished'" if lead.column == "status" else ""
        return f"jobs WHERE {lead.column} IN ({wanted}){few}"
    low, high = sql.text(lead.low), sql.text(lead.high)
    return f"attributes WHERE name = {sql.text(lead.name)} AND key BETWEEN {low} AND {high}"


def statement(query: Query, lead: IndexCondition | None, after: Place | None = None) -> Statement:
    """The rows that fit, in order, behind a place, found along the lead."""
    sql = SqliteSql()
    sql.muted = set(_INDEXED - {lead.column if lead is not None else ""})
    walks = lead is not None and bool(lead.name) and lead.exact
    source, filters = _source(sql, lead)
    filters.append(sql.where(query.where))
    table = "lead" if walks else "jobs"
    if after is not None:
        by_start = query.by_start
        filters.append(
            sql.behind_start(table, query.order, after) if by_start else sql.behind(query.order, after)
        )
    order = _along(table, query.order) if query.by_start else sql.order(query.order)
    return Statement(source, " AND ".join(filters), order, sql.named())


def _source(sql: SqliteSql, lead: IndexCondition | None) -> tuple[str, list[str]]:
    if lead is None or lead.column:
        return "jobs", []
    name, low = sql.text(lead.name), sql.text(lead.low)
    if lead.exact:
        # CROSS JOIN: the lead is read first, and its order kept.
        met = "jobs.job_id = lead.job_id AND jobs.created_at = lead.created_at"
        return f"attributes AS lead CROSS JOIN jobs ON {met}", [f"lead.name = {name}", f"lead.key = {low}"]
    few = f"SELECT job_id FROM attributes WHERE name = {name} AND key BETWEEN {low} AND {sql.text(lead.high)}"
    return "jobs", [f"jobs.job_id IN ({few})"]


def _along(table: str, order: Sequence[Key]) -> str:
    way = "DESC" if order[0].descending else "ASC"
    return f"{table}.created_at {way}, {table}.job_id {way}"


def tallying(
    query: Query,
    lead: IndexCondition | None,
    by: Field | None,
    without: Sequence[str],
    beside: Sequence[Member],
) -> tuple[str, str, str, dict[str, Any]]:
    """The source, the condition, the group and the parameters of a tally."""
    found = statement(query, lead)
    sql = SqliteSql()
    sql.params = [None] * len(found.asked)
    group = "NULL" if by is None else sql.value(by)
    asked = {**sql.named(), **found.asked}
    asked["grouped"] = by is not None
    asked |= {"without": encode_json(list(without)).decode(), "beside": encode_json(list(beside)).decode()}
    return found.source, found.filters, group, asked
