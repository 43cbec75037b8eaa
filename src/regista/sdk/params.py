"""Params: how a task function is called, read once from its signature. Wrong params never reach it.

| the function | gets |
|---|---|
| `f(params)`, `f(params, context)` | the params as a dict, and a `TaskContext` |
| `f(order: Order)` | the params as that record: msgspec struct, dataclass, TypedDict or pydantic model |
| `f(width: int, path: str)` | the params by name, each checked against its annotation |
| any of them with `x: TaskContext` | the context, wherever that parameter stands |
| any of them with `x: TaskFiles` | the files of the job, given by name |
"""

import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import is_dataclass
from typing import Any

import msgspec
from msgspec import Struct

from ..errors import InvalidInputError
from ..payloads.task_files import TaskFiles
from ..serialization import safe_text
from .context import TaskContext

#: Turns the params into what the function wants, or raises InvalidInputError.
Read = Callable[[dict[str, Any]], Any]

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_ANY_DICT = (Any, object, dict, Mapping, MutableMapping, dict[str, Any], Mapping[str, Any])
_MAPPINGS = (dict, Mapping, MutableMapping)


class CallPlan(Struct, frozen=True):
    """How to call a task function."""

    #: (params, context) → whatever the function returns.
    call: Callable[[dict[str, Any], Any], Any]
    wants_context: bool
    #: JSON schema of the params, where the function says what it wants.
    schema: dict[str, Any] | None = None


def build_call_plan(name: str, func: Callable[..., Any]) -> CallPlan:
    """How to call `func` as the task `name`; ValueError when there is no way."""
    parameters = [p for p in inspect.signature(func).parameters.values() if p.kind not in _STARS]
    hints = _hints(func)
    files = [p for p in parameters if hints.get(p.name) is TaskFiles]
    if files:
        return _with_files(name, func, files, hints)
    contexts = [p for p in parameters if hints.get(p.name) is TaskContext]
    payload = [p for p in parameters if p not in contexts]
    if payload and _by_name(payload[0], hints):
        return _named(name, func, payload, contexts, hints)
    return _positional(name, func, parameters, hints)


_STARS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _with_files(
    name: str, func: Callable[..., Any], files: list[inspect.Parameter], hints: Mapping[str, Any]
) -> CallPlan:
    """The rest of the function is called like any other, with a context; the files come from there, by name."""
    if any(p.kind is inspect.Parameter.POSITIONAL_ONLY for p in files):
        raise ValueError(f"task {name!r}: files are given by name, so {func} cannot have them before '/'")
    names = [p.name for p in files]
    every = list(inspect.signature(func).parameters.values())
    places = [(index, p.name) for index, p in enumerate(every) if p.name in names]
    others = [p for p in every if p.name not in names]
    rest_hints = {p.name: hints[p.name] for p in others if p.name in hints}
    added = not _has_context(others, rest_hints)
    if added:
        here = sum(p.kind in _POSITIONAL for p in others)
        others.insert(
            here, inspect.Parameter(_CONTEXT, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None)
        )
        rest_hints[_CONTEXT] = TaskContext

    def rest(*args: Any, **kwargs: Any) -> Any:
        context = next(each for each in (*args, *kwargs.values()) if isinstance(each, TaskContext))
        kwargs.pop(_CONTEXT, None)
        given = [each for each in args if not (added and each is context)]
        for index, each in places:
            if index < len(given):  # it stands before others that come by their place
                given.insert(index, context.task_files)
            else:
                kwargs[each] = context.task_files
        return func(*given, **kwargs)

    rest.__annotations__ = rest_hints
    rest.__signature__ = inspect.Signature(others)  # type: ignore[attr-defined]
    return build_call_plan(name, rest)


#: The parameter that stands for a context where the function itself has none.
_CONTEXT = "_context"


def _has_context(parameters: list[inspect.Parameter], hints: Mapping[str, Any]) -> bool:
    """One of them is a context, by its annotation or as the second of (params, context)."""
    if any(hints.get(p.name) is TaskContext for p in parameters):
        return True
    positional = [p for p in parameters if p.kind in _POSITIONAL]
    return len(positional) > 1 and not _by_name(positional[0], hints)


def _by_name(first: inspect.Parameter, hints: Mapping[str, Any]) -> bool:
    """The params come as keywords: the first parameter is annotated with something that no object fits."""
    if first.name == "params" or first.name not in hints:
        return False
    return not _is_object(hints[first.name])


# -- params as one object ----------------------------------------------------------------------------


def _positional(
    name: str, func: Callable[..., Any], parameters: list[inspect.Parameter], hints: Mapping[str, Any]
) -> CallPlan:
    positional = [p for p in parameters if p.kind in _POSITIONAL]
    needed = [p for p in parameters if p.default is p.empty]
    if sum(p in positional for p in needed) > 2 or any(p not in positional for p in needed):
        raise ValueError(f"task {name!r}: expected a function of (params) or (params, context), got {func}")
    roles = _roles(positional[:2], hints)
    at = roles.index("params") if "params" in roles else None
    hint = hints.get(positional[at].name, Any) if at is not None else Any
    read, schema = _reader(name, hint)
    return CallPlan(_adapter(func, roles, read), "context" in roles, schema)


def _roles(positional: list[inspect.Parameter], hints: Mapping[str, Any]) -> tuple[str, ...]:
    """Which of params and context stands where."""
    if len(positional) == 1:
        return ("context",) if hints.get(positional[0].name) is TaskContext else ("params",)
    if len(positional) == 2 and hints.get(positional[0].name) is TaskContext:
        return ("context", "params")
    return ("params", "context")[: len(positional)]


