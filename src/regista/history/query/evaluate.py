"""Evaluate: the reference. What it finds among summaries, SQL finds in a database."""

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import cmp_to_key
from operator import eq, ge, gt, le, lt
from typing import Any

from ...model import JobSummary
from .index import words_in
from .nodes import And, Compare, Field, In, IsNull, Key, Kind, Node, Not, Or, Place, Query, StartsWith

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {"=": eq, "<": lt, "<=": le, ">": gt, ">=": ge}
_MICROSECOND = timedelta(microseconds=1)


def value_of(field: Field, row: JobSummary) -> Any:
    """The job's value, None where it has none or one of another type. Attributes are as a history keeps them."""
    if field.column:
        return getattr(row, field.column)
    if field.kind is Kind.DURATION:
        return None if row.finished_at is None else (row.finished_at - row.created_at) // _MICROSECOND
    value = row.search_attributes.get(field.name)
    match field.kind, value:
        case (Kind.BOOL, bool()):
            return value
        case (_, bool()):
            return None
        case (Kind.NUMBER, int() | float()) | (Kind.KEYWORD | Kind.TEXT | Kind.DATETIME, str()):
            return value
        case (Kind.KEYWORD_LIST, list() | tuple()):
            return value
    return None


def matches(node: Node, row: JobSummary) -> bool | None:
    """Whether the job fits; None is unknown, as in SQL."""
    match node:
        case And(of):
            return _all(matches(part, row) for part in of)
        case Or(of):
            return _not(_all(_not(matches(part, row)) for part in of))
        case Not(of):
            return _not(matches(of, row))
        case IsNull(field):
            return value_of(field, row) is None
    value = value_of(node.field, row)
    return None if value is None else _has(node, value)


def _has(node: Compare | In | StartsWith, value: Any) -> bool:
    if isinstance(node, StartsWith):
        return bool(value.startswith(node.prefix))
    kind = node.field.kind
    wanted = node.values if isinstance(node, In) else (node.value,)
    if kind is Kind.TEXT:
        return not words_in(value).isdisjoint(words_in(str(wanted[0])))
    if kind is Kind.KEYWORD_LIST:
        return any(word in value for word in wanted)
    if isinstance(node, In):
        return value in wanted
    return _COMPARE[node.operator](value, node.value)


def _all(parts: Iterable[bool | None]) -> bool | None:
    unknown = False
    for part in parts:
        if part is False:
            return False
        unknown |= part is None
    return None if unknown else True


def _not(part: bool | None) -> bool | None:
    return None if part is None else not part


def sort_position(order: Sequence[Key], row: JobSummary) -> Place:
    """Where the job stands in a list of this order."""
    return tuple(value_of(key.field, row) for key in order)


def comes_after(order: Sequence[Key], one: Place, other: Place) -> int:
    """Below 0 when `one` comes before `other`, above 0 when it comes after it."""
    for key, left, right in zip(order, one, other, strict=True):
        if left == right:
            continue
        if left is None or right is None:
            return 1 if left is None else -1
        return 1 if (left < right) == key.descending else -1
    return 0


def select_matching(
    query: Query, rows: Iterable[JobSummary], after: Place | None = None, limit: int | None = None
) -> list[JobSummary]:
    """Those that fit, in order, behind a place."""
    order = query.order
    found = [(sort_position(order, row), row) for row in rows if matches(query.where, row)]
    if after is not None:
        found = [each for each in found if comes_after(order, each[0], after) > 0]
    found.sort(key=_sorting(order))
    return [row for _, row in found[:limit]]


def in_order(order: Sequence[Key], rows: Iterable[JobSummary]) -> list[JobSummary]:
    """The rows, sorted."""
    return [row for _, row in sorted(((sort_position(order, row), row) for row in rows), key=_sorting(order))]


def _sorting(order: Sequence[Key]) -> Callable[[tuple[Place, JobSummary]], Any]:
    return cmp_to_key(lambda one, other: comes_after(order, one[0], other[0]))
