"""Predicates: the closures that a condition compiles to.

Reads raise when something is missing; tests turn that into False, and never raise.
"""

import ast
import operator
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from ..errors import ActionError

Test = Callable[[Any], bool]
Read = Callable[[Any], Any]
Compare = Callable[[Any, Any], Any]
#: `member` or `item`, and its name or key.
Step = tuple[Callable[[Any, Any], Any], Any]

OPERATORS: dict[type[ast.cmpop], Compare] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, box: item in box,
    ast.NotIn: lambda item, box: item not in box,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
#: What reading or comparing the user's data can raise. Each makes the atom false.
_FALSE = (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError, ActionError)


def member(value: Any, name: str) -> Any:
    """`.name` of the user's data: an item of a dict, or a field of one of our records.

    Nothing else has members, so no method and no property of a stranger's class is ever reached.
    """
    if isinstance(value, dict):
        return value[name]
    if isinstance(value, Struct) and name in value.__struct_fields__:
        return getattr(value, name)
    raise LookupError(name)


def item(value: Any, key: Any) -> Any:
    if isinstance(value, dict | list | tuple | str):
        return value[key]
    raise LookupError(key)


def walk(field: str, steps: list[Step]) -> Read:
    if not steps:
        return operator.attrgetter(field)

    def read(context: Any) -> Any:
        value = getattr(context, field)
        for step, key in steps:
            value = step(value, key)
        return value

    return read


def against(read: Read, compare: Compare, literal: Any) -> Test:
    def test(context: Any) -> bool:
        try:
            return bool(compare(read(context), literal))
        except _FALSE:
            return False

    return test


def between(left: Read, compare: Compare, right: Read) -> Test:
    def test(context: Any) -> bool:
        try:
            return bool(compare(left(context), right(context)))
        except _FALSE:
            return False

    return test


def chain(reads: list[Read], operators: list[Compare]) -> Test:
    def test(context: Any) -> bool:
        try:
            values = [read(context) for read in reads]
            return all(
                compare(left, right)
                for compare, left, right in zip(operators, values, values[1:], strict=False)
            )
        except _FALSE:
            return False

    return test


def truth(read: Read) -> Test:
    def test(context: Any) -> bool:
        try:
            return bool(read(context))
        except _FALSE:
            return False

    return test


def every(tests: tuple[Test, ...]) -> Test:
    def test(context: Any) -> bool:
        for part in tests:  # noqa: SIM110 - a generator would double the cost
            if not part(context):
                return False
        return True

    return test


def some(tests: tuple[Test, ...]) -> Test:
    def test(context: Any) -> bool:
        for part in tests:  # noqa: SIM110
            if part(context):
                return True
        return False

    return test
