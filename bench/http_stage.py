"""The processes of the HTTP benches: an orchestrator and a worker, started by the command line as a user would."""

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


def free_port() -> int:
    """A port that nobody uses right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class House:
    """One orchestrator and, if wished, one worker, each a process."""

    def __init__(
        self, folder: Path, storage: str = "sqlite", workers: int = 1, settings: dict[str, str] | None = None
    ) -> None:
        self._folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.token = TOKENS["CLIENT_TOKEN"]
        self.worker_token = TOKENS["WORKER_TOKEN"]
        self._storage = "memory" if storage == "memory" else f"sqlite:{folder / 'jobs.db'}"
        self._settings = settings or {}
        self._workers = workers
        self.processes: dict[str, list[subprocess.Popen[bytes]]] = {}

    def __enter__(self) -> "House":
        self.start("orchestrator", "serve", APP, "--port", str(self.port), "--storage", self._storage)
        for _ in range(self._workers):
            self.start("worker", "worker", APP, "--url", self.url)
        return self

    def start(self, role: str, *arguments: str) -> None:
        """One process of the command line."""
        self.spawn(role, [sys.executable, "-m", "regista", *arguments])

    def spawn(self, role: str, command: list[str]) -> None:
        """One process."""
        environment = os.environ | TOKENS | {"LOG_LEVEL": "WARNING"} | self._settings
        with (self._folder / f"{role}.log").open("ab") as log:
            process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
        self.processes.setdefault(role, []).append(process)

    def wait_ready(self, timeout_s: float = 30.0) -> None:
        """Return when the orchestrator takes work. Blocks: nothing else runs here."""
        give_up = time.monotonic() + timeout_s
        while time.monotonic() < give_up:
            try:
                with urllib.request.urlopen(f"{self.url}/_public/ready", timeout=1) as answer:
                    if answer.status == 200:
                        return
            except OSError:
                time.sleep(0.005)
        raise TimeoutError(f"the orchestrator did not start; see {self._folder / 'orchestrator.log'}")

    def cpu_s(self, role: str) -> float:
        """CPU seconds that the processes of a role have used so far."""
        times = [psutil.Process(process.pid).cpu_times() for process in self.processes[role]]
        return sum(each.user + each.system for each in times)

    def rss_mib(self, role: str) -> float:
        """Resident memory of a role."""
        return sum(psutil.Process(process.pid).memory_info().rss for process in self.processes[role]) / 2**20

    def __exit__(self, *_: object) -> None:
        for role in ("worker", "orchestrator"):
            for process in self.processes.get(role, []):
                process.terminate()
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
