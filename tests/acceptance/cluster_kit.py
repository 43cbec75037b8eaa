"""Three orchestrators on one Redis, their workers, and somebody who sends each request to the next one; real processes all."""

import asyncio
import os
import re
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import redis.asyncio

from regista import Client, RedisStorage, StateMachineBlueprint
from regista.blueprint import Graph
from regista.config import Connection
from regista.testing.invariants import check_history
from tests.acceptance.edge import Orchestrator
from tests.acceptance.house import TOKEN
from tests.acceptance.nginx_kit import nginx_binary, until
from tests.acceptance.processes import OURS
from tests.ports import free_port
from tests.redis_server import RedisServer

CLIENT_TOKEN = "a-client-token"
#: Short, so that a test sees one lapse; a beat is a third of it.
LEASE_S = 3.0
POLL_LEASE_S = 4.0

#: Each task says in the file `notes` what becomes of it: that is what happened, whoever says what.
APP = """
import asyncio

from regista import StateMachineBlueprint, Worker

worker = Worker("crew", concurrency=8)
NAMES = ("work", "nap", "steps", "ask", "late", "stock")
work, nap, steps, ask, late, stock = map(StateMachineBlueprint, NAMES)


@work.handler_for("start", is_start=True)
def start(context, actions):
    queue = context.initial_data.get("queue", "steady")
    actions.dispatch_task("hold", context.initial_data, transitions={"success": "done"}, queue=queue)


@stock.handler_for("start", is_start=True)
def any_skill(context, actions):
    actions.dispatch_task(context.initial_data["task"], context.initial_data, transitions={"success": "done"})


@late.handler_for("start", is_start=True)
def wait_too_long(context, actions):
    limit_s, leads = context.initial_data["limit"], {"success": "done", "timeout": "done"}
    actions.dispatch_task("hold", {}, transitions=leads, queue="nobody", result_timeout=limit_s)


@nap.handler_for("start", is_start=True)
def sleep(context, actions):
    actions.sleep(context.initial_data["seconds"], then="done")


@steps.handler_for("start", is_start=True)
def first(context, actions):
    actions.sleep(context.initial_data.get("seconds", 0.2), then="second")


@steps.handler_for("second")
def second(context, actions):
    actions.sleep(context.initial_data.get("seconds", 0.2), then="third")


@steps.handler_for("third")
def third(context, actions):
    actions.sleep(context.initial_data.get("seconds", 0.2), then="done")


@ask.handler_for("start", is_start=True)
def question(context, actions):
    actions.await_human_approval("Really?", transitions={"approve": "done", "reject": "done"})


@work.handler_for("done", is_end=True)
@nap.handler_for("done", is_end=True)
@steps.handler_for("done", is_end=True)
@ask.handler_for("done", is_end=True)
@late.handler_for("done", is_end=True)
@stock.handler_for("done", is_end=True)
def done(context, actions):
    actions.set_result(context.state_history.get("said"))


@worker.task("hold")
async def hold(params, context):
    note("began", context)
    try:
        await asyncio.sleep(params.get("seconds", 0))
    except asyncio.CancelledError:
        note("stopped", context)
        raise
    note("ended", context)
    return {"said": params.get("word", "done")}


def note(what, context):
    with open("notes", "a") as notes:
        notes.write(f"{what} {context.job_id} {context.attempt_id}\\n")
"""


