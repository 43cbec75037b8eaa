import asyncio
from collections.abc import AsyncIterator

import pytest

from regista.client.waiting import merged, windows


async def ticks(name: str, *pauses: float) -> AsyncIterator[str]:
    for pause in pauses:
        await asyncio.sleep(pause)
        yield name


async def broken() -> AsyncIterator[str]:
    await asyncio.sleep(0.01)
    yield str(int("broken"))


def test_ids_are_asked_for_once_in_portions() -> None:
    ids = [str(number) for number in range(1200)]

    assert [len(window) for window in windows(ids + ids)] == [500, 500, 200]
    assert windows([]) == []


def test_sources_are_merged_as_they_come() -> None:
    async def collect() -> list[str]:
        return [name async for name in merged([ticks("a", 0.02, 0.04), ticks("b", 0.04, 0.0), ticks("c")])]

    assert asyncio.run(collect()) == ["a", "b", "b", "a"]


def test_nothing_to_merge_is_over_at_once() -> None:
    async def collect() -> list[str]:
        nothing: list[AsyncIterator[str]] = []
        return [name async for name in merged(nothing)]

    assert asyncio.run(collect()) == []


def test_the_error_of_one_source_ends_them_all() -> None:
    async def collect() -> list[str]:
        return [name async for name in merged([ticks("a", 9.0), broken()])]

    with pytest.raises(ValueError, match="invalid literal"):
        asyncio.run(collect())


def test_who_leaves_early_leaves_nothing_running() -> None:
    async def leave() -> int:
        source = merged([ticks("a", 0.0, 9.0), ticks("b", 9.0)])
        async for _ in source:
            break
        await source.aclose()  # type: ignore[attr-defined]
        return len(asyncio.all_tasks())

    assert asyncio.run(leave()) == 1
