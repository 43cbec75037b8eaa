"""What a one-task job costs in machine instructions: `python -m bench.instructions [--over core|http|poll]`.

Seconds mean little on a machine that others use, too; instructions hardly change. One process with an orchestrator
on SQLite and a worker that answers at once runs two numbers of jobs under valgrind (callgrind), and the difference is
what the further ones cost: both commits, both handlers, history. `core` submits batches in process, `http` single
requests over a connection, with a plain client whose own instructions count, too; `poll` is in memory, with workers
that poll for one task at a time and clients that wait for a webhook.
"""

import argparse
import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import uvloop

from regista import ActionFactory, Config, JobContext, OrchestratorEngine, StateMachineBlueprint, Submission
from regista.dispatch.connected import CallbackConnection
from regista.model import Task, TaskResult, Worker

from .long_poll import work_off

#: Jobs of the two runs, jobs of a batch, and connections of `http`.
FEW, MANY = 60, 200
BATCH = 100
CONNECTIONS = 10
WORKERS = 5
BODY = b'{"blueprint":"one","input":{"n":1}}'
REQUEST = (
    b"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nX-Client-Token: c\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
)

one = StateMachineBlueprint("one", api_endpoint="/jobs/one", api_version="v1")


@one.handler_for("start", is_start=True)
async def start(context: JobContext, actions: ActionFactory) -> None:
    """One task."""
    actions.dispatch_task("noop", {"n": context.initial_data["n"]}, transitions={"success": "done"})


@one.handler_for("done", is_end=True)
async def done(context: JobContext, actions: ActionFactory) -> None:
    """Its result."""
    actions.set_result(context.state_history.get("n"))


class Hands:
    """A worker in this process: every task is done as soon as it comes."""

    def __init__(self, director: OrchestratorEngine, jobs: int) -> None:
        self._director = director
        self._left = jobs
        self.through = asyncio.get_running_loop().create_future()

    async def come(self) -> None:
        """Register."""
        worker = Worker(id="w", skills=("noop",), capacity=60)
        await self._director.workers.register(
            worker, [], CallbackConnection(self._take, lambda attempts: None)
        )

    def _take(self, tasks: Sequence[Task]) -> None:
        asyncio.get_running_loop().call_soon(self._answer, tasks)

    def _answer(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            result = TaskResult(task_id=task.attempt_id, job_id=task.job_id, worker_id="w", data={"n": 1})
            self._director.workers.report(result).add_done_callback(self._told)

    def _told(self, _: object) -> None:
        self._left -= 1
        if not self._left:
            self.through.set_result(None)


async def play(jobs: int, over: str, folder: str) -> None:
    """So many jobs, from the first submission to the last line of history."""
    config = Config(
        instance_id="i", client_token="c", worker_token="w", webhook_allow_private=("127.0.0.0/8",)
    )
    director = OrchestratorEngine("memory" if over == "poll" else f"sqlite:{folder}/jobs.db", config)
    director.register_blueprint(one)
    site = await director.serve(port=0)
    if over == "poll":
        await work_off(site.port, "c", "w", "/api/v1/jobs/one", jobs, WORKERS, CONNECTIONS)
        await director.stop()
        return
    hands = Hands(director, jobs)
    await hands.come()
    if over == "core":
        for begin in range(0, jobs, BATCH):
            wishes = [Submission(blueprint="one", input={"n": n}) for n in range(min(BATCH, jobs - begin))]
            await director.submit_many(wishes)
    else:
        numbers = iter(range(jobs))
        await asyncio.gather(*(ask(site.port, numbers) for _ in range(CONNECTIONS)))
    await hands.through
    await director.recorder.drain()
    await director.stop()


async def ask(port: int, numbers: Iterator[int]) -> None:
    """Request after request over one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in numbers:
        writer.write(REQUEST)
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        if not head.startswith(b"HTTP/1.1 202") or length is None:
            raise RuntimeError(f"expected 202, got {head!r}")
        await reader.readexactly(int(length[1]))
    writer.close()


def counted(jobs: int, over: str) -> int:
    """The instructions of a process that runs so many jobs."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out"]
        command += [sys.executable, "-m", "bench.instructions", "--jobs", str(jobs), "--over", over]
        env = {**os.environ, "PYTHONHASHSEED": "0"}
        root = Path(__file__).parents[1]
        ran = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=True)
    found = re.search(r"Collected : (\d+)", ran.stderr)
    if found is None:
        raise RuntimeError(f"expected the sum of callgrind, got {ran.stderr[-500:]!r}")
    return int(found[1])


def main() -> None:
    """Count, or be counted."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.instructions")
    parser.add_argument("--over", choices=["core", "http", "poll"], default="core")
    parser.add_argument("--jobs", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.jobs is not None:
        with (
            tempfile.TemporaryDirectory() as folder,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            runner.run(play(asked.jobs, asked.over, folder))
        return
    if shutil.which("valgrind") is None:
        parser.error("expected valgrind on the path; Debian has it as the package valgrind")
    each = (counted(MANY, asked.over) - counted(FEW, asked.over)) // (MANY - FEW)
    print(f"{each:,} instructions a job ({asked.over}; {MANY} jobs less {FEW})")


if __name__ == "__main__":
    main()
