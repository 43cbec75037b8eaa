"""A stream remembers since when its queue of messages was empty."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from aiohttp import WSMessage, WSMsgType, web
from aiohttp.test_utils import make_mocked_request

from regista.api.stage import STAGE, ApiContext
from regista.api.worker_protocol.auth import WORKER_IDENTITY, WorkerIdentity
from regista.api.worker_protocol.stream import WorkerStream
from regista.config import Config
from regista.workers.protocol import frames


class Clock:
    def __init__(self) -> None:
        self.at = 100.0

    def elapsed(self) -> float:
        return self.at


class Workers:
    """Records since when a heartbeat may have been sent."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.began: list[float] = []

    async def heartbeat(self, worker_id: str, session: int, running: Any, *, began: float) -> Any:
        self.began.append(began)
        self._clock.at += 2.0  # the store is slow
        return SimpleNamespace(known=True, cancel=())


def stream_over(clock: Clock, workers: Workers) -> WorkerStream:
    context = SimpleNamespace(
        clock=clock,
        workers=workers,
        config=Config(instance_id="i"),
        limiter=SimpleNamespace(pause_s=lambda *_: 0.0),
        authenticator=SimpleNamespace(tokens=None),
        logins=None,
        dispatcher=SimpleNamespace(find=lambda _: None),
    )
    app = web.Application()
    app[STAGE] = cast(ApiContext, context)
    request = make_mocked_request("GET", "/", app=app)
    request[WORKER_IDENTITY] = WorkerIdentity("certificate", "", "w1")
    streams = SimpleNamespace(heartbeats=None)
    return WorkerStream(web.WebSocketResponse(), "w1", cast(ApiContext, context), cast(Any, streams), request)


async def test_heartbeat_that_waited_behind_another_is_dated_to_when_the_queue_was_empty() -> None:
    clock = Clock()
    workers = Workers(clock)
    stream = stream_over(clock, workers)
    heartbeat = WSMessage(WSMsgType.BINARY, frames.encode([frames.HeartbeatFrame(["a-1"])]), "")

    clock.at += 5.0
    await stream._handle_message(heartbeat)
    await stream._handle_message(heartbeat)  # it was in the queue while the first one was handled
    clock.at += 5.0
    await stream._handle_message(heartbeat)
    await asyncio.sleep(0)

    assert workers.began == [105.0, 105.0, 114.0]
