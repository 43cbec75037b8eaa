"""What tests of webhooks share: deliveries, and receivers on real ports."""

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple, ParamSpec

import msgspec
from aiohttp import web

from regista import Job, JobStatus
from regista.model import Wait
from regista.model.delivery import WebhookDelivery

P = ParamSpec("P")
#: When everything here happened.
THEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an async test on a loop of its own."""

    @functools.wraps(test)
    def run(*arguments: P.args, **named: P.kwargs) -> None:
        asyncio.run(test(*arguments, **named))

    return run


def delivery(
    *,
    job: str = "job-1",
    url: str = "https://hooks.example.com/jobs",
    status: JobStatus = JobStatus.FINISHED,
    client: str = "acme",
    revision: int = 2,
    wait: Wait | None = None,
    **more: Any,
) -> WebhookDelivery:
    """A word about a job that is in this status."""
    told = Job(
        id=job,
        blueprint="script",
        version="v1",
        status=status,
        state="done",
        created_at=THEN,
        updated_at=THEN,
        client=client,
        revision=revision,
        wait=wait,
        result={"n": 1},
    )
    return WebhookDelivery(id=f"{job}-{revision:06d}", event=status.value, at=THEN, url=url, job=told, **more)


class Heard(NamedTuple):
    """A request as it came in."""

    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        return msgspec.json.decode(self.raw)


Reply = Callable[[int], Awaitable[web.StreamResponse]]


class Receiver:
    """A server that keeps what it hears; `reply` says what the nth request (from 1) is answered."""

    def __init__(self) -> None:
        self.heard: list[Heard] = []
        self.port = 0
        self.reply: Reply = _ok
        self._news = asyncio.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    async def take(self, request: web.Request) -> web.StreamResponse:
        self.heard.append(Heard(dict(request.headers), await request.read()))
        self._news.set()
        return await self.reply(len(self.heard))

    async def count(self, number: int, within_s: float = 8.0) -> list[Heard]:
        """What was heard, as soon as it is so much."""
        async with asyncio.timeout(within_s):
            while len(self.heard) < number:
                self._news.clear()
                await self._news.wait()
        return self.heard


async def _ok(number: int) -> web.StreamResponse:
    return web.Response(status=204)


@asynccontextmanager
async def receiving(port: int = 0) -> AsyncIterator[Receiver]:
    """A receiver on a free port, gone afterwards."""
    receiver = Receiver()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", receiver.take)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    receiver.port = runner.addresses[0][1]
    try:
        yield receiver
    finally:
        await runner.cleanup()
