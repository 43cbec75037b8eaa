"""Streams whose reader has gone."""

import asyncio
import logging

import aiohttp
import pytest
from aiohttp import web

from regista.api.events import all_events
from regista.api.stage import CLIENT, STAGE
from regista.model import ClientConfig
from tests.acceptance.serving import House, serving
from tests.cut_kit import errors
from tests.support import one_task


async def _hung_up(request: web.Request) -> web.StreamResponse:
    """The handler's first step, on a connection that is being closed: nobody has told the handler yet."""
    request[CLIENT] = ClientConfig(name="ada")
    assert request.transport is not None
    request.transport.close()
    return await all_events(request)


async def _hung_up_on_a_socket(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.close()
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    await socket.send_str("hello?")
    return socket


async def _ask(house: House, path: str) -> None:
    stage = house.director.app[STAGE]
    app = web.Application(middlewares=[errors])
    app[STAGE] = stage
    app.router.add_get("/events", _hung_up)
    app.router.add_get("/socket", _hung_up_on_a_socket)
    runner = web.AppRunner(app, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}{path}"
        with pytest.raises(aiohttp.ClientError):
            async with house.session.get(url, headers=_UPGRADE) as answer:
                await answer.read()
    finally:
        await runner.cleanup()


_UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


@pytest.mark.parametrize("path", ["/events", "/socket"])
def test_whoever_hangs_up_before_the_first_byte_is_no_error_of_ours(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with serving(one_task()) as house:
            await _ask(house, path)

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert [record.getMessage() for record in caplog.records] == []
