"""Conditions: the text of `.when(...)`, parsed against a whitelist and never evaluated as Python.

    condition  =  condition and condition  |  condition or condition  |  not condition  |  atom
    atom       =  value (== != < <= > >= in, not in) value ...  |  lookup is [not] None  |  value
    value      =  literal  |  lookup
    lookup     =  context.field, then any number of .name and [key]
    literal    =  text, number, True, False, None, and lists, tuples, sets and dicts of literals

`.name` on a dict reads the item of that name. An atom that reads something missing, or that compares
what cannot be compared (`'a' < 1`), is false as a whole: so `context.initial_data.x != 1` is false when
there is no `x`, and `not context.initial_data.x` is true. A condition reads the job and its client, never
a service: the same job takes the same way each time.
"""

import ast
import operator
from collections.abc import Callable
from typing import Any, NoReturn

from msgspec import Struct

from ..errors import ActionError, ConditionError
from .names import did_you_mean

#: What a condition may read of the context: all of it but `actions` and `data_stores`.
FIELDS = frozenset(
    {
        "aggregation_results",
        "attempt",
        "blueprint",
        "client",
        "current_state",
        "initial_data",
        "job_id",
        "parent_id",
        "search_attributes",
        "state_history",
        "tracing_context",
        "visit",
        "webhook_url",
    }
)
#: Longer or deeper is a program, and a program belongs in a handler.
MAX_LENGTH = 2_000
MAX_DEPTH = 40

_ALLOWED = (
    "allowed are comparisons, in, is None, and/or/not, literals, and .name or [key] on `context`, "
    "such as context.initial_data.kind == 'video'"
)


class Condition:
    """A checked condition. `holds(context)` never raises."""

    __slots__ = ("_tree", "text")

    def __init__(self, text: str, tree: ast.expr) -> None:
        self.text = text
        self._tree = tree

    @classmethod
    def parse(cls, text: str) -> "Condition":
        """Checks the text once. ConditionError says what was found, where, and what is allowed."""
        if not isinstance(text, str):
            raise ConditionError(f"condition: expected a str, got {text!r}")
        stripped = text.strip()
        if not stripped or len(stripped) > MAX_LENGTH:
            raise ConditionError(f"condition: expected 1 to {MAX_LENGTH} characters, got {len(stripped)}")
        try:
            tree = ast.parse(stripped, mode="eval")
        except SyntaxError as error:
            raise ConditionError(
                f"condition {stripped!r}: {error.msg} at column {error.offset or 1}; {_ALLOWED}"
            ) from None
        except (ValueError, MemoryError, RecursionError) as error:
            raise ConditionError(f"condition {stripped!r}: cannot be parsed ({error}); {_ALLOWED}") from None
        return cls(stripped, _Checker(stripped).condition(tree.body, 0))

    def holds(self, context: Any) -> bool:
        """Whether the condition is true for this job."""
        return _holds(self._tree, context)

    def __repr__(self) -> str:
        return f"Condition({self.text!r})"


# -- evaluation --------------------------------------------------------------------------------------

_OPERATORS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, container: item in container,
    ast.NotIn: lambda item, container: item not in container,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
#: What reading and comparing a client's data can raise. Each makes the atom false.
_FALSE = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError, ActionError)


def _holds(node: ast.expr, context: Any) -> bool:
    if isinstance(node, ast.BoolOp):
        parts = (_holds(part, context) for part in node.values)
        return all(parts) if isinstance(node.op, ast.And) else any(parts)
    if isinstance(node, ast.UnaryOp):
        return not _holds(node.operand, context)
    try:
        return bool(_value(node, context))
    except _FALSE:
        return False


def _value(node: ast.expr, context: Any) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Attribute(value=ast.Name(), attr=field):
            return getattr(context, field)
        case ast.Attribute(value=inner, attr=name):
            return _member(_value(inner, context), name)
        case ast.Subscript(value=inner, slice=ast.Constant(value=key)):
            return _item(_value(inner, context), key)
        case ast.Compare(left=left, ops=ops, comparators=others):
            values = [_value(part, context) for part in (left, *others)]
            pairs = zip(ops, values, values[1:], strict=False)
            return all(_OPERATORS[type(op)](one, other) for op, one, other in pairs)
    raise AssertionError(node)  # the checker lets nothing else pass


def _member(value: Any, name: str) -> Any:
    """`.name` of a client's data: an item of a dict, or a field of one of our records.

    No other object has members here, so no method or property of a foreign class is ever reached.
    """
    if isinstance(value, dict):
        return value[name]
    if isinstance(value, Struct) and name in value.__struct_fields__:
        return getattr(value, name)
    raise LookupError(name)


def _item(value: Any, key: Any) -> Any:
    if isinstance(value, dict | list | tuple | str):
        return value[key]
    raise LookupError(key)


# -- checks ------------------------------------------------------------------------------------------


