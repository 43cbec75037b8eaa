"""A real nginx with the configuration of deploy/, on a free port."""

import asyncio
import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import psutil
from yarl import URL

from tests.acceptance.serving import Answer
from tests.certificates import Authority
from tests.conftest import require_binary
from tests.ports import free_port

DEPLOY = Path(__file__).parents[2] / "deploy"
TOKENS = {"CLIENT_TOKEN": "edge-client", "WORKER_TOKEN": "edge-worker"}

#: What nginx's own defaults would put where only root may write.
_PLACES = "".join(
    f"{each}_temp_path tmp/{each};\n" for each in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
)
_SITE = """
listen 127.0.0.1:{port} ssl http2;
server_name localhost;
ssl_certificate     certs/server.pem;
ssl_certificate_key certs/server.key;
access_log access.log regista;
"""
#: The lines that stand in deploy/nginx/regista/site.conf for whoever wants them.
_MUTUAL = """
ssl_client_certificate certs/ca.pem;
ssl_verify_client optional;
"""


def nginx_binary() -> str:
    """Debian keeps it where only root's PATH leads."""
    return shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin") or require_binary("nginx")


def until(true: Callable[[], bool], what: str, patience_s: float = 8.0) -> None:
    """Wait until something is so; `what` says what did not happen."""
    end = time.monotonic() + patience_s
    while not true():
        assert time.monotonic() < end, f"{what} did not happen"
        time.sleep(0.02)


def end(process: "subprocess.Popen[Any]", number: int = signal.SIGTERM, patience_s: float = 8.0) -> int:
    """Send a signal, and wait; the exit code. One that does not heed it is killed."""
    with process:
        process.send_signal(number)
        try:
            return process.wait(patience_s)
        finally:
            process.kill()  # of one that is gone, nothing


class Nginx:
    """An nginx with our configuration, before whatever listens on these ports."""

    def __init__(self, folder: Path, upstreams: Sequence[int], mutual: bool = False) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"https://localhost:{self.port}"
        self.ca = folder / "certs" / "ca.pem"
        self._binary = nginx_binary()
        self._process: subprocess.Popen[bytes] | None = None
        shutil.copytree(DEPLOY / "nginx", folder, ignore=shutil.ignore_patterns("certs"))
        (folder / "conf.d").mkdir()
        (folder / "tmp").mkdir()
        (folder / "conf.d" / "places.conf").write_text(_PLACES)
        self.write("site.conf", _SITE.format(port=self.port) + (_MUTUAL if mutual else ""))
        servers = [f"server 127.0.0.1:{port} max_fails=1 fail_timeout=3s;\n" for port in upstreams]
        self.write("orchestrators.conf", "".join(servers))
        #: Whose certificate it shows, and whose it believes.
        self.authority = Authority(folder / "certs")

    def write(self, name: str, text: str) -> None:
        """One of the files that differ from place to place."""
        (self.folder / "regista" / name).write_text(text)

    def command(self, *more: str) -> list[str]:
        """How it is called. Only root needs to say as whom the processes run: pytest's folders are private."""
        settings = "pid nginx.pid;" + (" user root;" if os.geteuid() == 0 else "")
        place = ["-p", str(self.folder), "-c", "nginx.conf", "-e", "error.log"]
        return [self._binary, *place, "-g", settings, *more]

    def check(self) -> "subprocess.CompletedProcess[str]":
        """What nginx says about its configuration."""
        return subprocess.run(self.command("-t"), capture_output=True, text=True, timeout=9)

    def start(self) -> None:
        """Listen; returns when it does."""
        command = self.command()
        command[command.index("-g") + 1] += " daemon off;"
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        until(lambda: self._listens() or self._process_ended(), f"nginx: {self.errors()}")
        assert not self._process_ended(), self.errors()

    def _process_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        """Twice is fine."""
        if self._process is not None:
            end(self._process)
            self._process = None

    def errors(self) -> str:
        """Its error log."""
        log = self.folder / "error.log"
        return log.read_text() if log.exists() else ""

    def requests(self, path: str = "") -> list[dict[str, Any]]:
        """The lines of the access log, of paths that begin like this."""
        lines = (self.folder / "access.log").read_bytes().splitlines()
        found = [msgspec.json.decode(line, type=dict[str, Any]) for line in lines]
        return [line for line in found if line["path"].startswith(path)]

    @asynccontextmanager
    async def session(
        self,
        address: str = "127.0.0.1",
        url: str = "",
        trust: ssl.SSLContext | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator["Caller"]:
        """Somebody before it, by default with trust in its certificate, and with a client's token."""
        trust = trust or ssl.create_default_context(cafile=str(self.ca))
        connector = aiohttp.TCPConnector(ssl=trust, local_addr=(address, 0), family=socket.AF_INET)
        sent = {"X-Client-Token": TOKENS["CLIENT_TOKEN"], **(headers or {})}
        async with aiohttp.ClientSession(connector=connector, headers=sent) as session:
            yield Caller(url or self.url, session)
        # The last words of TLS are not waited for by the library, and a loop that ends first leaves sockets open.
        await asyncio.to_thread(until, lambda: not self._is_talked_to(address), "the end of every connection")

    def _is_talked_to(self, address: str) -> bool:
        """This process has connections to it from that address."""
        ours = [each for each in psutil.Process().net_connections("tcp4") if each.laddr.ip == address]
        return any(each.raddr[1:] == (self.port,) for each in ours)


@dataclass(frozen=True)
class Caller:
    """Somebody who asks."""

    url: str
    session: aiohttp.ClientSession

    async def ask(self, method: str, path: str, **options: Any) -> Answer:
        """One request, its path sent as it stands here."""
        url = URL(self.url + path, encoded=True)
        async with self.session.request(method, url, **options) as answer:
            return Answer(answer.status, answer.headers, await answer.read())
