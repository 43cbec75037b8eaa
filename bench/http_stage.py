"""The processes of the HTTP benches: orchestrators and workers, started by the command line as a user would."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent
APP = "bench/http_app.py"
TOKENS = {"CLIENT_TOKEN": "bench-client", "WORKER_TOKEN": "bench-worker"}


#: A server as most people run it: an append-only file, flushed every second.
REDIS = [
    "redis-server",
    "--bind",
    "127.0.0.1",
    "--save",
    "",
    "--appendonly",
    "yes",
    "--appendfsync",
    "everysec",
]


def wait_for_port(port: int, timeout_s: float = 10.0) -> None:
    """Return when somebody listens there."""
    give_up = time.monotonic() + timeout_s
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.01)


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/_public/ready", timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def free_port() -> int:
    """A port that nobody uses right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class House:
    """Orchestrators (mostly one) on a store, and workers spread over them, each a process.

    `storage` is `memory`, `sqlite`, or `redis`: then a server of its own is started, as `REDIS` says.
    """

    def __init__(
        self,
        folder: Path,
        storage: str = "sqlite",
        workers: int = 1,
        settings: dict[str, str] | None = None,
        orchestrators: int = 1,
    ) -> None:
        self._folder = folder
        self._ports = [free_port() for _ in range(orchestrators)]
        self.port = self._ports[0]
        self.urls = [f"http://127.0.0.1:{port}" for port in self._ports]
        self.url = self.urls[0]
        self.token = TOKENS["CLIENT_TOKEN"]
        self.worker_token = TOKENS["WORKER_TOKEN"]
        #: Where the server listens, if there is one.
        self.redis_port = free_port() if storage == "redis" else 0
        stores = {"memory": "memory", "redis": f"redis://127.0.0.1:{self.redis_port}/0"}
        self._storage = stores.get(storage, f"sqlite:{folder / 'jobs.db'}")
        self._settings = dict(settings or {})
        self._workers = workers
        self.processes: dict[str, list[subprocess.Popen[bytes]]] = {}

    def __enter__(self) -> "House":
        if self.redis_port:
            self._folder.mkdir(parents=True, exist_ok=True)
            self.spawn(
                "redis", [*REDIS, "--port", str(self.redis_port), "--dir", str(self._folder.resolve())]
            )
            wait_for_port(self.redis_port)
        for port in self._ports:
            self.start("orchestrator", "serve", APP, "--port", str(port), "--storage", self._storage)
        for number in range(self._workers):
            self._settings |= {"WORKER_ID": f"bench-{number}"}
            self.start("worker", "worker", APP, "--url", self.urls[number % len(self.urls)])
        return self

    def start(self, role: str, *arguments: str) -> None:
        """One process of the command line."""
        self.spawn(role, [sys.executable, "-m", "regista", *arguments])

    def spawn(self, role: str, command: list[str]) -> None:
        """One process."""
        environment = os.environ | TOKENS | {"LOG_LEVEL": "WARNING"} | self._settings
        # An installed package has its bytecode: a start must not compile everything anew.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        with (self._folder / f"{role}.log").open("ab") as log:
            process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
        self.processes.setdefault(role, []).append(process)

    def wait_ready(self, timeout_s: float = 30.0) -> None:
        """Return when every orchestrator takes work. Blocks: nothing else runs here."""
        give_up = time.monotonic() + timeout_s
        for url in self.urls:
            while not _is_ready(url):
                if time.monotonic() > give_up:
                    raise TimeoutError(f"{url} did not start; see {self._folder / 'orchestrator.log'}")
                time.sleep(0.005)

    def cpu_s(self, role: str) -> float:
        """CPU seconds that the processes of a role have used so far."""
        times = [psutil.Process(process.pid).cpu_times() for process in self.processes[role]]
        return sum(each.user + each.system for each in times)

    def rss_mib(self, role: str) -> float:
        """Resident memory of a role."""
        return sum(psutil.Process(process.pid).memory_info().rss for process in self.processes[role]) / 2**20

    def __exit__(self, *_: object) -> None:
        for role in ("worker", "orchestrator", "redis"):
            for process in self.processes.get(role, []):
                process.terminate()
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
