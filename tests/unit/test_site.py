"""Site: a port that opens and closes."""

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
from regista.site import Site
from tests.certificates import Authority

MakeLoop = Callable[[], asyncio.AbstractEventLoop]
LOOPS: list[MakeLoop] = [asyncio.new_event_loop, uvloop.new_event_loop]


async def opened(**settings: Any) -> tuple[OrchestratorEngine, Site]:
    config = Config(client_token="t-client", worker_token="t-worker", **settings)
    director = OrchestratorEngine("memory", config)
    site = Site(director.app, "127.0.0.1", 0)
    await director.start()
    await site.start()
    return director, site


@pytest.mark.parametrize("turns", range(5))
@pytest.mark.parametrize("make_loop", LOOPS)
def test_whoever_connects_while_the_site_closes_is_not_left_connected(
    turns: int, make_loop: MakeLoop
) -> None:
    # From a connection that was taken to one that is known it takes a loop several turns.
    async def main() -> None:
        director, site = await opened()
        lines = [socket.create_connection(("127.0.0.1", site.port)) for _ in range(3)]
        for _ in range(turns):
            await asyncio.sleep(0)
        async with asyncio.timeout(1):  # nobody has asked for anything: there is nothing to wait for
            await site.stop()
        await director.stop()
        for line in lines:
            line.settimeout(0.0)
            for _ in range(3):
                await asyncio.sleep(0)
            with contextlib.suppress(ConnectionResetError):
                assert line.recv(1) == b""
            line.close()

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(main())


@pytest.mark.parametrize("turns", range(1, 6))
@pytest.mark.parametrize("make_loop", LOOPS)
def test_a_stop_that_is_cancelled_closes_the_port_all_the_same(turns: int, make_loop: MakeLoop) -> None:
    async def main() -> None:
        director, site = await opened()
        stopping = asyncio.create_task(site.stop())
        for _ in range(turns):
            await asyncio.sleep(0)
        stopping.cancel()
        await asyncio.gather(stopping, return_exceptions=True)
        await asyncio.sleep(0.01)  # uvloop closes with its next turn
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", site.port))
        await director.stop()

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(main())


@pytest.mark.parametrize("make_loop", LOOPS)
def test_whoever_ends_the_handshake_after_the_site_has_closed_is_closed_too(
    make_loop: MakeLoop, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    trust = ssl.create_default_context(cafile=authority.ca)

    async def main() -> None:
        director, site = await opened(**authority.served)
        late = socket.create_connection(("127.0.0.1", site.port))
        await asyncio.sleep(0.05)  # it is accepted, and says nothing yet
        await site.stop()
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
