"""Site: an application on a port, and a process that serves until it is told to stop."""

import asyncio
import gc
import logging
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

from aiohttp import web

from .aio import event_loop_class
from .api.app import handler_args
from .api.connection import Runner
from .api.stage import STAGE
from .config import Config
from .errors import ConfigError
from .wire.tls import Files, Served

if TYPE_CHECKING:
    from .orchestrator import OrchestratorEngine

log = logging.getLogger("regista")

#: How long an answer that is under way may take when the site closes. Streams and polls end at once.
_LAST_WORDS_S = 2.0
#: Turns of the loop that an accepted connection may take until it is one of ours.
_TURNS_TO_CONNECT = 3
#: Objects between two looks of the garbage collector.
_COLLECT_EVERY = 20_000


class Site:
    """One listening address. Building it reads the certificates: a mistake in them stops the start."""

    def __init__(self, app: web.Application, host: str, port: int) -> None:
        self.host = host
        self.port = port
        config = app[STAGE].config
        refuse_closed(config)
        self._tls = tls_of(config)
        self._handshake_s = config.body_timeout_s
        self._runner = Runner(app, handler_args(config), _LAST_WORDS_S)

    @property
    def url(self) -> str:
        """Where requests go."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self._tls is None else 'https'}://{host}:{self.port}"

    def reload(self) -> bool:
        """Read the certificates again. False, and all stays as it was, when there is a mistake in them."""
        return self._tls is None or self._tls.reload()

    async def start(self) -> None:
        """Listen. Port 0 becomes the one that was free."""
        await self._runner.setup()
        try:
            await _Port(self._runner, self.host, self.port, self._tls, self._handshake_s).start()
        except BaseException:
            await self._runner.cleanup()
            raise
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close the port, end what streams, and let the last answers out."""
        await self._runner.cleanup()


class _Port(web.BaseSite):
    """A port of this site. aiohttp's own would let a stranger take a minute for half a handshake."""

    def __init__(self, runner: Runner, host: str, port: int, tls: Served | None, handshake_s: float) -> None:
        super().__init__(runner, ssl_context=None if tls is None else tls.context, backlog=1024)
        self._host = host
        self._port = port
        self._handshake_s = None if tls is None else handshake_s

    @property
    def name(self) -> str:
        return f"{self._host}:{self._port}"

    async def start(self) -> None:
        await super().start()
        assert self._runner.server is not None
        self._server = await asyncio.get_running_loop().create_server(
            self._runner.server,
            self._host,
            self._port,
            ssl=self._ssl_context,
            backlog=self._backlog,
            ssl_handshake_timeout=self._handshake_s,
        )

    async def stop(self) -> None:
        """Take nobody new, and then close.

        asyncio takes some turns from a connection that it has accepted to one that it tells us of. Where the port is
        closed meanwhile, it loses the connection without a word, and whoever came last waits until it is collected.
        """
        loop = asyncio.get_running_loop()
        for listening in getattr(self._server, "sockets", ()):
            loop.remove_reader(listening.fileno())  # uvloop listens in another way, and loses nobody
        try:
            for _ in range(_TURNS_TO_CONNECT):
                await asyncio.sleep(0)
        finally:
            await super().stop()  # also for whoever has no time: a port that stays open is nobody's any more


def tls_of(config: Config) -> Served | None:
    """The TLS that the settings ask for; None: plain HTTP. ConfigError when they ask for what cannot be."""
    files = Files(config.tls_cert_path, config.tls_key_path, config.tls_ca_path)
    asked = bool(files.cert) or config.tls_require_client_cert
    if asked if config.tls_enabled is None else config.tls_enabled:
        return Served(files, require=config.tls_require_client_cert)
    return None


def refuse_closed(config: Config) -> None:
    """ConfigError when workers must show certificates that nobody here could see."""
    seen = config.tls_ca_path and config.tls_cert_path and config.tls_enabled is not False
    if config.worker_auth_mode == "mtls-only" and not seen and not config.trusted_proxies:
        expected = (
            "another mode, or somebody who can check certificates of workers: ourselves (TLS_CERT_PATH, TLS_KEY_PATH "
            "and TLS_CA_PATH, the authority of the workers), or a proxy (REGISTA_TRUSTED_PROXIES)"
        )
        raise ConfigError("WORKER_AUTH_MODE", expected, "mtls-only with neither, so no worker could come in")


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
    with asyncio.Runner(loop_factory=event_loop_class()) as runner:
        runner.run(_run(director, host, port, greet))


async def _run(
    director: "OrchestratorEngine", host: str | None, port: int | None, greet: Callable[[Site], None] | None
) -> None:
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    loop.add_signal_handler(signal.SIGHUP, director.reload)
    site = await _started(director, host, port, told)
    if site is None:
        return
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


async def _started(
    director: "OrchestratorEngine", host: str | None, port: int | None, told: asyncio.Event
) -> Site | None:
    """The site once it takes requests. None when we were told to stop before: a start may wait for long."""
    loop = asyncio.get_running_loop()
    starting, asked = loop.create_task(director.serve(host, port)), loop.create_task(told.wait())
    await asyncio.wait([starting, asked], return_when=asyncio.FIRST_COMPLETED)
    asked.cancel()
    if not starting.done():
        starting.cancel()  # a start that fails leaves nothing open
        await asyncio.gather(starting, return_exceptions=True)
        return None
    return starting.result()
