"""What a plain orchestrator on SQLite and a plain worker load until their first job is done, and above all what not."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from regista import SyncClient
from tests.ports import free_port

# Two processes that write down what they load; a busy machine takes its time.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(30)]

APP = Path(__file__).parents[2] / "deploy" / "app" / "hello.py"
TOKENS = {"CLIENT_TOKEN": "start-client", "WORKER_TOKEN": "start-worker"}

#: What another store, another setting or another command brings in. (telemetry looks whether its library is there.)
OPTIONAL = {
    *(
        "asyncpg",
        "hiredis",
        "lark",
        "obstore",
        "opentelemetry.sdk",
        "prometheus_client",
        "pytest",
        "redis",
        "rich",
    ),
    *("regista.client", "regista.history.postgres", "regista.storage.redis", "regista.testing"),
}
#: Of the standard library: milliseconds each, and most starts can do without.
SLOW = {
    "importlib.metadata",
    "importlib.resources",
    "multiprocessing",
    "tomllib",
    "zipfile",
    "zoneinfo",
}
#: What an orchestrator without workers of its own can do without, and what only draws its blueprints.
IDLE = {"regista.blueprint.dot", "regista.sdk.local", "regista.sdk.task_runner", "regista.sdk.remote"}
#: What reads and checks the handlers of blueprints, which a worker's app may have.
READING = {"regista.blueprint.source_analysis", "regista.blueprint.compiler", "regista.blueprint.validation"}
#: What an orchestrator is made of, which is no business of a worker.
ORCHESTRATOR = {
    *(
        "aiohttp.web",
        "sqlite3",
        "regista.api",
        "regista.dispatch",
        "regista.engines",
        "regista.workers.service",
    ),
    *(
        "regista.history",
        "regista.observe.telemetry",
        "regista.orchestrator",
        "regista.storage",
        "regista.maintenance.loop",
    ),
}


@contextmanager
def _command(folder: Path, *arguments: str) -> Iterator[IO[str]]:
    """`regista …` while it runs: what it says. What it loads is written down in the file `loaded`."""
    command = [sys.executable, "-X", "importtime", "-m", "regista", *arguments, "--json"]
    settings = os.environ | TOKENS
    with (
        (folder / f"{arguments[0]}.loaded").open("w") as loaded,
        subprocess.Popen(
            command, cwd=folder, env=settings, stdout=subprocess.PIPE, stderr=loaded, text=True
        ) as process,
    ):
        assert process.stdout is not None
        try:
            yield process.stdout
        finally:
            process.terminate()


def _loaded(folder: Path, command: str) -> set[str]:
    """The modules, and all that they are in."""
    told = (folder / f"{command}.loaded").read_text()
    names = re.findall(r"^import time: [\d |]+ (\S+)$", told, re.M)
    parts = [name.split(".") for name in names]
    return {".".join(each[:length]) for each in parts for length in range(1, len(each) + 1)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where an orchestrator and a worker, started together, have done a job."""
    here, port = tmp_path_factory.mktemp("start"), free_port()
    url = f"http://127.0.0.1:{port}"
    with (
        _command(here, "worker", str(APP), "--url", url),
        _command(here, "serve", str(APP), "--port", str(port), "--storage", "sqlite:jobs.db") as said,
    ):
        assert said.readline()  # the greeting: it takes jobs
        with SyncClient(url, TOKENS["CLIENT_TOKEN"]) as client:
            assert client.run("greet", {"name": "Ada"}, timeout_s=20).result == "Hello, Ada!"
    return here


def test_a_plain_orchestrator_loads_nothing_that_is_optional_or_slow(folder: Path) -> None:
    loaded = _loaded(folder, "serve")

    assert loaded >= ORCHESTRATOR | READING
    assert not loaded & (OPTIONAL | SLOW | IDLE)


def test_a_plain_worker_loads_nothing_of_an_orchestrator_either(folder: Path) -> None:
    loaded = _loaded(folder, "worker")

    assert {"aiohttp", "regista.sdk"} <= loaded
    assert not loaded & (OPTIONAL | SLOW | ORCHESTRATOR | READING)


def test_saying_the_version_loads_neither_a_loop_nor_anything_that_is_served(tmp_path: Path) -> None:
    with _command(tmp_path, "version") as said:
        assert said.readline()

    loaded = _loaded(tmp_path, "version")
    assert "regista.cli.output" in loaded
    assert not loaded & (OPTIONAL | SLOW | ORCHESTRATOR | {"aiohttp", "asyncio", "regista.sdk"})
