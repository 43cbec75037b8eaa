"""An orchestrator that answers what a test wants it to, however odd, and counts what it is asked."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from regista.workers.protocol import frames

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]

#: A welcome with a lease of three seconds.
WELCOME = frames.encode([frames.WelcomeFrame([], 3.0, 1_000_000)])


class OddOrchestrator:
    """Lets workers register, refuses streams, and has no tasks; but for what is given by name.

    The names are those of the worker's requests: register, ws, poll, patch, result, events.
    """

    def __init__(self, **answers: Answer) -> None:
        self._answers = {**_USUAL, **answers}
        self.asked: Counter[str] = Counter()
        #: The bodies of the results that came.
        self.results: list[Any] = []
        self.url = ""

    async def __aenter__(self) -> "OddOrchestrator":
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{tail:.*}", self._answer)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        name = _name_of(request)
        self.asked[name] += 1
        if name == "result":
            self.results.append(await request.json())
        return await self._answers[name](request)


def _name_of(request: web.Request) -> str:
    last = request.path.rsplit("/", 1)[1]
    if last in ("register", "result", "events"):
        return last
    if last == "next":
        return "poll"
    return "ws" if "/ws/" in request.path else "patch"


def says(what: Any = None, status: int = 200) -> Answer:
    """JSON; None is no body at all."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status) if what is None else web.json_response(what, status=status)

    return answer


def greets(*messages: bytes | str) -> Answer:
    """A stream on which these are said after the hello, and nothing more for a while."""

    async def answer(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(protocols=(frames.PROTOCOL,))
        await socket.prepare(request)
        await socket.receive()
        for message in messages:
            await (socket.send_bytes(message) if isinstance(message, bytes) else socket.send_str(message))
        await asyncio.sleep(0.2)
        await socket.close()
        return socket

    return answer


def gives_once(*tasks: dict[str, Any]) -> Answer:
    """These tasks to the first poll; nothing to the others, after a while."""
    left = [list(tasks)]

    async def answer(request: web.Request) -> web.StreamResponse:
        if left:
            return web.json_response({"tasks": left.pop()})
        await asyncio.sleep(0.6)
        return web.Response(status=204)

    return answer


async def hangs_up(request: web.Request) -> web.StreamResponse:
    """Cuts the connection instead of answering."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


_USUAL: dict[str, Answer] = {
    "register": says({"session": 1, "cluster_id": "c", "lease_seconds": 3}),
    "ws": says(status=426),
    "poll": gives_once(),
    "patch": says({}),
    "result": says({}),
    "events": says({}),
}
