"""Site: an application on a port, and a process that serves until it is told to stop."""

import asyncio
import gc
import logging
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

from aiohttp import web

from .api.app import handler_args
from .api.connection import Runner
from .api.stage import STAGE
from .loops import fastest

if TYPE_CHECKING:
    from .orchestrator import OrchestratorEngine

log = logging.getLogger("regista")

#: How long an answer that is under way may take when the site closes. Streams and polls end at once.
_LAST_WORDS_S = 2.0
#: Objects between two looks of the garbage collector.
_COLLECT_EVERY = 20_000


class Site:
    """One listening address."""

    def __init__(self, app: web.Application, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self._runner = Runner(app, handler_args(app[STAGE].config), _LAST_WORDS_S)

    @property
    def url(self) -> str:
        """Where requests go."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    async def start(self) -> None:
        """Listen. Port 0 becomes the one that was free."""
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self.host, self.port, backlog=1024).start()
        except BaseException:
            await self._runner.cleanup()
            raise
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close the port, end what streams, and let the last answers out."""
        await self._runner.cleanup()


def run(
    director: "OrchestratorEngine",
    host: str | None,
    port: int | None,
    greet: Callable[[Site], None] | None = None,
) -> None:
    """Serve until a signal or a failed store ends it. `greet` is called once requests are taken."""
    # Our records hold no circles, so the collector finds next to nothing; by default it looks every 700
    # objects, which is a tenth of the time of a busy orchestrator.
    gc.set_threshold(_COLLECT_EVERY)
    with asyncio.Runner(loop_factory=fastest()) as runner:
        runner.run(_run(director, host, port, greet))


async def _run(
    director: "OrchestratorEngine", host: str | None, port: int | None, greet: Callable[[Site], None] | None
) -> None:
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    loop.add_signal_handler(signal.SIGHUP, director.reload)
    site = await director.serve(host, port)
    if greet is not None:
        greet(site)
    else:
        log.info("serving at %s", site.url, extra={"action": "serving"})
    stopped = loop.create_task(director.wait_stopped())
    asked = loop.create_task(told.wait())
    await asyncio.wait([stopped, asked], return_when=asyncio.FIRST_COMPLETED)
    if not stopped.done():
        await director.stop(director.config.stop_grace_s)
    asked.cancel()
    await stopped  # raises what stopped us, if something did
