"""The cluster: a Redis, orchestrators and workers as real processes, with a line of its own between any two."""

import asyncio
import json
import signal
import subprocess
from collections import Counter
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

from tests.chaos.troupe import start_process
from tests.ports import free_port
from tests.proxy import Proxy
from tests.redis_server import RedisServer

APP = "tests/chaos/cluster_app.py"
DIRECTORS, WORKERS = 3, 4
#: Which orchestrator has the wrong time of day.
SKEWED = DIRECTORS - 1
#: Short, so that many leases lapse in one run.
LEASE_S = 3.0
#: Long enough for a start of all processes on a busy machine.
_START_S = 30.0
#: What an orchestrator says when it serves.
_SERVES = "is running at"
_SETTINGS = {
    "REGISTA_LEASE_SECONDS": str(LEASE_S),
    "REGISTA_POLL_LEASE_SECONDS": str(LEASE_S * 1.5),
    "REGISTA_LOST_BUDGET": "1000",
}


class Cluster:
    """Starts the processes and keeps them up, as a supervisor would.

    `wrong_clock` is the environment that sets the time of day wrong for the last orchestrator.
    """

    def __init__(self, folder: Path, redis: RedisServer, wrong_clock: dict[str, str]) -> None:
        self.redis = redis
        self.ports = [free_port() for _ in range(DIRECTORS)]
        self.urls = [f"http://127.0.0.1:{port}" for port in self.ports]
        self.directors: list[subprocess.Popen[bytes]] = []
        self.workers: list[subprocess.Popen[bytes]] = []
        #: From each orchestrator to Redis.
        self.store_lines: list[Proxy] = []
        #: From each worker to each of the orchestrators.
        self.worker_lines: list[list[Proxy]] = []
        #: How often an orchestrator gave up its start since Redis was away, and was started again.
        self.false_starts: Counter[int] = Counter()
        self._folder = folder
        self._wrong_clock = wrong_clock
        #: Orchestrators that somebody has put down on purpose.
        self._down: set[int] = set()
        #: How long their logs were when they were last started.
        self._log_from = [0] * DIRECTORS
        self._keeping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Return when every orchestrator serves."""
        for number in range(DIRECTORS):
            self.store_lines.append(await _line(self.redis.port))
            self.directors.append(self._new_director(number))
        for number in range(WORKERS):
            self.worker_lines.append([await _line(port) for port in self.ports])
            self.workers.append(self._new_worker(number))
        self._keeping = asyncio.create_task(self._keep(), name="keep-directors")
        await self.until_all_serve()

    async def until_all_serve(self) -> None:
        async with asyncio.timeout(_START_S):
            for number in range(DIRECTORS):
                while not self._serves(number):  # noqa: ASYNC110  # what it waits for is in another process
                    await asyncio.sleep(0.05)

    def check(self) -> None:
        """Raise what the keeper met, if it met something."""
        if self._keeping is not None and self._keeping.done():
            self._keeping.result()

    async def stop(self) -> None:
        """Everybody leaves in good order, workers first; says so if somebody does not. Redis goes on."""
        everybody = [*self.workers, *self.directors]
        try:
            self.check()
            await self._end_keeping()
            for group in (self.workers, self.directors):
                for process in group:
                    process.terminate()
                for process in group:
                    code = await asyncio.to_thread(process.wait, 20)
                    assert code == 0, f"{process.args!r} left with {code}"
        finally:
            await self._end_keeping()
            for process in everybody:
                if process.poll() is None:
                    process.kill()
                    process.wait()
            for line in [*self.store_lines, *(line for lines in self.worker_lines for line in lines)]:
                await line.stop()

    # -- up and down -----------------------------------------------------------------------------

    async def kill_director(self, number: int, down_s: float) -> None:
        """`kill -9`, and a start some time later."""
        self._down.add(number)
        await self._kill(self.directors[number])
        await asyncio.sleep(down_s)
        self.directors[number] = self._new_director(number)
        self._down.discard(number)

    async def kill_worker(self, number: int) -> None:
        """`kill -9`, and a new process under the old id, as a restarted machine would be."""
        assert self.workers[number].poll() is None, f"worker {number} died by itself"
        await self._kill(self.workers[number])
        self.workers[number] = self._new_worker(number)

    async def _kill(self, process: "subprocess.Popen[bytes]") -> None:
        process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(process.wait)

    async def _keep(self) -> None:
        """Start orchestrators again whose start found no Redis. Nobody who serves may end by itself."""
        while True:
            await asyncio.sleep(0.2)
            for number, process in enumerate(self.directors):
                if number in self._down or process.poll() is None:
                    continue
                said = self._log_since_start(number)
                assert _SERVES not in said, f"orchestrator {number} died by itself:\n{said[-3000:]}"
                self.false_starts[number] += 1
                self.directors[number] = self._new_director(number)

    async def _end_keeping(self) -> None:
        keeping, self._keeping = self._keeping, None
        if keeping is not None:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)

    # -- processes -------------------------------------------------------------------------------

    def _new_director(self, number: int) -> "subprocess.Popen[bytes]":
        storage = f"redis://127.0.0.1:{self.store_lines[number].port}/0"
        arguments = ["serve", APP, "--port", str(self.ports[number]), "--storage", storage]
        settings = _SETTINGS | {"INSTANCE_ID": f"director-{number}"}
        self._log_from[number] = len(self.log_of(f"director-{number}"))
        if number == SKEWED:
            settings |= self._wrong_clock
        return start_process(self._folder, f"director-{number}", arguments, settings)

    def _new_worker(self, number: int) -> "subprocess.Popen[bytes]":
        # Each has another first choice, and all others to turn to.
        orchestrators = [
            {"url": line.url, "priority": (place - number) % DIRECTORS}
            for place, line in enumerate(self.worker_lines[number])
        ]
        settings = {
            "WORKER_ID": f"troupe-{number}",
            "ORCHESTRATORS_CONFIG": json.dumps(orchestrators),
            "HEARTBEAT_INTERVAL": str(LEASE_S / 3),
        }
        return start_process(self._folder, f"worker-{number}", ["worker", APP], settings)

    def logs(self) -> dict[str, str]:
        """Name of a process → what all its lives have said."""
        names = [f"director-{n}" for n in range(DIRECTORS)] + [f"worker-{n}" for n in range(WORKERS)]
        return {name: self.log_of(name) for name in names}

    def log_of(self, name: str) -> str:
        log = self._folder / f"{name}.log"
        return log.read_text() if log.exists() else ""

    def _log_since_start(self, number: int) -> str:
        return self.log_of(f"director-{number}")[self._log_from[number] :]

    def _serves(self, number: int) -> bool:
        return self.directors[number].poll() is None and _SERVES in self._log_since_start(number)


async def _line(port: int) -> Proxy:
    line = Proxy(port)
    await line.start()
    return line


def wrong_clock(faketime: str, seconds: int) -> dict[str, str]:
    """The environment in which a process's time of day is off by so much. Its monotonic clock is right."""
    asked = [faketime, "-f", "+0s", "printenv", "LD_PRELOAD"]
    library = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    # Not through `faketime` itself, which would stand between us and the process that we kill.
    return {"LD_PRELOAD": library, "FAKETIME": f"{seconds:+d}s", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


def clock_error_s(date: str | None) -> float:
    """By how much the clock of whoever wrote this HTTP `Date` is wrong."""
    assert date is not None, "an orchestrator never answered"
    return (parsedate_to_datetime(date) - datetime.now(UTC)).total_seconds()
