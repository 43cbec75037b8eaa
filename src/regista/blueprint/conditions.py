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
from typing import Any, NoReturn

from ..errors import ConditionError
from . import predicates
from .names import did_you_mean
from .predicates import Compare, Read, Step, Test

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
    """A parsed condition. `holds(context)` never raises."""

    __slots__ = ("holds", "text")

    def __init__(self, text: str, holds: Test) -> None:
        self.text = text
        #: The compiled closure itself; there is no method in between.
        self.holds = holds

    @classmethod
    def parse(cls, text: str) -> "Condition":
        """Compile once; ConditionError says what was found, where, and what is allowed."""
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
        return cls(stripped, _Compiler(stripped).condition(tree.body, 0))

    def __repr__(self) -> str:
        return f"Condition({self.text!r})"


class _Compiler:
    """Turns the tree of one condition into closures."""

    def __init__(self, text: str) -> None:
        self._text = text

    def condition(self, node: ast.expr, depth: int) -> Test:
        if depth > MAX_DEPTH:
            self._refuse(node, "too deep a nesting")
        if isinstance(node, ast.BoolOp):
            tests = tuple(self.condition(part, depth + 1) for part in node.values)
            return predicates.every(tests) if isinstance(node.op, ast.And) else predicates.some(tests)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            test = self.condition(node.operand, depth + 1)
            return lambda context: not test(context)
        if isinstance(node, ast.Compare):
            return self._comparison(node)
        return predicates.truth(self._value(node))

    def _comparison(self, node: ast.Compare) -> Test:
        nodes = [node.left, *node.comparators]
        for op, left, right in zip(node.ops, nodes, nodes[1:], strict=False):
            if isinstance(op, ast.Is | ast.IsNot) and not (_is_none(left) or _is_none(right)):
                self._refuse(right, "`is` with something other than None")
        operators = [predicates.OPERATORS[type(op)] for op in node.ops]
        if len(operators) == 1:
            return self._single(node.left, operators[0], node.comparators[0])
        return predicates.chain([self._value(part) for part in nodes], operators)

    def _single(self, left: ast.expr, compare: Compare, right: ast.expr) -> Test:
        read = self._value(left)
        if isinstance(right, ast.Attribute | ast.Subscript | ast.Name):
            return predicates.between(read, compare, self._value(right))
        # By far the most common form: a lookup against a literal.
        return predicates.against(read, compare, self._literal(right))

    def _value(self, node: ast.expr) -> Read:
        if isinstance(node, ast.Attribute | ast.Subscript | ast.Name):
            return self._lookup(node)
        literal = self._literal(node)
        return lambda context: literal

    def _lookup(self, node: ast.expr) -> Read:
        steps: list[Step] = []
        while not isinstance(node, ast.Name):
            if isinstance(node, ast.Attribute):
                if node.attr.startswith("_"):
                    self._refuse(node, f"the private name {node.attr!r}")
                if isinstance(node.value, ast.Name):
                    return predicates.walk(self._field(node, node.value), steps[::-1])
                steps.append((predicates.member, node.attr))
            elif isinstance(node, ast.Subscript):
                steps.append((predicates.item, self._literal(node.slice)))
            else:
                self._refuse(node, _kind(node))
            node = node.value
        found = "`context` without a field" if node.id == "context" else f"the name {node.id!r}"
        self._refuse(node, found)

    def _field(self, node: ast.Attribute, root: ast.Name) -> str:
        if root.id != "context":
            self._refuse(root, f"the name {root.id!r}")
        if node.attr not in FIELDS:
            known = f"a condition can read {', '.join(sorted(FIELDS))}"
            self._refuse(node, f"context.{node.attr}{did_you_mean(node.attr, FIELDS)}", known)
        return node.attr

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
