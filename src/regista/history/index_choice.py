"""Chooses the index that takes a search to the fewest rows.

Databases guess that from what they know of columns, and of search attributes they know nothing. So each
condition that an index can answer is counted, up to a bound, before the search; the one with the fewest is used,
and the rest of the query is checked on the rows that it leads to.
"""

from collections.abc import Sequence

from msgspec import Struct

from ..model.attributes import MAX_KEYWORD
from .query.index import key_of
from .query.nodes import Compare, In, Kind, Node, Query, StartsWith, conjuncts

#: Counted no further: beyond that a lead is worth little, and counting costs milliseconds.
COUNTED = 10_000
#: Columns with an index of their own, each in the order of creation.
_COLUMNS = ("status", "blueprint", "client")
#: What is rarest among what is common; a search attribute comes second.
_RARE = ("status", "", "blueprint", "client")
#: Behind every key that begins like another.
_LAST = "\U0010ffff"


class IndexCondition(Struct, frozen=True):
    """A condition that an index answers. A key leads in the order of creation; a range of keys does not."""

    #: The column, for one of the job's own; else empty.
    column: str = ""
    values: tuple[str, ...] = ()
    #: The search attribute, and the keys from the lowest to the highest.
    name: str = ""
    low: str = ""
    high: str = ""

    @property
    def exact(self) -> bool:
        """One key, so the order of creation is kept."""
        return self.low == self.high


def index_conditions(query: Query) -> list[IndexCondition]:
    """Everything that could lead."""
    found = [_condition(node) for node in conjuncts(query.where)]
    return [condition for condition in found if condition is not None]


def _condition(node: Node) -> IndexCondition | None:
    if isinstance(node, Compare | In) and node.field.column in _COLUMNS:
        values = node.values if isinstance(node, In) else (node.value,)
        if not (isinstance(node, Compare) and node.operator != "=") and "finished" not in values and values:
            return IndexCondition(column=node.field.column, values=tuple(map(str, values)))
        return None
    field = getattr(node, "field", None)
    if field is None or field.column or field.kind in (Kind.TEXT, Kind.DURATION, Kind.BOOL):
        return None
    bounds = _bounds(node)
    return None if bounds is None else IndexCondition(name=field.name, low=bounds[0], high=bounds[1])


def _bounds(node: Node) -> tuple[str, str] | None:
    """The lowest and the highest key of what fits; other keys may lie between them."""
    if isinstance(node, StartsWith):
        low = key_of(node.prefix[:MAX_KEYWORD]) or ""
        return low, low + _LAST
    if isinstance(node, In):
        keys = sorted(key for value in node.values if (key := key_of(value)) is not None)
        return (keys[0], keys[-1]) if len(keys) == len(node.values) else None
    if not isinstance(node, Compare) or (key := key_of(node.value)) is None:
        return None
    kind = key[0]
    match node.operator:
        case "=":
            return key, key
        case "<" | "<=":
            return kind, key
    return key, kind + _LAST


def choose_index(conditions: Sequence[IndexCondition], counts: Sequence[int]) -> IndexCondition | None:
    """The one that leads to the fewest; None: walk along the time of creation.

    Beyond the bound all are the same: then one that keeps the order, so that the first page comes without a look
    at the rest.
    """
    few = [(count, at) for at, count in enumerate(counts) if count < COUNTED]
    if few:
        return conditions[min(few)[1]]
    ordered = [each for each in conditions if (each.exact if each.name else len(each.values) == 1)]
    return min(ordered, key=lambda each: _RARE.index(each.column), default=None)
