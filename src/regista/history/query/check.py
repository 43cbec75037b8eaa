"""From what was written to what it means: names, types and values are checked against what is declared."""

from collections.abc import Iterable
from datetime import UTC, tzinfo
from difflib import get_close_matches
from math import isfinite

from ...errors import BadQuery
from ...model import JobStatus
from ...model.attributes import Attributes, canonical_time
from .literals import moment_of, span_of
from .nodes import (
    ALIASES,
    JOB_ID,
    KIND_OF,
    STATUS,
    SYSTEM,
    And,
    Compare,
    Field,
    In,
    IsNull,
    Key,
    Kind,
    Node,
    Not,
    Or,
    Query,
    StartsWith,
    Value,
)
from .parse import Literal, RawGroup, RawQuery, RawTest, Word, parse

#: Conditions of a query, values of an IN, and fields of an ORDER BY.
MAX_TESTS, MAX_VALUES, MAX_KEYS = 100, 1000, 5

#: Temporal's words for where a job stands. What cannot be said of a job of ours fits none.
_STATUSES: dict[str, tuple[JobStatus, ...]] = {
    "Running": tuple(status for status in JobStatus if not status.terminal),
    "Completed": (JobStatus.FINISHED,),
    "Failed": (JobStatus.FAILED,),
    "Canceled": (JobStatus.CANCELLED,),
    "Cancelled": (JobStatus.CANCELLED,),
    **dict.fromkeys(("Terminated", "ContinuedAsNew", "TimedOut"), ()),
    **{status.value: (status,) for status in JobStatus},
}
_ORDERED = frozenset({Kind.KEYWORD, Kind.NUMBER, Kind.DATETIME, Kind.TIMESTAMP, Kind.DURATION})
_EXPECTED = {
    Kind.KEYWORD: "text in quotes",
    Kind.TEXT: "words in quotes",
    Kind.KEYWORD_LIST: "text in quotes",
    Kind.NUMBER: "a number",
    Kind.BOOL: "true or false",
    Kind.DATETIME: "a time in quotes, like '2026-01-31' or '2026-01-31T12:00:00Z'",
    Kind.TIMESTAMP: "a time in quotes, like '2026-01-31' or '2026-01-31T12:00:00Z'",
    Kind.DURATION: "a length of time, like '1h30m', '90s' or a number of nanoseconds",
}


#: What people write who know the API's names and not the search's; by letters alone others would be nearer.
_MEANT = {"status": "ExecutionStatus", "blueprint": "BlueprintName", "id": "JobId", "client": "ClientName"}


def parse_query(text: str, attributes: Attributes, zone: tzinfo = UTC) -> Query:
    """The query that a text means, or BadQuery. Times without a zone are in `zone`."""
    return Checker(attributes, zone).query(parse(text))


def field_named(name: str, attributes: Attributes, at: int = 0) -> Field:
    """The field of that name, or BadQuery with the nearest that there is."""
    found = SYSTEM.get(ALIASES.get(name, name))
    if found is not None:
        return found
    kind = attributes.get(name)
    if kind is None:
        known = [*SYSTEM, *ALIASES, *sorted(attributes)]
        hint = f"did you mean {near}?" if (near := _near(name, known)) else f"known are {', '.join(known)}"
        raise BadQuery(at, "an attribute that is declared", repr(name[:64]), hint)
    return Field(name, KIND_OF[kind])


def _near(name: str, known: Iterable[str]) -> str:
    if (meant := _MEANT.get(name.casefold())) is not None:
        return meant
    folded = {each.casefold(): each for each in known}
    found = get_close_matches(name.casefold(), folded, n=1)
    return folded[found[0]] if found else ""


