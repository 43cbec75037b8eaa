"""SqlBuilder: a checked query as SQL. What people wrote travels as parameters, never as text."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from ..clock import EPOCH
from .encoding import encode_json, storable_json, storable_text, without_surrogates
from .index_choice import COUNTED, IndexCondition
from .query import Field, Place
from .query.counts import Member
from .query.index import word_entry, words_in
from .query.nodes import STATUS, And, Compare, In, IsNull, Key, Kind, Node, Not, Or, StartsWith

#: No seq and no number is higher.
_HIGHEST = 1 << 62


class SqlBuilder(ABC):
    """The conditions and parameters of one statement, in one dialect."""

    #: What nothing matches, and what everything matches.
    FALSE, TRUE = "false", "true"
    #: The database itself knows which index over the columns of a job leads to the fewest rows.
    knows_columns = False
    #: Joins the index of search attributes with the jobs, in the order of the index.
    index_join = "JOIN"

    def __init__(self) -> None:
        self.params: list[Any] = []
        #: Columns whose indexes shall not be used, since another leads to fewer rows.
        self.muted: frozenset[str] = frozenset()

    # -- what each dialect does in its own way ---------------------------------------------------

    @staticmethod
    @abstractmethod
    def storable(text: str) -> str:
        """`text` as the database keeps it; the same for what is stored and what is asked."""

    @staticmethod
    @abstractmethod
    def storable_json(value: Any) -> str:
        """`value` as JSON that the database takes."""

    @abstractmethod
    def text(self, value: str) -> str:
        """A placeholder for text."""

    @abstractmethod
    def integer(self, value: int) -> str:
        """A placeholder for an integer."""

    @abstractmethod
    def bind(self, field: Field, value: Any) -> str:
        """A placeholder for a value of this field."""

    @abstractmethod
    def is_one_of(self, column: str, values: Sequence[str]) -> str:
        """Whether a column has one of these texts."""

    @abstractmethod
    def hex(self, column: str) -> str:
        """A column of bytes as hexadecimal text."""

    @abstractmethod
    def attribute(self, field: Field) -> str:
        """The search attribute's value, NULL where there is none of that type."""

    @abstractmethod
    def starts_with(self, value: str, prefix: str) -> str:
        """Whether text begins like this."""

    @abstractmethod
    def contains(self, field: Field, word: str) -> str:
        """Whether a list that is there has this word."""

    @abstractmethod
    def has_word(self, entry: str) -> str:
        """Whether the words of the job's texts have this one."""

    @abstractmethod
    def members(self, members: Sequence[Member], by: Field | None) -> str:
        """A SELECT of the group and the duration of these jobs."""

    # -- conditions ------------------------------------------------------------------------------

    def column(self, name: str) -> str:
        """A column of the job's row; without its index where that is muted."""
        return f"jobs.{name}"

    def value(self, field: Field) -> str:
        """What the job has, as something to compare and to sort by."""
        if field.column:
            return self.column(field.column)
        if field.kind is Kind.DURATION:
            return "(jobs.finished_at - jobs.created_at)"
        return self.attribute(field)

    def where(self, node: Node) -> str:
        """A condition, with SQL's own idea of unknown."""
        match node:
            case And(of):
                return f"({' AND '.join(map(self.where, of))})" if of else self.TRUE
            case Or(of):
                return f"({' OR '.join(map(self.where, of))})"
            case Not(of):
                return f"(NOT {self.where(of)})"
            case IsNull(field):
                return f"({self.value(field)} IS NULL)"
            case StartsWith(field, prefix):
                return self.starts_with(self.value(field), self.text(prefix))
            case Compare(field, operator, value):
                return self._compare(field, operator, value)
            case In(field, values):
                return self._in(field, values)

    def _compare(self, field: Field, operator: str, value: Any) -> str:
        if field.kind is Kind.TEXT:
            words = [self.has_word(word_entry(field.name, word)) for word in sorted(words_in(value))]
            return self._where_present(field, " OR ".join(words) or self.FALSE)
        if field.kind is Kind.KEYWORD_LIST:
            return self._where_present(field, self.contains(field, value))
        if field.column == STATUS.column and operator == "=":
            return self._in(field, (value,))
        return f"({self.value(field)} {operator} {self.bind(field, value)})"

    def _in(self, field: Field, values: Sequence[Any]) -> str:
        if field.kind is Kind.KEYWORD_LIST:
            return self._where_present(field, " OR ".join(self.contains(field, word) for word in values))
        if not values:
            return self.FALSE
        found = f"{self.value(field)} IN ({', '.join(self.bind(field, each) for each in values)})"
        if field.column == STATUS.column and "finished" not in values:
            found += " AND jobs.status <> 'finished'"  # lets the partial index answer
        return f"({found})"

    def _where_present(self, field: Field, condition: str) -> str:
        """The condition, unknown where the attribute is missing."""
        return f"(CASE WHEN {self.value(field)} IS NOT NULL THEN ({condition}) END)"

    # -- order -----------------------------------------------------------------------------------

    def order(self, keys: Sequence[Key]) -> str:
        """What follows ORDER BY."""
        parts = []
        for key in keys:
            if key.field.optional:
                parts.append(f"({self.value(key.field)} IS NULL)")
            parts.append(f"{self.value(key.field)} {'DESC' if key.descending else 'ASC'}")
        return ", ".join(parts)

    def order_by_start(self, table: str, keys: Sequence[Key]) -> str:
        """The same along the time of creation, in the form that an index understands."""
        way = "DESC" if keys[0].descending else "ASC"
        return f"{table}.created_at {way}, {table}.job_id {way}"

    def behind(self, keys: Sequence[Key], place: Place) -> str:
        """The condition of standing behind a place."""
        if not keys:
            return self.FALSE
        key, value = keys[0], place[0]
        rest = self.behind(keys[1:], place[1:])
        mine = self.value(key.field)
        if value is None:  # those without a value come last: only their equals may follow
            return f"({mine} IS NULL AND {rest})"
        same = f"{mine} = {self.bind(key.field, value)} AND {rest}"
        later = f"{mine} {'<' if key.descending else '>'} {self.bind(key.field, value)}"
        without = f" OR {mine} IS NULL" if key.field.optional else ""
        return f"({later}{without} OR ({same}))"

    def behind_start(self, table: str, keys: Sequence[Key], place: Place) -> str:
        """The same along the time of creation, in the form that an index understands."""
        start, job_id = (self.bind(key.field, value) for key, value in zip(keys, place, strict=True))
        way = "<" if keys[0].descending else ">"
        return f"({table}.created_at, {table}.job_id) {way} ({start}, {job_id})"

    # -- indexes ---------------------------------------------------------------------------------

    def counts(self, conditions: Sequence[IndexCondition]) -> str:
        """A SELECT of how many rows each condition leads to, up to a bound."""
        counts = (
            f"SELECT {place} AS place, (SELECT count(*) FROM (SELECT 1 FROM {self._rows_of(each)} LIMIT {COUNTED}) "
            "AS counted) AS number"
            for place, each in enumerate(conditions)
        )
        return " UNION ALL ".join(counts)

    def _rows_of(self, condition: IndexCondition) -> str:
        if condition.column:
            wanted = ", ".join(map(self.text, condition.values))
            few = " AND status <> 'finished'" if condition.column == "status" else ""
            return f"regista_jobs WHERE {condition.column} IN ({wanted}){few}"
        low, high = self.text(condition.low), self.text(condition.high)
        return f"regista_attributes WHERE name = {self.text(condition.name)} AND key BETWEEN {low} AND {high}"

    def source(self, chosen: IndexCondition | None) -> tuple[str, list[str]]:
        """What follows FROM, and the conditions that go with it."""
        if chosen is None or chosen.column:
            return "regista_jobs AS jobs", []
        name, low = self.text(chosen.name), self.text(chosen.low)
        if chosen.exact:
            met = "jobs.job_id = lead.job_id AND jobs.created_at = lead.created_at"
            source = f"regista_attributes AS lead {self.index_join} regista_jobs AS jobs ON {met}"
            return source, [f"lead.name = {name}", f"lead.key = {low}"]
        high = self.text(chosen.high)
        few = f"SELECT job_id FROM regista_attributes WHERE name = {name} AND key BETWEEN {low} AND {high}"
        return "regista_jobs AS jobs", [f"jobs.job_id IN ({few})"]


