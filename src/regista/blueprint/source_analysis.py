"""Analysis: where a handler leads, read from its source.

The graph is what makes a blueprint checkable, drawable and versioned, and the handlers contain it already:
in the literal arguments of their actions. SourceEdges is cautious. Whatever it cannot follow makes the
handler's targets *computed*, which counts as an edge to every state; it never guesses.
"""

import ast
import functools
import inspect
from collections.abc import Iterator
from types import FunctionType, MethodType
from typing import Any

from msgspec import Struct

from .handlers import HandlerFunction, call_method
from .name_resolution import STATE_ARGUMENTS, TRANSITIONS_ARGUMENTS, NameScope, NotStatic

_NO_TARGET = frozenset({"fail", "set_result", "set_search_attributes"})


class Edge(Struct, frozen=True, order=True):
    """One way out of a state, as the source shows it."""

    target: str
    #: The status that leads there, or the action; for people.
    label: str
    #: The line of the file.
    line: int


class SourceEdges(Struct, frozen=True):
    """The edges in the source of one handler."""

    edges: tuple[Edge, ...] = ()
    #: Why not all targets are known; None when they are.
    computed: str | None = None
    #: It calls `actions.fail`: the job can end here.
    fails: bool = False


def read_handler(func: HandlerFunction, state: str) -> SourceEdges:
    """Where `func` leads when it is the handler of `state`. Never raises on odd source."""
    try:
        function, skip = _function(func)
        node, first_line = _parse(function)
        return _ActionCallReader(function, node, skip, first_line, state).read()
    except NotStatic as reason:
        return SourceEdges(computed=str(reason))


def may_suspend(func: HandlerFunction) -> bool:
    """Whether a coroutine of this async function may wait for something.

    False only where the function's own source shows that it cannot. Wrappers and functions without source may.
    """
    if isinstance(func, MethodType):
        func = func.__func__
    return not isinstance(func, FunctionType) or _awaits(func)


@functools.lru_cache(maxsize=4096)
def _awaits(function: FunctionType) -> bool:
    is_coroutine = function.__code__.co_flags & inspect.CO_COROUTINE
    if not is_coroutine or hasattr(function, "__wrapped__"):
        return True  # its source is not that of the coroutine
    try:
        node, _ = _parse(function)
    except NotStatic:
        return True
    return any(
        isinstance(part, ast.Await | ast.AsyncFor | ast.AsyncWith)
        or (isinstance(part, ast.comprehension) and bool(part.is_async))
        for part in ast.walk(node)
    )


def _function(func: HandlerFunction) -> tuple[FunctionType, int]:
    """The function whose source counts, and how many of its parameters are bound already."""
    if isinstance(func, functools.partial):
        raise NotStatic("a functools.partial hides which parameter is `actions`")
    inner: Any = inspect.unwrap(func)
    if isinstance(inner, FunctionType):
        return inner, 0
    if isinstance(inner, MethodType):
        return _function(inner.__func__)[0], 1
    call = call_method(inner)
    if isinstance(call, FunctionType):
        return call, 1
    raise NotStatic("there is no Python source to read")


def _parse(function: FunctionType) -> tuple[ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, int]:
    """The tree of the function, and what to add to its line numbers to get those of the file."""
    try:
        lines, first_line = inspect.getsourcelines(function)
        source = "".join(lines)
        indented = source[:1].isspace()
        # An `if` around an indented function keeps its inner lines, and texts that span lines, as they are.
        tree = ast.parse(f"if True:\n{source}" if indented else source)
    except (OSError, TypeError, SyntaxError, ValueError, RecursionError) as error:
        raise NotStatic(f"its source cannot be read ({type(error).__name__})") from None
    offset = first_line - (2 if indented else 1)
    if function.__name__ == "<lambda>":
        lambdas = [node for node in ast.walk(tree) if isinstance(node, ast.Lambda)]
        if len(lambdas) == 1:
            return lambdas[0], offset
    else:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == function.__name__:
                return node, offset
    raise NotStatic("its source cannot be separated from the code around it")