def _adapter(
    func: Callable[..., Any], roles: tuple[str, ...], read: Read | None
) -> Callable[[dict[str, Any], Any], Any]:
    turned = read or _as_it_is
    match (roles, read):
        case ("params",), None:
            return lambda params, _: func(params)
        case ("params",), _:
            return lambda params, _: func(turned(params))
        case ("params", "context"), None:
            return func
        case ("params", "context"), _:
            return lambda params, context: func(turned(params), context)
        case ("context", "params"), _:
            return lambda params, context: func(context, turned(params))
        case ("context",), _:
            return lambda _, context: func(context)
        case _:
            return lambda _, __: func()


def _as_it_is(params: dict[str, Any]) -> dict[str, Any]:
    return params


# -- params by name ----------------------------------------------------------------------------------


def _named(
    name: str,
    func: Callable[..., Any],
    payload: list[inspect.Parameter],
    contexts: list[inspect.Parameter],
    hints: Mapping[str, Any],
) -> CallPlan:
    if any(p.kind is inspect.Parameter.POSITIONAL_ONLY for p in (*payload, *contexts)):
        raise ValueError(f"task {name!r}: params come by name, so {func} cannot have a parameter before '/'")
    fields = [_field(p, hints.get(p.name, Any)) for p in payload]
    record = msgspec.defstruct("params", fields, kw_only=True)
    read, schema = _reader(name, record)
    assert read is not None
    names = [p.name for p in payload]
    context_names = [p.name for p in contexts]

    def call(params: dict[str, Any], context: Any) -> Any:
        found = read(params)
        arguments = {each: getattr(found, each) for each in names}
        arguments.update(dict.fromkeys(context_names, context))
        return func(**arguments)

    return CallPlan(call, bool(contexts), schema)


def _field(parameter: inspect.Parameter, hint: Any) -> Any:
    if parameter.default is parameter.empty:
        return (parameter.name, hint)
    default = parameter.default
    if isinstance(default, list | dict | set):  # msgspec wants no shared mutable default
        return (parameter.name, hint, msgspec.field(default_factory=functools.partial(_copy, default)))
    return (parameter.name, hint, default)


def _copy(value: Any) -> Any:
    return value.copy()


# -- checking ----------------------------------------------------------------------------------------


def _reader(name: str, hint: Any) -> tuple[Read | None, dict[str, Any] | None]:
    """What turns a dict into `hint`, and its schema. (None, None): the dict is handed over as it is."""
    if hint in _ANY_DICT:
        return None, None
    if _is_pydantic(hint):
        return functools.partial(_read_pydantic, name, hint), hint.model_json_schema()
    try:
        schema = msgspec.json.schema(hint)
    except TypeError as error:
        raise ValueError(
            f"task {name!r}: expected params annotated as dict, msgspec struct, dataclass, TypedDict or "
            f"pydantic model, got {hint!r} ({error})"
        ) from None
    return functools.partial(_read_record, name, hint), schema


def _read_record(name: str, hint: Any, params: dict[str, Any]) -> Any:
    try:
        return msgspec.convert(params, hint)
    except msgspec.ValidationError as error:
        raise InvalidInputError(f"params of {name!r}: {safe_text(error)}") from None


def _read_pydantic(name: str, model: Any, params: dict[str, Any]) -> Any:
    try:
        return model.model_validate(params)
    except ValueError as error:  # pydantic's ValidationError is one
        listed = getattr(error, "errors", None)
        if listed is None:
            raise
        told = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'params'}: {e['msg']}" for e in listed())
        raise InvalidInputError(f"params of {name!r}: {safe_text(told)}") from None


def _is_pydantic(hint: Any) -> bool:
    """Told by what it can do: pydantic is never imported here."""
    return isinstance(hint, type) and hasattr(hint, "model_validate") and hasattr(hint, "model_json_schema")


def _is_object(hint: Any) -> bool:
    """Params as a whole could be this: a mapping, or a record."""
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        return _is_object(typing.get_args(hint)[0])
    if origin in (typing.Union, types.UnionType):
        return any(_is_object(each) for each in typing.get_args(hint))
    if hint in _ANY_DICT or (origin or hint) in _MAPPINGS:
        return True
    if not isinstance(hint, type):
        return False
    records = (is_dataclass(hint), issubclass(hint, Struct), typing.is_typeddict(hint), _is_pydantic(hint))
    return any(records) or hasattr(hint, "__attrs_attrs__")


def _hints(func: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of the parameters, as types. One that cannot be resolved counts as none."""
    while isinstance(func, functools.partial):
        func = func.func
    plain_function = inspect.isfunction(func) or inspect.ismethod(func)
    target = func if plain_function else getattr(type(func), "__call__", func)  # noqa: B004
    try:
        found = typing.get_type_hints(target, include_extras=True)
    except (NameError, TypeError, AttributeError):
        found = _each_hint(target)
    found.pop("return", None)
    return found


def _each_hint(target: Any) -> dict[str, Any]:
    """Some names exist for type checkers only: take those annotations that do resolve."""
    found = {}
    for name, hint in getattr(target, "__annotations__", {}).items():
        try:
            holder = types.SimpleNamespace(__annotations__={name: hint})
            names = getattr(inspect.unwrap(target), "__globals__", {})
            found[name] = typing.get_type_hints(holder, names, include_extras=True)[name]
        except (NameError, TypeError, AttributeError):
            continue
    return found