class SqliteSql(SqlBuilder):
    """SQLite: named parameters, JSON as text."""

    index_join = "CROSS JOIN"  # the index is read first, and its order kept

    def _put(self, value: Any) -> str:
        self.params.append(value)
        return f":q{len(self.params)}"

    def named(self) -> dict[str, Any]:
        """The parameters under their names."""
        return {f"q{number}": value for number, value in enumerate(self.params, 1)}

    @staticmethod
    def storable(text: str) -> str:
        return without_surrogates(text)

    @staticmethod
    def storable_json(value: Any) -> str:
        return encode_json(value).decode()

    def text(self, value: str) -> str:
        return self._put(without_surrogates(value))

    def integer(self, value: int) -> str:
        return self._put(min(value, _HIGHEST))

    def bind(self, field: Field, value: Any) -> str:
        match field.kind:
            case Kind.TIMESTAMP:
                return self._put(micros(value))
            case Kind.NUMBER:
                # Read by the same reader as what was stored, or the last bit may differ.
                return f"({self._put(f'[{value!r}]')} ->> 0)"
            case Kind.BOOL | Kind.DURATION:
                return self._put(int(value))
        return self.text(value)

    def is_one_of(self, column: str, values: Sequence[str]) -> str:
        listed = self._put(encode_json(list(values)).decode())
        return f"{column} IN (SELECT value FROM json_each({listed}))"

    def hex(self, column: str) -> str:
        return f"hex({column})"

    def column(self, name: str) -> str:
        return f"+jobs.{name}" if name in self.muted else f"jobs.{name}"

    def attribute(self, field: Field) -> str:
        path = self._put(f'$."{field.name}"')
        kind = f"json_type(jobs.search_attributes, {path})"
        value = f"jobs.search_attributes ->> {path}"
        match field.kind:
            case Kind.BOOL:
                return f"(CASE {kind} WHEN 'true' THEN 1 WHEN 'false' THEN 0 END)"
            case Kind.NUMBER:
                return f"(CASE WHEN {kind} IN ('integer', 'real') THEN {value} END)"
            case Kind.KEYWORD_LIST:
                return f"(CASE {kind} WHEN 'array' THEN {value} END)"
        return f"(CASE {kind} WHEN 'text' THEN {value} END)"

    def starts_with(self, value: str, prefix: str) -> str:
        return f"(substr({value}, 1, length({prefix})) = {prefix})"

    def contains(self, field: Field, word: str) -> str:
        path, wanted = self._put(f'$."{field.name}"'), self.text(word)
        items = f"json_each(jobs.search_attributes, {path}) AS item"
        return f"EXISTS (SELECT 1 FROM {items} WHERE item.type = 'text' AND item.value = {wanted})"

    def has_word(self, entry: str) -> str:
        return f"instr(jobs.words, {self.text(entry)}) > 0"

    def members(self, members: Sequence[Member], by: Field | None) -> str:
        listed = self._put(encode_json(list(members)).decode())
        return f"SELECT value ->> 0, value ->> 1 FROM json_each({listed})"