class _ActionCallReader:
    """Follows `actions` through one function."""

    def __init__(
        self,
        function: FunctionType,
        node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda,
        skip: int,
        offset: int,
        state: str,
    ) -> None:
        parameters = [argument.arg for argument in [*node.args.posonlyargs, *node.args.args]][skip:]
        if len(parameters) < 2:
            raise NotStatic("it has no parameter of its own for `actions`")
        self._context, self._actions = parameters[:2]
        self._body: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else [*node.body]
        self._offset = offset
        self._state = state
        self._parents = {
            child: parent
            for top in self._body
            for parent in ast.walk(top)
            for child in ast.iter_child_nodes(parent)
        }
        self._names = NameScope(function, node, self._parents)
        self._edges: list[Edge] = []
        self._computed: str | None = None
        self._fails = False

    def read(self) -> SourceEdges:
        for name in (self._context, self._actions):
            if self._names.rebound(name):
                raise NotStatic(f"it gives {name!r} another meaning")
        for node in self._walk():
            if self._is_actions(node):
                self._use(node)
        return SourceEdges(tuple(self._edges), self._computed, self._fails)

    def _walk(self) -> Iterator[ast.AST]:
        for top in self._body:
            yield from ast.walk(top)

    def _is_actions(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Name):
            return isinstance(node.ctx, ast.Load) and (
                node.id == self._actions or self._names.alias_of(node.id, self._is_actions)
            )
        return (
            isinstance(node, ast.Attribute)
            and node.attr == "actions"
            and isinstance(node.value, ast.Name)
            and node.value.id == self._context
        )

    def _use(self, node: ast.AST) -> None:
        parent = self._parents.get(node)
        if isinstance(parent, ast.Assign) and self._names.is_alias(parent):
            return
        if isinstance(parent, ast.Attribute):
            call = self._parents.get(parent)
            if isinstance(call, ast.Call) and call.func is parent:
                self._call(parent.attr, call)
                return
        self._give_up(node, "`actions` goes where its calls cannot be followed")

    def _call(self, name: str, call: ast.Call) -> None:
        try:
            if name in STATE_ARGUMENTS:
                self._state_call(name, call)
            elif name in TRANSITIONS_ARGUMENTS:
                expression = _argument(call, *TRANSITIONS_ARGUMENTS[name])
                # Without transitions the call raises when it runs; there is no edge to add.
                for label, target in self._names.mapping(expression) if expression is not None else ():
                    self._edges.append(Edge(target, label, call.lineno + self._offset))
            elif name == "fail":
                self._fails = True
            elif name not in _NO_TARGET:
                raise NotStatic(f"`actions.{name}` is not an action")
        except NotStatic as reason:
            self._give_up(call, str(reason))

    def _state_call(self, name: str, call: ast.Call) -> None:
        expression = _argument(call, *STATE_ARGUMENTS[name])
        label = "" if name == "transition_to" else "sleep" if name == "sleep" else "all"
        targets = self._names.texts(expression, none=self._state if name == "sleep" else None)
        self._edges.extend(Edge(target, label, call.lineno + self._offset) for target in targets)

    def _give_up(self, node: ast.AST, reason: str) -> None:
        if self._computed is None:
            line = getattr(node, "lineno", 1) + self._offset
            self._computed = f"{reason} (line {line})"


def _argument(call: ast.Call, position: int, keyword: str) -> ast.expr | None:
    """The expression given for one parameter; None if it was left out."""
    for given in call.keywords:
        if given.arg == keyword:
            return given.value
    head = call.args[: position + 1]
    if any(isinstance(argument, ast.Starred) for argument in head):
        raise NotStatic("`*arguments` hide the target")
    if len(head) > position:
        return head[position]
    if any(given.arg is None for given in call.keywords):
        raise NotStatic("`**options` hide the target")
    return None
