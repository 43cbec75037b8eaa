"""Handler: one function of one state, and what must be known to run it."""

import functools
import inspect
from collections.abc import Callable
from types import CodeType, FunctionType, MethodType
from typing import Any

from msgspec import Struct, field

from .conditions import Condition
from .graph import FAILED_STATE

HandlerFunction = Callable[..., Any]

#: How a job can end in an end state.
OUTCOMES = ("finished", "failed")

#: A handler with an argument of this name is given the files of its job.
_FILES = "task_files"


class Handler(Struct, frozen=True, kw_only=True):
    """A function that decides for one state. It is called as `call(context, actions)`."""

    state: str
    func: HandlerFunction
    #: The function itself, or with the files of the job where it has an argument `task_files`.
    call: HandlerFunction
    #: None always matches; a state has at most one such handler.
    condition: Condition | None = None
    #: Runs in a thread, because it would hold the loop.
    blocking: bool = False
    is_async: bool = False
    #: Its declared targets; None if it declares none.
    declared: frozenset[str] | None = None
    name: str = ""
    #: "file:line" of its definition.
    location: str = ""


class DeclaredState(Struct):
    """One state while its blueprint is being written. A flag may stand on any of its handlers."""

    name: str
    is_start: bool = False
    is_end: bool = False
    is_aggregator: bool = False
    outcome: str | None = None
    #: In the order of declaration, which is the order in which they are asked.
    conditional: list[Handler] = field(default_factory=list)
    default: Handler | None = None

    @property
    def handlers(self) -> list[Handler]:
        """All of them, the unconditional one last."""
        return [*self.conditional, self.default] if self.default is not None else list(self.conditional)

    @property
    def end_outcome(self) -> str:
        """How a job ends here: as declared, else `failed` for the state of that name."""
        return self.outcome or ("failed" if self.name == FAILED_STATE else "finished")

    def add(self, handler: Handler) -> str | None:
        """Adds a handler; returns the problem if it cannot be added."""
        if handler.condition is not None:
            self.conditional.append(handler)
        elif self.default is None:
            self.default = handler
        else:
            return (
                f"state {self.name!r}: a second handler without a condition, {handler.name} at {handler.location}; "
                f"the first is {self.default.name} at {self.default.location}"
            )
        return None


def handler_record(
    state: str,
    func: HandlerFunction,
    *,
    condition: Condition | None = None,
    blocking: bool = False,
    declared: frozenset[str] | None = None,
) -> Handler:
    """The record of a function."""
    return Handler(
        state=state,
        func=func,
        call=_with_files(func) if _wants_files(func) else func,
        condition=condition,
        blocking=blocking,
        is_async=is_async_callable(func),
        declared=declared,
        name=getattr(func, "__qualname__", None) or type(func).__name__,
        location=_location(func),
    )


def own_code(func: HandlerFunction) -> CodeType | None:
    """The code of a function or method itself; None for anything that wraps one."""
    if isinstance(func, MethodType):
        func = func.__func__
    return func.__code__ if isinstance(func, FunctionType) else None


def call_method(thing: object) -> Any:
    """The function behind `thing(...)`, for an object that is not a function itself."""
    return getattr(type(thing), "__call__", None)  # noqa: B004 - the method is wanted, not a yes or no


def is_async_callable(func: HandlerFunction) -> bool:
    """Calling it gives a coroutine."""
    while isinstance(func, functools.partial):
        func = func.func
    return inspect.iscoroutinefunction(func) or inspect.iscoroutinefunction(call_method(func))


def signature_problem(handler: Handler) -> str | None:
    """Why it cannot be called with `(context, actions)` and awaited if async; None if it can."""
    func = handler.func
    if inspect.isgeneratorfunction(func) or inspect.isasyncgenfunction(func):
        return "is a generator; a handler returns, it does not yield"
    if handler.blocking and handler.is_async:
        return "is async and blocking=True; only a plain function can move to a thread"
    try:
        signature = inspect.signature(func)
    except (TypeError, ValueError):  # a builtin without a signature
        return None
    try:
        signature.bind(None, None, **({_FILES: None} if _wants_files(func) else {}))
    except TypeError as error:
        return f"expected to be callable with (context, actions), got {signature}: {error}"
    return None


def _wants_files(func: HandlerFunction) -> bool:
    try:
        found = inspect.signature(func).parameters.get(_FILES)
    except (TypeError, ValueError):  # a builtin without a signature
        return False
    return found is not None and found.kind is not inspect.Parameter.POSITIONAL_ONLY


def _with_files(func: HandlerFunction) -> HandlerFunction:
    """The function, given the files of its job by name."""
    return lambda context, actions: func(context, actions, **{_FILES: context.task_files})


def _location(func: HandlerFunction) -> str:
    while isinstance(func, functools.partial):
        func = func.func
    code = own_code(inspect.unwrap(func)) or own_code(call_method(func))
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else repr(func)