class _Checker:
    """Checks the tree of one condition and replaces its literals by their values."""

    def __init__(self, text: str) -> None:
        self._text = text

    def condition(self, node: ast.expr, depth: int) -> ast.expr:
        if depth > MAX_DEPTH:
            self._refuse(node, "too deep a nesting")
        if isinstance(node, ast.BoolOp):
            return ast.BoolOp(node.op, [self.condition(part, depth + 1) for part in node.values])
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return ast.UnaryOp(node.op, self.condition(node.operand, depth + 1))
        return self._comparison(node) if isinstance(node, ast.Compare) else self._operand(node)

    def _comparison(self, node: ast.Compare) -> ast.expr:
        nodes = [node.left, *node.comparators]
        for op, left, right in zip(node.ops, nodes, nodes[1:], strict=False):
            if isinstance(op, ast.Is | ast.IsNot) and not (_is_none(left) or _is_none(right)):
                self._refuse(right, "`is` with something other than None")
        left, *others = [self._operand(part) for part in nodes]
        return ast.Compare(left, node.ops, others)

    def _operand(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Attribute | ast.Subscript | ast.Name):
            return self._lookup(node)
        return ast.Constant(self._literal(node))

    def _lookup(self, node: ast.expr, depth: int = 0) -> ast.expr:
        if depth > MAX_DEPTH:
            self._refuse(node, "too deep a nesting")
        if isinstance(node, ast.Attribute):
            if node.attr.startswith("_"):
                self._refuse(node, f"the private name {node.attr!r}")
            if isinstance(node.value, ast.Name):
                self._check_field(node, node.value)
                return node
            return ast.Attribute(self._lookup(node.value, depth + 1), node.attr, node.ctx)
        if isinstance(node, ast.Subscript):
            key = ast.Constant(self._literal(node.slice))
            return ast.Subscript(self._lookup(node.value, depth + 1), key, node.ctx)
        if isinstance(node, ast.Name):
            found = "`context` without a field" if node.id == "context" else f"the name {node.id!r}"
            self._refuse(node, found)
        self._refuse(node, _kind(node))

    def _check_field(self, node: ast.Attribute, root: ast.Name) -> None:
        if root.id != "context":
            self._refuse(root, f"the name {root.id!r}")
        if node.attr not in FIELDS:
            known = f"a condition can read {', '.join(sorted(FIELDS))}"
            self._refuse(node, f"context.{node.attr}{did_you_mean(node.attr, FIELDS)}", known)

    def _literal(self, node: ast.expr, depth: int = 0) -> Any:
        if depth > MAX_DEPTH:
            self._refuse(node, "too deep a nesting")
        if isinstance(node, ast.Constant) and isinstance(node.value, str | int | float | None):
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            return self._signed(node)
        if isinstance(node, ast.List):
            return [self._literal(item, depth + 1) for item in node.elts]
        if isinstance(node, ast.Tuple):
            return tuple(self._literal(item, depth + 1) for item in node.elts)
        try:
            if isinstance(node, ast.Set):
                return {self._literal(item, depth + 1) for item in node.elts}
            if isinstance(node, ast.Dict):
                return self._dict(node, depth)
        except TypeError:
            self._refuse(node, "an unhashable key or element")
        self._refuse(node, _kind(node))

    def _signed(self, node: ast.UnaryOp) -> Any:
        inner = node.operand
        if not isinstance(inner, ast.Constant) or type(inner.value) not in (int, float):
            self._refuse(node, "a sign before something other than a number")
        assert isinstance(inner.value, int | float)
        return -inner.value if isinstance(node.op, ast.USub) else inner.value

    def _dict(self, node: ast.Dict, depth: int) -> dict[Any, Any]:
        items = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                self._refuse(value, "`**`")
            items[self._literal(key, depth + 1)] = self._literal(value, depth + 1)
        return items

    def _refuse(self, node: ast.expr, found: str, allowed: str = _ALLOWED) -> NoReturn:
        lines = self._text.split("\n")
        line = lines[node.lineno - 1] if node.lineno <= len(lines) else self._text
        # The tree counts bytes, people count characters.
        column = len(line.encode()[: node.col_offset].decode(errors="ignore")) + 1
        where = f"column {column}" if node.lineno == 1 else f"line {node.lineno}, column {column}"
        raise ConditionError(f"condition {self._text!r}: found {found} at {where}; {allowed}")


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _kind(node: ast.expr) -> str:
    """The words for a piece of syntax that is not in the grammar."""
    if isinstance(node, ast.Call):
        return "a call"
    if isinstance(node, ast.Constant):
        return f"a {type(node.value).__name__} literal"
    if isinstance(node, ast.Compare | ast.BoolOp) or (
        isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    ):
        return "a condition where a value belongs"
    if isinstance(node, ast.Attribute | ast.Subscript | ast.Name):
        return "a lookup where a literal belongs"
    return f"{type(node).__name__}"