#: The type of a parameter of PostgreSQL's for each kind of field.
_TYPES = {
    Kind.KEYWORD: "TEXT",
    Kind.DATETIME: "TEXT",
    Kind.NUMBER: "NUMERIC",
    Kind.BOOL: "BOOLEAN",
    Kind.TIMESTAMP: "BIGINT",
    Kind.DURATION: "BIGINT",
}


class PostgresSql(SqlBuilder):
    """PostgreSQL: numbered parameters with their types, JSONB."""

    knows_columns = True

    def _put(self, value: Any, kind: str) -> str:
        self.params.append(value)
        return f"${len(self.params)}::{kind}"

    @staticmethod
    def storable(text: str) -> str:
        return storable_text(text)

    @staticmethod
    def storable_json(value: Any) -> str:
        return storable_json(value)

    def text(self, value: str) -> str:
        return self._put(storable_text(value), "TEXT")

    def integer(self, value: int) -> str:
        return self._put(min(value, _HIGHEST), "BIGINT")

    def bind(self, field: Field, value: Any) -> str:
        match field.kind:
            case Kind.NUMBER:
                value = Decimal(repr(value))
            case Kind.TIMESTAMP:
                value = micros(value)
            case _ if isinstance(value, str):
                value = storable_text(value)
        return self._put(value, _TYPES[field.kind])

    def is_one_of(self, column: str, values: Sequence[str]) -> str:
        return f"{column} = ANY({self._put([storable_text(value) for value in values], 'TEXT[]')})"

    def hex(self, column: str) -> str:
        return f"encode({column}, 'hex')"

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

    def starts_with(self, value: str, prefix: str) -> str:
        return f"starts_with({value}, {prefix})"

    def contains(self, field: Field, word: str) -> str:
        return f"(jobs.search_attributes -> {self.text(field.name)}) ? {self.text(word)}"

    def has_word(self, entry: str) -> str:
        return f"strpos(jobs.words, {self.text(entry)}) > 0"

    def members(self, members: Sequence[Member], by: Field | None) -> str:
        listed = self._put(encode_json(list(members)).decode(), "JSONB")
        kind = "TEXT" if by is None else _TYPES[by.kind]
        rows = f"jsonb_array_elements({listed}) AS row (value)"
        return f"SELECT (row.value ->> 0)::{kind}, (row.value ->> 1)::BIGINT FROM {rows}"


def micros(moment: datetime) -> int:
    """The moment in microseconds since 1970."""
    # By its parts: to divide one span by another costs three times as much.
    since = moment - EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
