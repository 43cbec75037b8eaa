"""Parts: those rooms that know nothing of being counted, with somebody who counts before their doors."""

from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar, cast

from ..clock import Clock
from ..payloads.base import FileInfo, Method, PayloadStore
from .metrics import Metrics

T = TypeVar("T")


def counted_start(of: Metrics, start: Callable[..., Awaitable[str]]) -> Callable[..., Awaitable[str]]:
    """What starts the jobs of schedules; each is counted."""

    async def counting(blueprint: str, *rest: Any, **options: Any) -> str:
        job_id = await start(blueprint, *rest, **options)
        of.scheduled.add((blueprint,))
        return job_id

    return counting


class WatchedPayloads:
    """Stands before a payload store: how often, how long, and how it went. Streams and lists are not timed."""

    def __init__(self, payloads: PayloadStore, of: Metrics, clock: Clock) -> None:
        self._inner = payloads
        self._of = of
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def with_own_limits(self, concurrency: int) -> PayloadStore:
        """See `PayloadStore.with_own_limits`."""
        return watched_payloads(self._inner.with_own_limits(concurrency), self._of, self._clock)

    async def put(self, path: str, content: bytes | Path | AsyncIterable[bytes]) -> None:
        """See `PayloadStore.put`."""
        await self._timed("put", self._inner.put(path, content))

    async def get(self, path: str) -> bytes:
        """See `PayloadStore.get`."""
        return await self._timed("get", self._inner.get(path))

    async def find(self, path: str) -> FileInfo | None:
        """See `PayloadStore.find`."""
        return await self._timed("find", self._inner.find(path))

    async def delete(self, paths: Iterable[str]) -> None:
        """See `PayloadStore.delete`."""
        await self._timed("delete", self._inner.delete(paths))

    async def sign(self, path: str, method: Method, expires_s: float) -> str:
        """See `PayloadStore.sign`."""
        return await self._timed("sign", self._inner.sign(path, method, expires_s))

    async def _timed(self, operation: str, work: Awaitable[T]) -> T:
        began, outcome = self._clock.elapsed(), "failed"
        try:
            found = await work
            outcome = "done"
            return found
        finally:
            self._of.payload_operations.add((operation, outcome))
            self._of.payload_duration.observe(self._clock.elapsed() - began, (operation,))


def watched_payloads(payloads: PayloadStore, of: Metrics, clock: Clock) -> PayloadStore:
    """The payload store with somebody who looks; to everybody else it is the payload store."""
    return cast(PayloadStore, WatchedPayloads(payloads, of, clock))
