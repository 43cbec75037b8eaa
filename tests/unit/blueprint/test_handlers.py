"""Handler: what must be known of a function to run it."""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from regista.blueprint.handlers import handler_record, signature_problem
from regista.blueprint.source_analysis import may_suspend


def plain(context: Any, actions: Any) -> None:
    pass


async def straight(context: Any, actions: Any) -> None:
    actions.transition_to("x")


async def awaits(context: Any, actions: Any) -> None:
    await asyncio.sleep(0)


async def loops(context: Any, actions: Any) -> None:
    async for _ in context:
        pass


async def enters(context: Any, actions: Any) -> None:
    async with context:
        pass


async def comprehends(context: Any, actions: Any) -> None:
    actions.set_result([item async for item in context])


async def nests(context: Any, actions: Any) -> None:
    async def inner() -> None:
        await asyncio.sleep(0)

    actions.set_result(inner)


@functools.wraps(straight)
async def wrapped(context: Any, actions: Any) -> None:
    await straight(context, actions)


def exec_without_source() -> Any:
    names: dict[str, Any] = {}
    exec("async def handler(context, actions): pass", names)
    return names["handler"]


class Callable_:
    async def __call__(self, context: Any, actions: Any) -> None:
        pass

    async def method(self, context: Any, actions: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("func", "is_async", "suspends"),
    [
        (plain, False, True),
        (straight, True, False),
        (awaits, True, True),
        (loops, True, True),
        (enters, True, True),
        (comprehends, True, True),
        (nests, True, True),
        (wrapped, True, True),
        (exec_without_source(), True, True),
        (functools.partial(straight), True, True),
        (functools.partial(plain), False, True),
        (Callable_(), True, True),
        (Callable_().method, True, False),
    ],
)
def test_only_a_function_whose_own_source_shows_no_await_is_known_not_to_suspend(
    func: Callable[..., Any], is_async: bool, suspends: bool
) -> None:
    assert (handler_record("s", func).is_async, may_suspend(func)) == (is_async, suspends)


def test_a_handler_knows_its_name_and_place() -> None:
    handler = handler_record("s", plain)
    line = plain.__code__.co_firstlineno
    assert (handler.name, handler.location) == ("plain", f"{__file__}:{line}")
    assert handler_record("s", functools.partial(plain)).location == f"{__file__}:{line}"
    assert __file__ in handler_record("s", Callable_()).location


def test_a_builtin_can_be_described_too() -> None:
    handler = handler_record("s", max)
    assert (handler.is_async, handler.name) == (False, "max")


def one(context: Any) -> None: ...
def three(context: Any, actions: Any, more: Any) -> None: ...
def keyword_only(context: Any, *, actions: Any) -> None: ...
def spread(*arguments: Any) -> None: ...
def optional(context: Any, actions: Any, more: int = 1, **rest: Any) -> None: ...


@pytest.mark.parametrize("func", [one, three, keyword_only])
def test_a_handler_that_cannot_take_context_and_actions_is_a_problem(func: Callable[..., Any]) -> None:
    assert "callable with (context, actions)" in (signature_problem(handler_record("s", func)) or "")


@pytest.mark.parametrize("func", [plain, awaits, spread, optional, Callable_(), Callable_().method, max])
def test_a_handler_that_can_is_none(func: Callable[..., Any]) -> None:
    assert signature_problem(handler_record("s", func)) is None


def test_generators_and_async_functions_in_threads_are_problems() -> None:
    async def generator(context: Any, actions: Any) -> AsyncIterator[int]:
        yield 1

    assert "does not yield" in (signature_problem(handler_record("s", generator)) or "")
    assert "blocking=True" in (signature_problem(handler_record("s", straight, blocking=True)) or "")
