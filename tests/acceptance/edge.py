"""The edge: nginx, orchestrators behind it, workers and clients before it, all of them real processes."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.acceptance.nginx_kit import TOKENS, Nginx, end, nginx_binary
from tests.acceptance.processes import OURS
from tests.ports import free_port

APP = """
import asyncio

from regista import StateMachineBlueprint, Worker

worker = Worker("crew", concurrency=4)
greet, nap, steps = (StateMachineBlueprint(name) for name in ("greet", "nap", "steps"))


@greet.handler_for("start", is_start=True)
def start(context, actions):
    actions.dispatch_task("say_hello", context.initial_data, transitions={"success": "done"})


@nap.handler_for("start", is_start=True)
def sleep(context, actions):
    actions.sleep(context.initial_data["seconds"], then="done")


@steps.handler_for("start", is_start=True)
def first(context, actions):
    actions.sleep(0.3, then="second")


@steps.handler_for("second")
def second(context, actions):
    actions.sleep(0.3, then="done")


@greet.handler_for("done", is_end=True)
@nap.handler_for("done", is_end=True)
@steps.handler_for("done", is_end=True)
def done(context, actions):
    actions.set_result(context.state_history.get("greeting"))


@worker.task("say_hello")
async def say_hello(params):
    await asyncio.sleep(params.get("seconds", 0))
    return {"greeting": f"Hello, {params['name']}!"}
"""


class Orchestrator:
    """A process of `regista serve` with a store of its own, or a shared one."""

    def __init__(self, folder: Path, name: str, storage: str, env: dict[str, str]) -> None:
        self.name = name
        self.port = free_port()
        self._folder = folder
        self._storage = storage
        self._env = env | {"INSTANCE_ID": name}
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Begin to start. Its second life has the address of its first."""
        flags = ["--port", str(self.port), "--storage", self._storage, "--dir", f"{self.name}.regista"]
        command = [sys.executable, "-m", "regista", "serve", "app.py", "--json", *flags]
        with (self._folder / f"{self.name}.log").open("a") as log:
            self.process = subprocess.Popen(
                command, cwd=self._folder, env=self._env, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def greet(self) -> None:
        """Returns when it takes requests."""
        assert self.process is not None
        assert self.process.stdout is not None
        greeting = self.process.stdout.readline()
        assert self.url in greeting, (self._folder / f"{self.name}.log").read_text()

    @property
    def url(self) -> str:
        """Where it is without nginx."""
        return f"http://127.0.0.1:{self.port}"

    def end(self, number: int = signal.SIGTERM) -> None:
        """Send a signal, and return when the process is gone. Twice is fine."""
        if self.process is not None:
            process, self.process = self.process, None
            end(process, number)


class Edge:
    """Orchestrators, one for each storage, with an nginx before them; and the workers that come to it.

    `storages` may name one store several times where the store can be shared.
    """

    def __init__(self, folder: Path, storages: Sequence[str], *, mutual: bool = False, **env: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "app.py").write_text(APP)
        self.folder = folder
        self._mutual = mutual
        nginx_binary()  # before anything is started: without it there is nothing to test
        inherited = {name: value for name, value in os.environ.items() if name not in OURS}
        self.env = inherited | {"PYTHONWARNINGS": "error"} | TOKENS | env
        self.orchestrators = [
            Orchestrator(folder, f"orchestrator-{number}", storage, self.env)
            for number, storage in enumerate(storages, 1)
        ]
        self._workers: list[tuple[subprocess.Popen[bytes], Path]] = []
        self._hired = 0
        self.nginx: Nginx

    def start(self) -> None:
        for orchestrator in self.orchestrators:
            orchestrator.start()
        for orchestrator in self.orchestrators:
            orchestrator.greet()
        ports = [each.port for each in self.orchestrators]
        self.nginx = Nginx(self.folder / "nginx", ports, self._mutual)
        # The certificate is nobody's but ours; Python's own way to say whom to trust does for all our programs.
        self.env |= {"SSL_CERT_FILE": str(self.nginx.ca), "REGISTA_URL": self.nginx.url}
        self.nginx.start()

    def stop(self) -> None:
        """Workers first, who would otherwise look for an orchestrator. Whatever fails, everything is ended."""
        with ExitStack() as last_first:
            for orchestrator in self.orchestrators:
                last_first.callback(orchestrator.end)
            if hasattr(self, "nginx"):
                last_first.callback(self.nginx.stop)
            for _ in self._workers:
                last_first.callback(self.dismiss)

    def worker(self, **env: str) -> Callable[[], str]:
        """A `regista worker` process that comes through nginx; returns what it has logged so far."""
        self._hired += 1
        path = self.folder / f"worker-{self._hired}.log"
        with path.open("w") as log:
            command = [sys.executable, "-m", "regista", "worker", "app.py", "--url", self.nginx.url]
            worker = subprocess.Popen(command, cwd=self.folder, env=self.env | env, stderr=log)
        self._workers.append((worker, path))
        return path.read_text

    def dismiss(self) -> None:
        """The newest worker leaves in good order."""
        process, log = self._workers.pop()
        code = end(process)
        assert code == 0, f"it left with {code}:\n{log.read_text()}"

    def program(self, *command: str) -> "subprocess.Popen[str]":
        """A Python program of a client, which comes through nginx."""
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [sys.executable, *command],
            cwd=self.folder,
            env=self.env,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            text=True,
        )

    def said(self, *command: str) -> str:
        """What a `regista` command that must succeed has written."""
        with self.program("-m", "regista", *command) as process:
            out, err = process.communicate(timeout=20)
        assert process.returncode == 0, f"{command}: {process.returncode}\n{err}"
        return out
