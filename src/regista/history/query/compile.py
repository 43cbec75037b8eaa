"""Compile: a checked query as SQL. Whatever people wrote travels as a parameter, never as text."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from .index import word_entry, words_in
from .nodes import STATUS, And, Compare, Field, In, IsNull, Key, Kind, Node, Not, Or, Place, StartsWith


class Sql(ABC):
    """Conditions and orders in one dialect, and the parameters that belong to them."""

    #: What nothing fits, and what everything fits.
    FALSE, TRUE = "false", "true"

    def __init__(self) -> None:
        self.params: list[Any] = []
        #: Columns whose indexes shall not be used, since another leads to fewer rows.
        self.muted: set[str] = set()

    # -- what dialects have each their own way of ------------------------------------------------

    @abstractmethod
    def bind(self, field: Field, value: Any) -> str:
        """A placeholder for a value of this field."""

    @abstractmethod
    def text(self, value: str) -> str:
        """A placeholder for text."""

    @abstractmethod
    def attribute(self, field: Field) -> str:
        """The search attribute's value, NULL where there is none of that type."""

    @abstractmethod
    def span(self) -> str:
        """How long the job took, in whole microseconds; NULL until it has ended."""

    @abstractmethod
    def starts(self, value: str, prefix: str) -> str:
        """Whether text begins like this."""

    @abstractmethod
    def contains(self, field: Field, word: str) -> str:
        """Whether a list that is there has this word."""

    @abstractmethod
    def has_word(self, entry: str) -> str:
        """Whether the words of the job's texts have this one."""

    # -- conditions ------------------------------------------------------------------------------

    def value(self, field: Field) -> str:
        """What the job has, as something to compare and to sort by."""
        if field.column:
            return f"+jobs.{field.column}" if field.column in self.muted else f"jobs.{field.column}"
        return self.span() if field.kind is Kind.DURATION else self.attribute(field)

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
                return self.starts(self.value(field), self.text(prefix))
            case Compare(field, operator, value):
                return self._is(field, operator, value)
            case In(field, values):
                return self._among(field, values)

    def _is(self, field: Field, operator: str, value: Any) -> str:
        if field.kind is Kind.TEXT:
            words = [self.has_word(word_entry(field.name, word)) for word in sorted(words_in(value))]
            return self._where_there(field, " OR ".join(words) or self.FALSE)
        if field.kind is Kind.KEYWORD_LIST:
            return self._where_there(field, self.contains(field, value))
        if field.column == STATUS.column:
            return self._among(field, (value,))
        return f"({self.value(field)} {operator} {self.bind(field, value)})"

    def _among(self, field: Field, values: Sequence[Any]) -> str:
        if field.kind is Kind.KEYWORD_LIST:
            return self._where_there(field, " OR ".join(self.contains(field, word) for word in values))
        if not values:
            return self.FALSE
        found = f"{self.value(field)} IN ({', '.join(self.bind(field, each) for each in values)})"
        if field.column == STATUS.column and "finished" not in values:
            found += " AND jobs.status <> 'finished'"  # lets the index of those few answer
        return f"({found})"

    def _where_there(self, field: Field, condition: str) -> str:
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


class SqliteSql(Sql):
    """SQLite: named parameters, JSON as text, times as seconds."""

    def _put(self, value: Any) -> str:
        self.params.append(value)
        return f":q{len(self.params)}"

    def named(self) -> dict[str, Any]:
        """The parameters under their names."""
        return {f"q{number}": value for number, value in enumerate(self.params, 1)}

    def bind(self, field: Field, value: Any) -> str:
        match field.kind:
            case Kind.TIMESTAMP:
                value = value.timestamp() if isinstance(value, datetime) else value
                # Read by the same reader as what was stored, or the last bit may differ.
                return f"({self._put(f'[{value!r}]')} ->> 0)"
            case Kind.NUMBER:
                return f"({self._put(f'[{value!r}]')} ->> 0)"
            case Kind.BOOL:
                return self._put(int(value))
        return self._put(value)

    def text(self, value: str) -> str:
        return self._put(value)

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

    def span(self) -> str:
        return "CAST(round((jobs.finished_at - jobs.created_at) * 1e6) AS INTEGER)"

    def starts(self, value: str, prefix: str) -> str:
        return f"(substr({value}, 1, length({prefix})) = {prefix})"

    def contains(self, field: Field, word: str) -> str:
        path, wanted = self._put(f'$."{field.name}"'), self._put(word)
        items = f"json_each(jobs.search_attributes, {path}) AS item"
        return f"EXISTS (SELECT 1 FROM {items} WHERE item.type = 'text' AND item.value = {wanted})"

    def has_word(self, entry: str) -> str:
        return f"instr(jobs.words, {self._put(entry)}) > 0"
