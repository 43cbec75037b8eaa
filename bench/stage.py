"""What the benches share: an orchestrator on SQLite, a closed loop of clients, percentiles."""

import asyncio
import os
import resource
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from regista import JobStatus, OrchestratorEngine, StateMachineBlueprint, Worker


@asynccontextmanager
async def stage(
    folder: Path, *blueprints: StateMachineBlueprint, worker: Worker | None = None
) -> AsyncIterator[OrchestratorEngine]:
    """A started orchestrator whose files are in `folder`."""
    director = OrchestratorEngine(f"sqlite:{folder / 'jobs.db'}")
    for blueprint in blueprints:
        director.register_blueprint(blueprint)
    if worker is not None:
        director.add_worker(worker)
    async with director:
        yield director


class Loop(Struct):
    """What a closed loop measured."""

    jobs: int
    #: From the first submit to the last result.
    seconds: float
    #: The same, until history has everything too.
    drained_s: float
    #: Of the whole process, and of the loop's thread alone: the rest is SQLite, in threads of its own.
    cpu_s: float
    loop_cpu_s: float
    latencies_ms: list[float]

    @property
    def rate(self) -> float:
        """Jobs per second, the way to history included."""
        return self.jobs / self.drained_s

    def notes(self) -> dict[str, float | str]:
        """Latency and CPU, for the table."""
        return {
            "p50_ms": percentile(self.latencies_ms, 50),
            "p99_ms": percentile(self.latencies_ms, 99),
            "cpu_us_per_job": self.cpu_s / self.jobs * 1e6,
            "loop_cpu_us_per_job": self.loop_cpu_s / self.jobs * 1e6,
            "before_drain_jobs_s": self.jobs / self.seconds,
        }


async def closed_loop(director: OrchestratorEngine, blueprint: str, jobs: int, clients: int) -> Loop:
    """`clients` coroutines, each of which submits a job and waits for its end, until all are done."""
    numbers = iter(range(jobs))
    latencies: list[float] = []

    async def client() -> None:
        for number in numbers:
            began = time.perf_counter()
            await run(director, blueprint, {"n": number})
            latencies.append((time.perf_counter() - began) * 1000)

    began, cpu, loop_cpu = time.perf_counter(), time.process_time(), time.thread_time()
    await asyncio.gather(*(client() for _ in range(clients)))
    seconds = time.perf_counter() - began
    await director.recorder.drain()
    drained_s = time.perf_counter() - began
    cpu, loop_cpu = time.process_time() - cpu, time.thread_time() - loop_cpu
    return Loop(jobs, seconds, drained_s, cpu, loop_cpu, latencies)


async def run(director: OrchestratorEngine, blueprint: str, data: dict[str, Any]) -> Any:
    """The result of a job that must finish: a bench of failures would be fast."""
    job = await director.run_job(blueprint, data, timeout_s=300)
    if job.status is not JobStatus.FINISHED:
        raise RuntimeError(f"expected a finished job, got {job.status}: {job.error}")
    return job.result


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that is not below `percent` of all."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(len(ranked) * percent / 100))]


def rss() -> int:
    """Bytes of memory that this process holds now; where the system does not say, the most it ever held."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
