"""Site: a port that opens and closes."""

import asyncio
import contextlib
import socket
from collections.abc import Callable

import pytest
import uvloop

from regista import Config, OrchestratorEngine
from regista.site import Site


@pytest.mark.parametrize("turns", range(5))
@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_whoever_connects_while_the_site_closes_is_not_left_connected(
    turns: int, make_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    # From a connection that was taken to one that is known it takes a loop several turns.
    async def main() -> None:
        director = OrchestratorEngine("memory", Config(client_token="t-client", worker_token="t-worker"))
        site = Site(director.app, "127.0.0.1", 0)
        await director.start()
        await site.start()
        lines = [socket.create_connection(("127.0.0.1", site.port)) for _ in range(3)]
        for _ in range(turns):
            await asyncio.sleep(0)
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
