"""What the tests of workers over real sockets share: an orchestrator, and workers in this process and in others."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from regista import Config, EventType, Job, OrchestratorEngine, RetryPolicy, StateMachineBlueprint
from regista.config import WorkerConfig
from regista.server import HttpServer
from regista.storage.base import StorageBackend
from regista.worker import RemoteWorker, Worker
from tests.ports import free_port
from tests.support import one_task

T = TypeVar("T")

TOKEN = "worker-secret"
#: Longer than any test: where nobody is meant to be given up, a busy machine gives nobody up.
LONG_LEASE_S = 30.0
#: Short enough to wait for, long enough for a busy machine; for tests in which a lease has to lapse.
SHORT_LEASE_S = 1.5
QUICK = RetryPolicy(first_s=0.05, jitter=0)


def play(main: Coroutine[Any, Any, T], timeout_s: float = 9.0) -> T:
    """Run a test's story; it must end in time."""

    async def bounded() -> T:
        async with asyncio.timeout(timeout_s):
            return await main

    return asyncio.run(bounded())


async def until(condition: Callable[[], Any], timeout_s: float = 5.0) -> None:
    """Return when it holds."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110  # the condition is any test's own
            await asyncio.sleep(0.005)


async def until_async(condition: Callable[[], Awaitable[Any]], timeout_s: float = 5.0) -> None:
    """The same, for what must be asked for."""
    async with asyncio.timeout(timeout_s):
        while not await condition():  # noqa: ASYNC110  # as above
            await asyncio.sleep(0.02)


class House:
    """An orchestrator with its port, which can go away and come back with the same jobs and address."""

    def __init__(
        self, *blueprints: StateMachineBlueprint, storage: StorageBackend | str = "memory", **settings: Any
    ) -> None:
        self._blueprints = blueprints or (one_task(retry=QUICK),)
        self._storage = storage
        usual: dict[str, Any] = {"client_token": "client", "worker_token": TOKEN}
        usual |= {"lease_s": LONG_LEASE_S, "poll_lease_s": LONG_LEASE_S}
        self.config = Config(**usual | settings)
        self.port = free_port()  # nobody takes it while the orchestrator is away
        self.director: OrchestratorEngine
        self.site: HttpServer

    async def open(self) -> None:
        self.director = OrchestratorEngine(self._storage, self.config)
        for blueprint in self._blueprints:
            self.director.register_blueprint(blueprint)
        self.site = await self.director.serve("127.0.0.1", self.port)

    async def close(self) -> None:
        await self.director.stop(0)

    async def __aenter__(self) -> "House":
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def submit(self, input: dict[str, Any] | None = None) -> Job:
        return await self.director.submit("script", input or {})

    async def run(self, input: dict[str, Any] | None = None, timeout_s: float = 5.0) -> Job:
        return await self.director.run_job("script", input or {}, timeout_s)

    async def wait(self, job: Job, timeout_s: float = 5.0) -> Job:
        return await self.director.wait(job.id, timeout_s)

    async def events(self, job: Job) -> list[str]:
        return [event.type.value for event in await self.director.events(job.id)]

    async def until_event(self, job: Job, kind: EventType, timeout_s: float = 5.0) -> None:
        async def happened() -> bool:
            return kind.value in await self.events(job)

        await until_async(happened, timeout_s)


def config_for(*urls: str, **settings: Any) -> WorkerConfig:
    """The settings of a worker that serves these orchestrators."""
    where: dict[str, Any] = {"orchestrator_url": urls[0]} if len(urls) == 1 else {}
    if len(urls) > 1:
        where["orchestrators"] = [{"url": url, "priority": n} for n, url in enumerate(urls)]
    usual: dict[str, Any] = {"token": TOKEN, "heartbeat_interval_s": 0.3}
    return WorkerConfig(**usual | where | settings)


@asynccontextmanager
async def connected(
    worker: Worker, *urls: str, wait: bool = True, **settings: Any
) -> AsyncIterator[RemoteWorker]:
    """The worker, connected in this process; it is stopped at once when the test is over."""
    remote = RemoteWorker(worker, config_for(*urls, **settings))
    await remote.start()
    try:
        assert not wait or await remote.wait_connected(5)
        yield remote
    finally:
        await remote.stop(0)


#: The program of a worker process; it notes what it does in the file that it is given.
PROGRAM = Path(__file__).with_name("worker_program.py")


class WorkerProcess:
    """`worker_program.py` in a process of its own."""

    def __init__(self, url: str, notes: Path, worker_id: str = "", **environ: str) -> None:
        self.notes = notes
        self._environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("REGISTA_")},
            "ORCHESTRATOR_URL": url,
            "WORKER_TOKEN": TOKEN,
            "WORKER_ID": worker_id,
            **environ,
        }
        self.process: asyncio.subprocess.Process

    async def __aenter__(self) -> "WorkerProcess":
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, str(PROGRAM), str(self.notes), env=self._environ, stderr=asyncio.subprocess.PIPE
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        await self.process.communicate()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def lines(self) -> list[str]:
        return self.notes.read_text().split("\n")[:-1] if self.notes.exists() else []

    async def until_line(self, text: str, timeout_s: float = 6.0) -> None:
        await until(lambda: text in self.lines(), timeout_s)
