"""What is the same for every store: how many at once, and whose fault an error is."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from regista.errors import PayloadError
from regista.payloads.directory import DirectoryPayloads


async def test_no_more_reads_and_writes_at_once_than_allowed(tmp_path: Path) -> None:
    store = DirectoryPayloads(tmp_path, concurrency=2)
    running, most = 0, 0

    async def slow() -> AsyncIterator[bytes]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        yield b"x"
        running -= 1

    await asyncio.gather(*(store.put(f"jobs/j1/{number}", slow()) for number in range(8)))

    assert most == 2
    assert len([each async for each in store.files("jobs")]) == 8


async def test_whoever_copies_does_not_wait_for_himself(tmp_path: Path) -> None:
    store = DirectoryPayloads(tmp_path, concurrency=1)
    await store.put("jobs/j1/a", b"x" * 100)

    async with asyncio.timeout(5):
        await store.put("jobs/j1/b", store.stream("jobs/j1/a"))

    assert await store.get("jobs/j1/b") == b"x" * 100


async def test_a_writer_that_is_cancelled_gives_its_turn_back(tmp_path: Path) -> None:
    store = DirectoryPayloads(tmp_path, concurrency=1)

    async def never() -> AsyncIterator[Any]:
        await asyncio.sleep(60)
        yield b""

    writing = asyncio.create_task(store.put("jobs/j1/a", never()))
    await asyncio.sleep(0.05)
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)

    async with asyncio.timeout(5):
        await store.put("jobs/j1/b", b"")


async def test_a_path_that_the_library_cannot_read_is_a_bad_name(tmp_path: Path) -> None:
    store = DirectoryPayloads(tmp_path)

    for path in ("records/j1/../x", "records/j1/a\x00b"):
        with pytest.raises(PayloadError):
            await store.get(path)


async def test_whoever_is_apart_has_turns_of_his_own(tmp_path: Path) -> None:
    store = DirectoryPayloads(tmp_path, concurrency=1)
    outside = store.with_own_limits(1)
    await store.put("jobs/j1/a", b"x" * 3_000_000)

    held = cast(AsyncGenerator[bytes, None], outside.stream("jobs/j1/a"))
    await anext(held)
    async with asyncio.timeout(5):
        assert len(await store.get("jobs/j1/a")) == 3_000_000
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await outside.get("jobs/j1/a")
    await held.aclose()
    assert len(await outside.get("jobs/j1/a")) == 3_000_000
