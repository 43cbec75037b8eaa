#!/usr/bin/env python3
"""Counts which functions of which files run for one job, from its submission to its end.

    python scripts/walk.py            # from the project's root, with the project's environment
    python scripts/walk.py --files    # only the files

Starts `regista serve` and `regista worker` in a temporary folder. Records what runs in both while nothing happens (to leave
out heartbeats and timers), then while one job is submitted over HTTP, runs one task and ends. Prints, for each process, the
files in the order in which the job first enters them, with their functions. It uses only the command line and the HTTP API.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

RECORDER = Path(__file__).resolve().parent / "_walk"
APP = """
from regista import StateMachineBlueprint, Worker
blueprint, worker = StateMachineBlueprint("walk"), Worker()
@blueprint.handler_for("start", is_start=True)
async def start(context, actions): actions.dispatch_task("step", {"x": 1}, transitions={"success": "done"})
@blueprint.handler_for("done", is_end=True)
async def done(context, actions): actions.set_result(context.state_history["y"])
@worker.task("step")
async def step(params): return {"y": params["x"] + 1}
"""
#: Seconds to record while nothing happens: longer than every heartbeat and timer.
IDLE_S = 11.0
#: What ran in one process: file of the package and qualified name of the function, in order of the first call.
Steps = list[tuple[str, str]]


def walk() -> dict[str, dict[str, list[str]]]:
    """Process → file → functions that run for one job and not while idle."""
    with tempfile.TemporaryDirectory(prefix="walk-") as name:
        folder = Path(name)
        (folder / "app.py").write_text(APP)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{free.getsockname()[1]}"
        with process(folder, "server", "serve", "app.py", "--port", url.rpartition(":")[2]):
            wait_for(lambda: bool(call(folder, url, "GET", "/api/v1/me")))
            with process(folder, "worker", "worker", "app.py", "--url", url):
                run_one_job(folder, url)  # imports and caches of the first use
                time.sleep(1)
                idle = recorded(folder, lambda: time.sleep(IDLE_S))
                busy = recorded(folder, lambda: run_one_job(folder, url))
    found: dict[str, dict[str, list[str]]] = {}
    for role in ("server", "worker"):
        files = found[role] = {}
        for file, function in busy[role]:
            if (file, function) not in idle[role]:
                files.setdefault(file, []).append(function)
    return found


@contextmanager
def process(folder: Path, role: str, *args: str) -> Iterator[None]:
    """`regista ARGS` in this folder, observed by the recorder; stopped at the end."""
    env = dict(os.environ, WALK_DIR=str(folder), WALK_ROLE=role, PYTHONPATH=str(RECORDER))
    command = [str(Path(sys.executable).with_name("regista")), *args]
    with (folder / f"{role}.log").open("w") as log:
        started = subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield
    finally:
        started.send_signal(signal.SIGTERM)
        try:
            started.wait(10)
        except subprocess.TimeoutExpired:
            started.kill()


def recorded(folder: Path, action: Callable[[], None]) -> dict[str, Steps]:
    """What ran in each process during the action and the second after it."""
    for file in folder.glob("*.tsv"):
        file.unlink()
    (folder / "recording").touch()
    time.sleep(0.2)
    action()
    time.sleep(1)
    (folder / "recording").unlink()
    wait_for(lambda: len(list(folder.glob("*.tsv"))) == 2)
    steps: dict[str, Steps] = {}
    for file in folder.glob("*.tsv"):
        rows = [line.split("\t") for line in file.read_text().splitlines()]
        steps[file.stem] = [(row[0], row[1]) for row in rows]
    return steps


def run_one_job(folder: Path, url: str) -> None:
    job = call(folder, url, "POST", "/api/v1/jobs", {"blueprint": "walk", "input": {}})
    wait_for(lambda: call(folder, url, "GET", f"/api/v1/jobs/{job['id']}")["status"] == "finished")


def call(folder: Path, url: str, method: str, path: str, body: Any = None) -> Any:
    """The decoded answer; None while nothing answers."""
    tokens = list((folder / ".regista").glob("client*token*"))
    if not tokens:
        return None
    headers = {"Content-Type": "application/json", "X-Client-Token": tokens[0].read_text().strip()}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{url}{path}", method=method, data=data, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.loads(answer.read())
    except ConnectionRefusedError:
        return None
    except urllib.error.URLError as error:
        if isinstance(error.reason, ConnectionRefusedError):
            return None
        raise


def wait_for(condition: Callable[[], bool], within_s: float = 30.0) -> None:
    end = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"expected {condition} to hold within {within_s:g} s")
        time.sleep(0.05)


def main() -> None:
    for role, files in walk().items():
        print(f"{role}: {sum(map(len, files.values()))} functions in {len(files)} files")
        for file, functions in files.items():
            print(f"  {file}")
            if "--files" not in sys.argv:
                print("\n".join(f"      {function}" for function in functions))


if __name__ == "__main__":
    main()
