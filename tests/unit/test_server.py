"""The listening socket: opening and closing."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from regista import Config, OrchestratorEngine
from regista.server import HttpServer
from tests.certificates import Authority

MakeLoop = Callable[[], asyncio.AbstractEventLoop]
LOOPS: list[MakeLoop] = [asyncio.new_event_loop, uvloop.new_event_loop]


async def opened(**settings: Any) -> tuple[OrchestratorEngine, HttpServer]:
    config = Config(client_token="t-client", worker_token="t-worker", **settings)
    director = OrchestratorEngine("memory", config)
    server = HttpServer(director.app, "127.0.0.1", 0)
    await director.start()
    await server.start()
    return director, server


@pytest.mark.parametrize("turns", range(5))
def test_client_that_connects_while_the_server_stops_is_disconnected(turns: int) -> None:
    # It takes uvloop several turns from accepting a connection to `connection_made`. Python's own loop may lose a
    # connection that it has just accepted when the listener is closed.
    async def main() -> None:
        director, server = await opened()
        lines = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(3)]
        for _ in range(turns):
            await asyncio.sleep(0)
        async with asyncio.timeout(1):  # nobody has asked for anything: there is nothing to wait for
            await server.stop()
        await director.stop()
        for line in lines:
            line.settimeout(0.0)
            for _ in range(3):
                await asyncio.sleep(0)
            with contextlib.suppress(ConnectionResetError):
                assert line.recv(1) == b""
            line.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


@pytest.mark.parametrize("turns", range(1, 6))
@pytest.mark.parametrize("make_loop", LOOPS)
def test_cancelled_stop_closes_the_port(turns: int, make_loop: MakeLoop) -> None:
    async def main() -> None:
        director, server = await opened()
        stopping = asyncio.create_task(server.stop())
        for _ in range(turns):
            await asyncio.sleep(0)
        stopping.cancel()
        await asyncio.gather(stopping, return_exceptions=True)
        await asyncio.sleep(0.01)  # uvloop closes with its next turn
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", server.port))
        await director.stop()

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(main())


@pytest.mark.parametrize("make_loop", LOOPS)
def test_client_that_finishes_its_tls_handshake_after_the_stop_is_disconnected(
    make_loop: MakeLoop, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    trust = ssl.create_default_context(cafile=authority.ca)

    async def main() -> None:
        director, server = await opened(**authority.served)
        late = socket.create_connection(("127.0.0.1", server.port))
        await asyncio.sleep(0.05)  # it is accepted, and says nothing yet
        await server.stop()
        await director.stop()

        def knock() -> bytes:
            late.settimeout(2)
            with trust.wrap_socket(late, server_hostname="127.0.0.1") as line:
                line.sendall(b"GET /_public/live HTTP/1.1\r\nHost: x\r\n\r\n")
                return line.recv(1)

        with contextlib.suppress(ConnectionError, ssl.SSLError):
            assert await asyncio.to_thread(knock) == b""
        late.close()

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(main())
