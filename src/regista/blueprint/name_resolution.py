"""Resolve: the texts that an expression in a handler can stand for, without running it.

Followed are literals, `a if x else b`, `a or b`, local names that are only ever assigned such things, and
names of the module or of an enclosing function (str constants, dicts of them, members of str enums).
"""

import ast
from collections.abc import Callable, Iterable
from enum import Enum
from types import FunctionType, ModuleType
from typing import Any, TypeVar

T = TypeVar("T")

#: Action → (position, keyword) of the argument that names where it leads.
STATE_ARGUMENTS = {
    "transition_to": (0, "state"),
    "dispatch_parallel": (1, "aggregate_into"),
    "sleep": (1, "then"),
}
TRANSITIONS_ARGUMENTS = {
    "dispatch_task": (2, "transitions"),
    "await_human_approval": (1, "transitions"),
    "run_blueprint": (2, "transitions"),
}

_MISSING = object()


class NotStatic(Exception):
    """The expression cannot be followed; the text says why."""


class NameScope:
    """What the names inside one function mean."""

    def __init__(
        self,
        function: FunctionType,
        node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda,
        parents: dict[ast.AST, ast.AST],
    ) -> None:
        self._function = function
        self._parents = parents
        arguments = node.args
        self._parameters = {
            argument.arg
            for argument in [
                *arguments.posonlyargs,
                *arguments.args,
                *arguments.kwonlyargs,
                *filter(None, [arguments.vararg, arguments.kwarg]),
            ]
        }
        self._loads: dict[str, list[ast.Name]] = {}
        #: name → the values that plain assignments give it.
        self._assigned: dict[str, list[ast.expr]] = {}
        #: Names that are bound in any other way: loops, `with`, imports, `+=`, nested functions ...
        self._otherwise: set[str] = set()
        self._following: set[str] = set()
        for top in [node.body] if isinstance(node, ast.Lambda) else node.body:
            for inner in ast.walk(top):
                self._note(inner)

    def rebound(self, name: str) -> bool:
        """The function gives this name another meaning somewhere."""
        return name in self._assigned or name in self._otherwise

    def is_alias(self, assignment: ast.Assign) -> bool:
        """A plain `name = value`, and the only one for that name."""
        targets = assignment.targets
        return (
            len(targets) == 1 and isinstance(targets[0], ast.Name) and self._only(targets[0].id) is not None
        )

    def alias_of(self, name: str, matches: Callable[[ast.AST], bool]) -> bool:
        """The name is assigned once, to something that matches."""
        value = self._only(name)
        # An alias of an alias is not followed: aliases could form a circle.
        if isinstance(value, ast.Name):
            return value.id not in self._assigned and matches(value)
        return isinstance(value, ast.Attribute) and matches(value)

    def texts(self, node: ast.expr | None, none: str | None = None) -> list[str]:
        """Every text that the expression can be. `none` is what None, or nothing at all, means."""
        if node is None or (isinstance(node, ast.Constant) and node.value is None):
            if node is None and none is None:
                return []
            if none is not None:
                return [none]
        if isinstance(node, ast.IfExp):
            return [*self.texts(node.body, none), *self.texts(node.orelse, none)]
        if isinstance(node, ast.BoolOp):
            return [found for value in node.values for found in self.texts(value, none)]
        if isinstance(node, ast.Name) and self._is_local(node):
            return self._follow(node, lambda value: self.texts(value, none))
        return [self._text(node)]

    def mapping(self, node: ast.expr) -> list[tuple[str, str]]:
        """Every (key, text) that the expression, a dict, can hold."""
        if isinstance(node, ast.IfExp):
            return [*self.mapping(node.body), *self.mapping(node.orelse)]
        if isinstance(node, ast.Dict):
            return [
                pair
                for key, value in zip(node.keys, node.values, strict=True)
                for pair in self._item(key, value)
            ]
        if isinstance(node, ast.Name) and self._is_local(node):
            self._refuse_changes(node.id)
            return self._follow(node, self.mapping)
        constant = self._constant(node)
        if isinstance(constant, dict) and all(
            isinstance(key, str) and isinstance(value, str) for key, value in constant.items()
        ):
            return [(str.__str__(key), str.__str__(value)) for key, value in constant.items()]
        raise NotStatic(f"transitions are computed: {ast.unparse(node)}")

    def _item(self, key: ast.expr | None, value: ast.expr) -> Iterable[tuple[str, str]]:
        if key is None:  # {**others}
            return self.mapping(value)
        try:
            labels = self.texts(key)
        except NotStatic:
            labels = ["…"]  # the edge is known all the same
        return [(label, target) for label in labels for target in self.texts(value)]

    def _text(self, node: ast.expr | None) -> str:
        constant = self._constant(node)
        if isinstance(constant, str):
            return str.__str__(constant)  # also of a member of a str enum
        raise NotStatic(f"a target is computed: {ast.unparse(node) if node is not None else None}")

    def _constant(self, node: ast.expr | None) -> Any:
        """The value of a literal, a global, a closed-over name, or an attribute of a class or module there."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name) and not self._is_local(node):
            return self._outer(node.id)
        if isinstance(node, ast.Attribute):
            owner = self._constant(node.value)
            # Reading an attribute of anything else could run user code, or change later.
            if isinstance(owner, type | ModuleType):
                return getattr(owner, node.attr, _MISSING)
            if node.attr == "value" and isinstance(owner, Enum):
                return owner.value
        return _MISSING

    def _outer(self, name: str) -> Any:
        code, closure = self._function.__code__, self._function.__closure__ or ()
        if name in code.co_freevars:
            try:
                return closure[code.co_freevars.index(name)].cell_contents
            except ValueError:  # not assigned yet
                return _MISSING
        return self._function.__globals__.get(name, _MISSING)

    def _is_local(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and (
            node.id in self._assigned or node.id in self._otherwise or node.id in self._parameters
        )

    def _follow(self, node: ast.Name, resolve: Callable[[ast.expr], list[T]]) -> list[T]:
        """What all the values that a local name is given resolve to."""
        name = node.id
        values = self._assigned.get(name)
        # A name that is met again on the way to its own value runs in a circle: x = x or "a".
        if not values or name in self._otherwise | self._parameters | self._following:
            raise NotStatic(f"{name!r} is computed")
        self._following.add(name)
        try:
            return [found for value in values for found in resolve(value)]
        finally:
            self._following.discard(name)

    def _only(self, name: str) -> ast.expr | None:
        values = self._assigned.get(name, [])
        return values[0] if len(values) == 1 and name not in self._otherwise | self._parameters else None

    def _refuse_changes(self, name: str) -> None:
        """A local dict counts as literal only while it cannot have been changed."""
        for use in self._loads.get(name, []):
            parent = self._parents.get(use)
            if isinstance(parent, ast.keyword):
                parent = self._parents.get(parent)
            if not _only_reads(parent):
                raise NotStatic(f"{name!r} may be changed before it is used")

    def _note(self, node: ast.AST) -> None:
        """Remember what this node does to names."""
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Load):
                self._loads.setdefault(node.id, []).append(node)
            else:
                self._bind(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            self._otherwise.add(node.name)
        elif isinstance(node, ast.alias):
            self._otherwise.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            self._otherwise.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            self._otherwise.add(node.rest)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            self._otherwise.update(node.names)
        elif isinstance(node, ast.arg):
            self._otherwise.add(node.arg)

    def _bind(self, node: ast.Name) -> None:
        parent = self._parents.get(node)
        if isinstance(parent, ast.Assign) and node in parent.targets:
            self._assigned.setdefault(node.id, []).append(parent.value)
        elif isinstance(parent, ast.AnnAssign):
            if parent.value is not None:
                self._assigned.setdefault(node.id, []).append(parent.value)
        else:
            self._otherwise.add(node.id)


def _only_reads(user: ast.AST | None) -> bool:
    """Whoever uses the dict like this cannot change it."""
    if isinstance(user, ast.Call):
        return isinstance(user.func, ast.Attribute) and user.func.attr in TRANSITIONS_ARGUMENTS
    if isinstance(user, ast.Subscript):
        return isinstance(user.ctx, ast.Load)
    return isinstance(user, ast.IfExp | ast.Dict)
