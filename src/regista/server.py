"""The HTTP server of an application, and the process that serves until a signal."""

import asyncio
import gc
import logging
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

from aiohttp import web

from .aio import event_loop_class
from .api.connection_guard import CONNECTION_GUARDS
from .api.stage import STAGE
from .config import Config
from .errors import ConfigError
from .tls import ServerTls, TlsFiles

if TYPE_CHECKING:
    from .orchestrator import OrchestratorEngine

log = logging.getLogger("regista")

#: Seconds that the responses which are being sent may take when the server stops. Streams and polls end at once.
SHUTDOWN_TIMEOUT_S = 2.0
#: Connections that the operating system may hold until they are accepted.
LISTEN_BACKLOG = 1024
#: New objects between two runs of the garbage collector.
OBJECTS_BETWEEN_COLLECTIONS = 20_000


class HttpServer:
    """One listening address. The constructor reads the certificates; a mistake in them raises ConfigError."""

    def __init__(self, app: web.Application, host: str, port: int) -> None:
        self.host = host
        self.port = port
        config = app[STAGE].config
        check_worker_tls(config)
        self._tls = tls_of(config)
        self._handshake_timeout_s = config.body_timeout_s
        self._guards = app[CONNECTION_GUARDS]
        self._runner = web.AppRunner(app, shutdown_timeout=SHUTDOWN_TIMEOUT_S)
        self._listener: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """Where requests go."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self._tls is None else 'https'}://{host}:{self.port}"

    def reload(self) -> bool:
        """Read the certificates again. Returns False, and keeps the old ones, when there is a mistake in them."""
        return self._tls is None or self._tls.reload()

    async def start(self) -> None:
        """Listen. Port 0 is replaced by the free port that was found."""
        await self._runner.setup()
        self._guards.closing = False
        try:
            self._listener = await self._listen()
        except BaseException:
            await self._runner.cleanup()
            raise
        self.port = self._listener.sockets[0].getsockname()[1]

    async def _listen(self) -> asyncio.Server:
        make_protocol = self._runner.server
        assert make_protocol is not None
        return await asyncio.get_running_loop().create_server(
            self._guards.wrap(make_protocol),
            self.host,
            self.port,
            ssl=None if self._tls is None else self._tls.context,
            backlog=LISTEN_BACKLOG,
            ssl_handshake_timeout=None if self._tls is None else self._handshake_timeout_s,
        )

    async def stop(self) -> None:
        """Stop listening, end streams and polls, and wait for responses that are being sent."""
        self._guards.closing = True
        if self._listener is not None:
            self._listener.close()
        await self._runner.cleanup()


def tls_of(config: Config) -> ServerTls | None:
    """Return the TLS of the settings; None means plain HTTP. Raises ConfigError for settings that contradict."""
    files = TlsFiles(config.tls_cert_path, config.tls_key_path, config.tls_ca_path)
    asked = bool(files.cert) or config.tls_require_client_cert
    if asked if config.tls_enabled is None else config.tls_enabled:
        return ServerTls(files, require=config.tls_require_client_cert)
    return None


def check_worker_tls(config: Config) -> None:
    """Raise ConfigError when workers must show certificates that neither this server nor a proxy checks."""
    checks_here = config.tls_ca_path and config.tls_cert_path and config.tls_enabled is not False
    if config.worker_auth_mode == "mtls-only" and not checks_here and not config.trusted_proxies:
        expected = (
            "another mode, or a server that checks the certificates of workers: this one (TLS_CERT_PATH, "
            "TLS_KEY_PATH and TLS_CA_PATH, the authority of the workers), or a proxy (REGISTA_TRUSTED_PROXIES)"
        )
        raise ConfigError("WORKER_AUTH_MODE", expected, "mtls-only with neither, so no worker could connect")


def serve_until_signal(
    director: "OrchestratorEngine",
    host: str | None,
    port: int | None,
    on_ready: Callable[[HttpServer], None] | None = None,
) -> None:
    """Serve until SIGTERM, SIGINT or a failed store. `on_ready` is called once requests are accepted."""
    # Records contain no reference cycles, so the garbage collector finds next to nothing; with its default of
    # 700 objects it takes a tenth of the time of a busy orchestrator.
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    with asyncio.Runner(loop_factory=event_loop_class()) as runner:
        runner.run(_serve(director, host, port, on_ready))


async def _serve(
    director: "OrchestratorEngine",
    host: str | None,
    port: int | None,
    on_ready: Callable[[HttpServer], None] | None,
) -> None:
    loop = asyncio.get_running_loop()
    stop_requested = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop_requested.set)
    loop.add_signal_handler(signal.SIGHUP, director.reload)
    server = await _start(director, host, port, stop_requested)
    if server is None:
        return
    if on_ready is not None:
        on_ready(server)
    else:
        log.info("serving at %s", server.url, extra={"action": "serving"})
    stopped = loop.create_task(director.wait_stopped())
    requested = loop.create_task(stop_requested.wait())
    await asyncio.wait([stopped, requested], return_when=asyncio.FIRST_COMPLETED)
    if not stopped.done():
        await director.stop(director.config.stop_grace_s)
    requested.cancel()
    await stopped  # raises the failure of the store, if that ended it


async def _start(
    director: "OrchestratorEngine", host: str | None, port: int | None, stop_requested: asyncio.Event
) -> HttpServer | None:
    """Start, which may wait for the store. Returns None if a signal arrives before requests are accepted."""
    loop = asyncio.get_running_loop()
    starting = loop.create_task(director.serve(host, port))
    requested = loop.create_task(stop_requested.wait())
    await asyncio.wait([starting, requested], return_when=asyncio.FIRST_COMPLETED)
    requested.cancel()
    if not starting.done():
        starting.cancel()  # a start that fails leaves nothing open
        await asyncio.gather(starting, return_exceptions=True)
        return None
    return starting.result()