class Cluster:
    """Orchestrators that share a store, and the workers that were started for them. `app` can change in between."""

    def __init__(self, folder: Path, storage: str, app: str = APP, count: int = 3, **env: str) -> None:
        self.folder = folder
        self.write(app)
        inherited = {name: value for name, value in os.environ.items() if name not in OURS}
        self.env = inherited | {
            "PYTHONWARNINGS": "error",
            "CLIENT_TOKEN": CLIENT_TOKEN,
            "WORKER_TOKEN": TOKEN,
            "REGISTA_LEASE_SECONDS": str(LEASE_S),
            "REGISTA_POLL_LEASE_SECONDS": str(POLL_LEASE_S),
            **env,
        }
        self.all = [self.another(f"instance-{letter}", storage) for letter in "abcdef"[:count]]
        self._workers: list[subprocess.Popen[bytes]] = []

    def another(self, name: str, storage: str) -> Orchestrator:
        """One more, which is not started, and not stopped with the others."""
        return Orchestrator(self.folder, name, storage, self.env)

    def write(self, app: str) -> None:
        """What is played by whoever starts from now on."""
        (self.folder / "app.py").write_text(app)

    def start(self) -> None:
        """All of them, or none: a fixture that fails here is not asked to clean up."""
        try:
            for each in self.all:
                each.start()
            for each in self.all:
                each.greet()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Workers first, who would otherwise look for an orchestrator."""
        while self._workers:
            self.dismiss(self._workers[-1])
        for each in self.all:
            each.end()

    def worker(self, url: str, name: str, queue: str = "steady", **env: str) -> "subprocess.Popen[bytes]":
        """A `regista worker` process; returns when an orchestrator has it."""
        log = self.folder / f"{name}.log"
        said = {"WORKER_ID": name, "WORKER_QUEUES": queue, "HEARTBEAT_INTERVAL": "1"}
        command = [sys.executable, "-m", "regista", "worker", "app.py", "--url", url]
        with log.open("w") as out:
            process = subprocess.Popen(command, cwd=self.folder, env=self.env | said | env, stderr=out)
        self._workers.append(process)
        until(lambda: " by " in log.read_text() or process.poll() is not None, f"{name} at work")
        assert process.poll() is None, log.read_text()
        return process

    def dismiss(self, worker: "subprocess.Popen[bytes]", how: int = signal.SIGTERM) -> None:
        """It leaves, and is gone when this returns."""
        self._workers.remove(worker)
        with worker:
            worker.send_signal(how)
            worker.wait(10)

    def client(self, at: Orchestrator, timeout_s: float = 10.0) -> Client:
        """Somebody who talks to this one orchestrator only."""
        return Client(connection=Connection(url=at.url, token=CLIENT_TOKEN, timeout_s=timeout_s))

    def notes(self, what: str, job_id: str) -> list[str]:
        """The attempts of a job that have begun, ended or were stopped, as the task itself has said."""
        path = self.folder / "notes"
        lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return [attempt for word, job, attempt in lines if (word, job) == (what, job_id)]

    def logs(self) -> str:
        """What every process has logged."""
        return "".join(f"\n--- {log.name}\n{log.read_text()}" for log in sorted(self.folder.glob("*.log")))

    def tracebacks(self) -> str:
        """What no log may hold: the words around each traceback."""
        found = [
            self.logs()[max(0, at.start() - 500) :][:2500] for at in re.finditer("Traceback", self.logs())
        ]
        return "\n…\n".join(found[:5])


def leader_of(server: RedisServer, cluster: Cluster, chore: str = "health_checker") -> Orchestrator:
    """Who does the chores; somebody does, or soon will."""

    def found() -> list[Orchestrator]:
        record = server.ask("GET", f"regista:{{r0}}:leader:chore:{chore}")
        return [each for each in cluster.all if each.name in record]

    until(lambda: bool(found()), "somebody who leads")
    return found()[0]


async def check_promises(url: str, *apps: str) -> int:
    """What happened to each job of the store is what may happen; returns how many jobs there are.

    `apps` are those that were played: their graphs say where a job may go.
    """
    graphs = graphs_of(*apps)
    storage = RedisStorage(url)
    await storage.start()
    try:
        async with redis.asyncio.from_url(url) as line:
            keys = [key async for key in line.scan_iter("regista:{r0}:job:*")]
        ids = [key.decode().rpartition(":")[2] for key in keys]
        jobs = {job.id: job for job in (await storage.load(ids))[0] if job is not None}
        events = {job_id: await storage.tail(job_id, 0) for job_id in jobs}
    finally:
        await storage.stop()
    check_history(graphs, events, jobs)
    return len(jobs)


def graphs_of(*apps: str) -> dict[tuple[str, str], Graph]:
    """The graphs of what these apps play. Read from a file, as an orchestrator does: edges are found in the source."""
    graphs: dict[tuple[str, str], Graph] = {}
    for app in apps:
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write(app)
            file.flush()
            made = runpy.run_path(file.name).values()
            found = [each for each in made if isinstance(each, StateMachineBlueprint)]
            graphs |= {(each.name, each.version): each.graph for each in found}
    return graphs


async def soon(true: Callable[[], bool | Awaitable[bool]], what: str, patience_s: float = 8.0) -> None:
    """Wait until something is so; `what` says what did not happen."""
    try:
        async with asyncio.timeout(patience_s):
            while True:
                held = true()
                if held if isinstance(held, bool) else await held:
                    return
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"{what} did not happen") from None


_TURNS = """
worker_processes 1;
pid nginx.pid;
daemon off;
events {{ worker_connections 256; }}
http {{
    client_body_temp_path tmp; proxy_temp_path tmp; fastcgi_temp_path tmp; uwsgi_temp_path tmp; scgi_temp_path tmp;
    log_format turns "$upstream_addr $request_method $uri $status";
    access_log access.log turns;
    upstream all_of_them {{ {servers} }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://all_of_them;
            proxy_http_version 1.1;
            proxy_buffering off;
            proxy_read_timeout 60s;
        }}
    }}
}}
"""


class Turns:
    """A real nginx that gives each request to the next orchestrator: the worst balancer for whoever polls."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        self._folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        servers = " ".join(f"server 127.0.0.1:{each.port};" for each in cluster.all)
        folder.mkdir()
        (folder / "nginx.conf").write_text(_TURNS.format(servers=servers, port=self.port))

    @contextmanager
    def running(self) -> Iterator["Turns"]:
        """It listens, until the end of the block."""
        user = ["-g", "user root;"] if os.geteuid() == 0 else []
        place = ["-p", str(self._folder), "-c", "nginx.conf", "-e", "error.log"]
        with subprocess.Popen([nginx_binary(), *place, *user], stdin=subprocess.DEVNULL) as process:
            try:
                until(lambda: self._listens() or process.poll() is not None, "nginx")
                yield self
            finally:
                process.terminate()
                process.wait(8)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def asked(self, words: str) -> set[str]:
        """Which orchestrators have got requests whose method and path begin like this."""
        lines = (self._folder / "access.log").read_text().splitlines()
        return {where for where, _, what in (line.partition(" ") for line in lines) if what.startswith(words)}
