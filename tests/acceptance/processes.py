"""Real processes of the command line, in a directory of their own, ended with the test."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from regista.config import CONNECTION_SETTINGS, SETTINGS, WORKER_SETTINGS
from tests.ports import free_port

__all__ = ["APP", "OURS", "House", "free_port"]

#: How long a command that ends may take.
PATIENCE_S = 20.0

#: Nothing of the developer's own settings reaches a test.
OURS = {setting.env for setting in (*SETTINGS, *WORKER_SETTINGS, *CONNECTION_SETTINGS)}

APP = """
from regista import PermanentError, StateMachineBlueprint, Worker

worker = Worker("crew", concurrency=4)


def one_task(name, task):
    blueprint = StateMachineBlueprint(name)

    @blueprint.handler_for("start", is_start=True)
    def start(context, actions):
        actions.dispatch_task(task, context.initial_data, transitions={"success": "done"})

    @blueprint.handler_for("done", is_end=True)
    def done(context, actions):
        actions.set_result(context.state_history.get("greeting"))

    return blueprint


greet = one_task("greet", "say_hello")
broken = one_task("broken", "break")
lonely = one_task("lonely", "nobody_can")

doomed = StateMachineBlueprint("doomed")


@doomed.handler_for("start", is_start=True)
def give_up(context, actions):
    actions.fail("it was never going to work")


ask = StateMachineBlueprint("ask")


@ask.handler_for("start", is_start=True)
def start(context, actions):
    actions.await_human_approval("Really?", transitions={"approve": "yes", "reject": "no"})


@ask.handler_for("yes", is_end=True)
def yes(context, actions):
    actions.set_result("yes")


@ask.handler_for("no", is_end=True, outcome="failed")
def no(context, actions):
    actions.set_result("no")


@worker.task("say_hello")
async def say_hello(params):
    return {"greeting": f"Hello, {params['name']}!"}


@worker.task("break")
async def break_it(params):
    raise PermanentError("the file is broken")
"""


class House:
    """A directory with an app, and the processes that were started in it."""

    def __init__(self, folder: Path, app: str = APP) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._started: list[subprocess.Popen[str]] = []
        (folder / "app.py").write_text(app)
        self.env = {name: value for name, value in os.environ.items() if name not in OURS}
        self.env |= {
            "PYTHONWARNINGS": "error",
            "REGISTA_URL": self.url,
            "ORCHESTRATOR_URL": self.url,
            "API_PORT": str(self.port),
        }

    def set(self, **env: str) -> None:
        """More of the environment, for everything that is started from now on."""
        self.env |= env

    def start(self, *command: str) -> "subprocess.Popen[str]":
        """A command that stays; its standard error goes to a file."""
        log = (self.folder / f"{len(self._started)}-{command[0]}.log").open("w")
        process = subprocess.Popen(
            [sys.executable, "-m", "regista", *command],
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        log.close()
        self._started.append(process)
        return process

    def serve(self, *flags: str, command: str = "serve") -> "subprocess.Popen[str]":
        """An orchestrator that takes requests when this returns."""
        process = self.start(command, "app.py", *flags)
        assert process.stdout is not None
        greeting = process.stdout.readline()
        assert self.url in greeting, f"{greeting}{self.logs()}"
        return process

    def run(
        self, *command: str, input: str | None = None, patience_s: float = PATIENCE_S, **env: str
    ) -> "subprocess.CompletedProcess[str]":
        """A command that ends."""
        return subprocess.run(
            [sys.executable, "-m", "regista", *command],
            cwd=self.folder,
            env=self.env | env,
            input=input,
            capture_output=True,
            text=True,
            timeout=patience_s,
        )

    def said(self, *command: str, **env: str) -> str:
        """What a command that must succeed has written."""
        done = self.run(*command, patience_s=PATIENCE_S, **env)
        assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stderr}{self.logs()}"
        return done.stdout

    def shell(self, script: str) -> "subprocess.CompletedProcess[str]":
        """A piece of a shell script, with `regista` and `python` being ours."""
        path = f"{Path(sys.executable).parent}:{self.env['PATH']}"
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.folder,
            env=self.env | {"PATH": path},
            capture_output=True,
            text=True,
            timeout=20,
        )

    def logs(self) -> str:
        """What every process has logged."""
        return "".join(f"\n--- {log.name}\n{log.read_text()}" for log in sorted(self.folder.glob("*.log")))

    def until(self, true: Callable[[], bool], what: str, patience_s: float = 8.0) -> None:
        """Wait until something is so."""
        end = time.monotonic() + patience_s
        while not true():
            assert time.monotonic() < end, f"{what} did not happen{self.logs()}"
            time.sleep(0.05)

    def until_logged(self, pattern: str, patience_s: float = 8.0) -> None:
        """Wait until some process has logged it."""
        self.until(lambda: re.search(pattern, self.logs()) is not None, pattern, patience_s)

    def end(self, process: "subprocess.Popen[str]", number: int = signal.SIGTERM) -> int:
        """Send a signal, and wait; the exit code."""
        with process:
            process.send_signal(number)
            return process.wait(10)

    def close(self) -> None:
        """End whatever still runs: workers before the orchestrator that they would otherwise look for."""
        for process in reversed(self._started):
            with process:
                if process.poll() is None:
                    process.terminate()
                try:
                    process.wait(8)
                except subprocess.TimeoutExpired:
                    process.kill()
