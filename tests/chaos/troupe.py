"""The troupe: an orchestrator and workers as real processes, and everything that can befall them."""

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.ports import free_port
from tests.proxy import Proxy

ROOT = Path(__file__).parents[2]
APP = "tests/chaos/stage_app.py"
TOKENS = {"CLIENT_TOKEN": "chaos-client", "WORKER_TOKEN": "chaos-worker"}
#: Short, so that many leases lapse in one run.
LEASE_S = 3.0
WORKERS = 3


class Troupe:
    """Starts the processes, each worker behind a line of its own, and plays them bad tricks."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.store = folder / "jobs.db"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.fired: Counter[str] = Counter()
        self._folder = folder
        self._chance = random.Random(seed)
        self._director: subprocess.Popen[bytes] | None = None
        self._workers: list[subprocess.Popen[bytes]] = []
        self._lines: list[Proxy] = []

    async def start(self) -> None:
        self._start_director()
        for number in range(WORKERS):
            line = Proxy(self.port)
            await line.start()
            self._lines.append(line)
            self._workers.append(self._new_worker(number))

    async def stop(self) -> None:
        """Everybody leaves in good order, workers first; says so if somebody does not."""
        try:
            await self._until_ready()
            for process in (*self._workers, self._director):
                assert process is not None
                process.terminate()
                code = await asyncio.to_thread(process.wait, 20)
                assert code == 0, f"{process.args!r} left with {code}"
        finally:
            for process in (*self._workers, self._director):
                if process is not None and process.poll() is None:
                    process.kill()
                    process.wait()
            for line in self._lines:
                await line.stop()

    # -- bad tricks ------------------------------------------------------------------------------

    async def trouble(self, seconds: float) -> None:
        """One trick after the other: first each once, then by chance."""
        tricks = [
            self._kill_director,
            self._kill_worker,
            self._freeze_worker,
            self._cut_line,
            self._close_line,
            self._restart_director,
        ]
        end = asyncio.get_running_loop().time() + seconds
        turn = 0
        while asyncio.get_running_loop().time() < end or turn < len(tricks):
            await asyncio.sleep(self._chance.uniform(0.3, 2.0))
            trick = tricks[turn] if turn < len(tricks) else self._chance.choice(tricks)
            turn += 1
            await trick()
            self.fired[trick.__name__.lstrip("_")] += 1

    async def _kill_director(self) -> None:
        assert self._director is not None
        assert self._director.poll() is None, "the orchestrator died by itself"
        self._director.send_signal(signal.SIGKILL)
        await asyncio.to_thread(self._director.wait)
        await asyncio.sleep(self._chance.choice([0.0, 0.5]))
        self._start_director()

    async def _restart_director(self) -> None:
        assert self._director is not None
        await self._until_ready()  # a process that has hardly begun knows no good order
        self._director.terminate()
        assert await asyncio.to_thread(self._director.wait, 20) == 0
        self._start_director()

    async def _kill_worker(self) -> None:
        number = self._chance.randrange(WORKERS)
        assert self._workers[number].poll() is None, "a worker died by itself"
        self._workers[number].send_signal(signal.SIGKILL)
        await asyncio.to_thread(self._workers[number].wait)
        self._workers[number] = self._new_worker(number)

    async def _freeze_worker(self) -> None:
        """Past its lease: what it had is given to somebody else, and its late results are refused."""
        worker = self._workers[self._chance.randrange(WORKERS)]
        worker.send_signal(signal.SIGSTOP)
        await asyncio.sleep(LEASE_S * 1.7)
        worker.send_signal(signal.SIGCONT)

    async def _cut_line(self) -> None:
        self._chance.choice(self._lines).cut()

    async def _close_line(self) -> None:
        """Nobody gets through for a while, shorter or longer than a lease."""
        line = self._chance.choice(self._lines)
        line.close_the_line()
        await asyncio.sleep(self._chance.choice([0.5, LEASE_S * 1.5]))
        line.open_the_line()

    async def _until_ready(self) -> None:
        async with asyncio.timeout(20):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                except OSError:
                    await asyncio.sleep(0.05)
                else:
                    writer.close()
                    return

    # -- processes -------------------------------------------------------------------------------

    def _start_director(self) -> None:
        settings = {
            "REGISTA_LEASE_SECONDS": str(LEASE_S),
            "REGISTA_LOST_BUDGET": "1000",
            "INSTANCE_ID": "chaos",
        }
        arguments = ["serve", APP, "--port", str(self.port), "--storage", f"sqlite:{self.store}"]
        self._director = self._process("director", arguments, settings)

    def _new_worker(self, number: int) -> "subprocess.Popen[bytes]":
        # A new process under the old id, as a restarted machine would be.
        arguments = ["worker", APP, "--url", f"http://127.0.0.1:{self._lines[number].port}"]
        return self._process(f"worker-{number}", arguments, {"WORKER_ID": f"troupe-{number}"})

    def _process(
        self, name: str, arguments: list[str], settings: dict[str, str]
    ) -> "subprocess.Popen[bytes]":
        return start_process(self._folder, name, arguments, settings)

    def log_of(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text()


def start_process(
    folder: Path, name: str, arguments: list[str], settings: dict[str, str]
) -> "subprocess.Popen[bytes]":
    """`regista ARGUMENTS` as a process that keeps its state in the folder, and adds what it says to NAME.log."""
    environment = os.environ | TOKENS | settings | {"PYTHONPATH": str(ROOT), "REGISTA_DIR": str(folder)}
    with (folder / f"{name}.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "regista", *arguments],
            cwd=ROOT,
            env=environment,
            stdout=log,
            stderr=log,
        )