class Checker:
    """Checks one query. What it returns can be asked of any history."""

    def __init__(self, attributes: Attributes, zone: tzinfo) -> None:
        self._attributes = attributes
        self._zone = zone
        self._tests = 0

    def query(self, raw: RawQuery) -> Query:
        """All of it."""
        where = And(()) if raw.where is None else self._node(raw.where)
        if not raw.order:
            return Query(where)
        if len(raw.order) > MAX_KEYS:
            raise BadQuery(raw.order[MAX_KEYS].name.at, f"at most {MAX_KEYS} fields to sort by", "more")
        keys = tuple(Key(self._sortable(key.name), key.descending) for key in raw.order)
        return Query(where, (*keys, Key(JOB_ID, keys[-1].descending)))

    def _sortable(self, name: Word) -> Field:
        field = self._field(name)
        if field.kind not in (*_ORDERED, Kind.BOOL):
            raise BadQuery(
                name.at, "an attribute that can be sorted by", f"{name.text}, which is {field.kind}"
            )
        return field

    def _field(self, name: Word) -> Field:
        return field_named(name.text, self._attributes, name.at)

    def _node(self, raw: RawTest | RawGroup) -> Node:
        if isinstance(raw, RawGroup):
            parts = tuple(self._node(part) for part in raw.of)
            if raw.kind == "negated":
                return Not(parts[0])
            return And(parts) if raw.kind == "both" else Or(parts)
        self._tests += 1
        if self._tests > MAX_TESTS:
            raise BadQuery(raw.name.at, f"at most {MAX_TESTS} conditions", "more")
        node = self._test(raw, self._field(raw.name))
        return Not(node) if raw.negated else node

    def _test(self, raw: RawTest, field: Field) -> Node:
        match raw.kind:
            case "compare":
                return self._compare(raw, field)
            case "between":
                low, high = (self._value(field, each) for each in raw.values)
                self._must_be_ordered(raw, field, "BETWEEN")
                return And((Compare(field, ">=", low), Compare(field, "<=", high)))
            case "among":
                return self._among(raw, field)
            case "missing":
                return IsNull(field)
            case _:
                return self._starts(raw, field)

    def _compare(self, raw: RawTest, field: Field) -> Node:
        operator, (literal,) = raw.operator, raw.values
        if operator in ("=", "!=", "<>"):
            node = (
                self._statuses([literal])
                if field is STATUS
                else Compare(field, "=", self._value(field, literal))
            )
            return node if operator == "=" else Not(node)
        self._must_be_ordered(raw, field, operator)
        return Compare(field, operator, self._value(field, literal))

    def _must_be_ordered(self, raw: RawTest, field: Field, operator: str) -> None:
        if field.kind not in _ORDERED or field is STATUS:
            takes = "=, != and IN" if field.kind is not Kind.TEXT else "= and !="
            raise BadQuery(raw.name.at, f"{takes}, which are all that {field.name} takes", operator)

    def _among(self, raw: RawTest, field: Field) -> Node:
        if len(raw.values) > MAX_VALUES:
            raise BadQuery(
                raw.values[MAX_VALUES].at, f"at most {MAX_VALUES:,} values", f"{len(raw.values):,}"
            )
        if field is STATUS:
            return self._statuses(raw.values)
        if field.kind is Kind.TEXT:
            raise BadQuery(raw.name.at, f"= and !=, which are all that {field.name} takes", "IN")
        return In(field, tuple(dict.fromkeys(self._value(field, each) for each in raw.values)))

    def _statuses(self, literals: Iterable[Literal]) -> In:
        found: dict[Value, None] = {}
        for literal in literals:
            matches = _STATUSES.get(str(literal.value))
            if matches is None:
                near = _near(str(literal.value), _STATUSES)
                hint = f"did you mean {near}?" if near else ""
                expected = f"one of {', '.join(_STATUSES)}"
                raise BadQuery(literal.at, expected, literal.text[:40], hint)
            found |= dict.fromkeys(status.value for status in matches)
        return In(STATUS, tuple(found))

    def _starts(self, raw: RawTest, field: Field) -> Node:
        (literal,) = raw.values
        word = "LIKE" if raw.kind == "like" else "STARTS_WITH"
        if field.kind is not Kind.KEYWORD or field is STATUS:
            raise BadQuery(raw.name.at, f"a Keyword for {word}", f"{field.name}, which is none")
        prefix = str(self._value(field, literal))
        if raw.kind == "like":
            if not prefix.endswith("%") or "%" in prefix[:-1] or "_" in prefix:
                raise BadQuery(
                    literal.at,
                    "a beginning and one % at its end, as in LIKE 'abc%'",
                    literal.text[:40],
                    "no other LIKE is known; = compares whole words, and STARTS_WITH takes a beginning as it is",
                )
            prefix = prefix[:-1]
        return StartsWith(field, prefix)

    def _value(self, field: Field, literal: Literal) -> Value:
        found = self._converted(field.kind, literal.value)
        if found is None:
            raise BadQuery(literal.at, f"{_EXPECTED[field.kind]} for {field.name}", literal.text[:40])
        return found

    def _converted(self, kind: Kind, value: str | int | float | bool) -> Value | None:
        match kind, value:
            case (Kind.BOOL, bool()):
                return value
            case (_, bool()):
                return None
            case (Kind.KEYWORD | Kind.TEXT | Kind.KEYWORD_LIST, str()):
                return None if "\0" in value else value
            case (Kind.NUMBER, int()):
                return value if abs(value) < 1 << 200 else None
            case (Kind.NUMBER, float()):
                return value if isfinite(value) else None
            case (Kind.TIMESTAMP, str() | int()):
                return moment_of(value, self._zone)
            case (Kind.DATETIME, str() | int()):
                moment = moment_of(value, self._zone)
                return None if moment is None else canonical_time(moment)
            case (Kind.DURATION, str() | int()):
                return span_of(value)
            case _:
                return None
