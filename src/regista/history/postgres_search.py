"""A checked query as PostgreSQL understands it."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from .encoding import encode_json
from .leads import COUNTED, IndexCondition
from .postgres_rows import storable
from .query import Field, Place, Query
from .query.compile import Sql
from .query.counts import Member
from .query.nodes import Key, Kind

#: The type of a parameter for each kind of field.
_TYPES = {
    Kind.KEYWORD: "TEXT",
    Kind.DATETIME: "TEXT",
    Kind.NUMBER: "NUMERIC",
    Kind.BOOL: "BOOLEAN",
    Kind.TIMESTAMP: "TIMESTAMPTZ",
    Kind.DURATION: "BIGINT",
}


class PostgresSql(Sql):
    """PostgreSQL: numbered parameters with their types, JSONB, times as they are."""

    def put(self, value: Any, kind: str) -> str:
        """A placeholder for a value of a type of PostgreSQL's."""
        self.params.append(value)
        return f"${len(self.params)}::{kind}"

    def bind(self, field: Field, value: Any) -> str:
        if field.kind is Kind.NUMBER:
            value = Decimal(repr(value))
        elif isinstance(value, str):
            value = storable(value)
        return self.put(value, _TYPES[field.kind])

    def text(self, value: str) -> str:
        return self.put(storable(value), "TEXT")

    def value(self, field: Field) -> str:
        return f"jobs.{field.column}" if field.column else super().value(field)

    def attribute(self, field: Field) -> str:
        name = self.text(field.name)
        kind = f"jsonb_typeof(jobs.search_attributes -> {name})"
        text = f"(jobs.search_attributes ->> {name})"
        match field.kind:
            case Kind.BOOL:
                return f"(CASE {kind} WHEN 'boolean' THEN {text}::BOOLEAN END)"
            case Kind.NUMBER:
                return f"(CASE {kind} WHEN 'number' THEN {text}::NUMERIC END)"
            case Kind.KEYWORD_LIST:
                return f"(CASE {kind} WHEN 'array' THEN {text} END)"
        return f"(CASE {kind} WHEN 'string' THEN {text} END COLLATE \"C\")"

    def span(self) -> str:
        return "(extract(epoch FROM jobs.finished_at - jobs.created_at) * 1000000)::BIGINT"

    def starts(self, value: str, prefix: str) -> str:
        return f"starts_with({value}, {prefix})"

    def contains(self, field: Field, word: str) -> str:
        return f"(jobs.search_attributes -> {self.text(field.name)}) ? {self.text(word)}"

    def has_word(self, entry: str) -> str:
        return f"strpos(jobs.words, {self.text(entry)}) > 0"


def counting(leads: Sequence[IndexCondition]) -> tuple[str, list[Any]]:
    """How many rows each lead leads to, up to a bound: one row."""
    sql = PostgresSql()
    counts = [
        f"(SELECT count(*) FROM (SELECT 1 FROM {_rows_of(lead, sql)} LIMIT {COUNTED}) AS counted)"
        for lead in leads
    ]
    return f"SELECT {', '.join(counts)}", sql.params


def _rows_of(lead: IndexCondition, sql: PostgresSql) -> str:
    if lead.column:
        wanted = ", ".join(map(sql.text, lead.values))
        few = " AND status <> 'finished'" if lead.column == "status" else ""
        return f"regista_jobs WHERE {lead.column} IN ({wanted}){few}"
    low, high = sql.text(lead.low), sql.text(lead.high)
    return f"regista_attributes WHERE name = {sql.text(lead.name)} AND key BETWEEN {low} AND {high}"


def searching(
    template: str, query: Query, lead: IndexCondition | None, after: Place | None, limit: int
) -> tuple[str, list[Any]]:
    """The statement for the rows that fit, in order, behind a place, found along the lead; and its parameters."""
    sql = PostgresSql()
    source, filters = _source(sql, lead)
    filters.append(sql.where(query.where))
    table = "lead" if lead is not None and lead.exact else "jobs"
    if after is not None and query.by_start:
        filters.append(sql.behind_start(table, query.order, after))
    elif after is not None:
        filters.append(sql.behind(query.order, after))
    order = _along(table, query.order) if query.by_start else sql.order(query.order)
    text = template.format(
        source=source, filters=" AND ".join(filters), order=order, limit=sql.put(limit, "BIGINT")
    )
    return text, sql.params


def _source(sql: PostgresSql, lead: IndexCondition | None) -> tuple[str, list[str]]:
    if lead is None:
        return "regista_jobs AS jobs", []
    name, low = sql.text(lead.name), sql.text(lead.low)
    if lead.exact:
        met = "jobs.job_id = lead.job_id AND jobs.created_at = lead.created_at"
        source = f"regista_attributes AS lead JOIN regista_jobs AS jobs ON {met}"
        return source, [f"lead.name = {name}", f"lead.key = {low}"]
    few = f"SELECT job_id FROM regista_attributes WHERE name = {name} AND key BETWEEN {low} AND {sql.text(lead.high)}"
    return "regista_jobs AS jobs", [f"jobs.job_id IN ({few})"]


def _along(table: str, order: Sequence[Key]) -> str:
    way = "DESC" if order[0].descending else "ASC"
    return f"{table}.created_at {way}, {table}.job_id {way}"


def tallying(
    template: str,
    query: Query,
    lead: IndexCondition | None,
    by: Field | None,
    without: Sequence[str],
    beside: Sequence[Member],
    limit: int,
) -> tuple[str, list[Any]]:
    """The statement that counts what fits, and its parameters."""
    sql = PostgresSql()
    source, filters = _source(sql, lead)
    filters.append(sql.where(query.where))
    kind = "TEXT" if by is None else _TYPES[by.kind]
    text = template.format(
        source=source,
        filters=" AND ".join(filters),
        group="NULL::TEXT" if by is None else sql.value(by),
        span=sql.span(),
        beside_value=f"(row.value ->> 0)::{kind}",
        beside=sql.put(encode_json(list(beside)).decode(), "JSONB"),
        without=sql.put([storable(job_id) for job_id in without], "TEXT[]"),
        grouped=sql.put(by is not None, "BOOLEAN"),
        limit=sql.put(limit, "BIGINT"),
    )
    return text, sql.params
