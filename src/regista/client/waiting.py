"""Waiting for many jobs at once: in windows that fit a request, and as they end."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

T = TypeVar("T")

#: How many ids go in one request.
_WINDOW = 500


def windows(job_ids: Sequence[str]) -> list[Sequence[str]]:
    """The ids, each once, in portions that fit a request."""
    distinct = list(dict.fromkeys(job_ids))
    return [distinct[start : start + _WINDOW] for start in range(0, len(distinct), _WINDOW)]


async def merged(sources: Sequence[AsyncIterator[T]]) -> AsyncIterator[T]:
    """What the sources yield, in the order in which it comes. The first error of one ends them all."""
    if len(sources) == 1:
        async for item in sources[0]:
            yield item
        return
    found: asyncio.Queue[T | None] = asyncio.Queue()

    async def pour(source: AsyncIterator[T]) -> None:
        try:
            async for item in source:
                found.put_nowait(item)
        finally:
            found.put_nowait(None)

    pouring = [asyncio.ensure_future(pour(source)) for source in sources]
    try:
        ended = 0
        while ended < len(pouring):
            got = await found.get()
            if got is not None:
                yield got
                continue
            ended += 1
            for task in pouring:
                if task.done():
                    task.result()  # raises what ended it
        await asyncio.gather(*pouring)
    finally:
        for task in pouring:
            task.cancel()
        await asyncio.gather(*pouring, return_exceptions=True)
