"""The benches: each plays one situation once and says what it found."""

import asyncio
import gc
import importlib
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

import msgspec
from msgspec import Struct

from regista import JobStatus, OrchestratorEngine
from regista.engines.base import Submission
from regista.model import Job

from . import plays
from .measures import Beside, Better, Measure, Sample
from .stage import closed_loop, rss, run, stage

#: Jobs of a submitted batch.
BATCH = 1000
CLIENTS = 100
#: Tasks that the worker does at once.
CONCURRENCY = 200


class Bench(Struct, frozen=True):
    """A situation, and the figures that it gives."""

    name: str
    play: Callable[[Path, bool], Awaitable[Sample]]
    measures: tuple[Measure, ...]


async def latency_1(folder: Path, quick: bool) -> Sample:
    """One job in flight: what a single caller waits."""
    async with stage(folder, plays.one_task(), worker=plays.idle_worker(CONCURRENCY)) as director:
        await closed_loop(director, "one_task", 100, 1)
        loop = await closed_loop(director, "one_task", 200 if quick else 1000, 1)
    notes = loop.notes()
    return Sample({"latency_1_p50": float(notes["p50_ms"]), "latency_1_p99": float(notes["p99_ms"])})


async def one_task_100(folder: Path, quick: bool) -> Sample:
    """A hundred clients in a closed loop, one no-op task per job."""
    async with stage(folder, plays.one_task(), worker=plays.idle_worker(CONCURRENCY)) as director:
        await closed_loop(director, "one_task", 1000, CLIENTS)
        loop = await closed_loop(director, "one_task", 3000 if quick else 20_000, CLIENTS)
    return Sample({"one_task_100": loop.rate}, loop.notes())


async def submit_batched(folder: Path, quick: bool) -> Sample:
    """Two submitters, batches of a thousand, no worker: acknowledged is durable, nothing more.

    The start handlers, which run behind the acknowledgements, and history are timed apart.
    """
    jobs = 10_000 if quick else 50_000
    calls: Counter[str] = Counter()
    async with stage(folder, plays.one_task(calls=calls)) as director:
        await _submit(director, 2 * BATCH)
        await _wait_all_started(director, calls, 2 * BATCH)
        await director.recorder.drain()
        began = time.perf_counter()
        last = await _submit(director, jobs)
        acknowledged_s = time.perf_counter() - began
        await _wait_all_started(director, calls, 2 * BATCH + jobs, last)
        started_s = time.perf_counter() - began
        await director.recorder.drain()
        drained_s = time.perf_counter() - began
    return Sample(
        {"submit_batched": jobs / acknowledged_s},
        {"all_started_jobs_s": jobs / started_s, "drained_jobs_s": jobs / drained_s},
    )


async def cpu_handler_2ms(folder: Path, quick: bool) -> Sample:
    """The closed loop again, with a start handler that burns 2 ms: nobody may starve."""
    blueprint = plays.one_task(burn_s=plays.BURN_S)
    async with stage(folder, blueprint, worker=plays.idle_worker(CONCURRENCY)) as director:
        await closed_loop(director, "one_task", CLIENTS, CLIENTS)
        loop = await closed_loop(director, "one_task", 500 if quick else 2000, CLIENTS)
    notes = loop.notes()
    fairness = float(notes["p99_ms"]) / float(notes["p50_ms"])
    return Sample({"cpu_handler_2ms": loop.rate, "cpu_handler_2ms_p99_to_p50": fairness}, notes)


async def steps_40(folder: Path, quick: bool) -> Sample:
    """One job in flight, forty tasks one after the other."""
    times = []
    async with stage(folder, plays.chain(), worker=plays.idle_worker(CONCURRENCY)) as director:
        await run(director, "chain", {})
        for _ in range(5 if quick else 20):
            began = time.perf_counter()
            await run(director, "chain", {})
            times.append((time.perf_counter() - began) * 1000 / plays.STEPS)
        await director.recorder.drain()
    return Sample({"steps_40": median(times)}, {"slowest_ms": max(times)})


async def fan_out(folder: Path, quick: bool) -> Sample:
    """One job with many branches: from its submit to its aggregated result."""
    seconds, drained = {}, {}
    async with stage(folder, plays.fan_out(), worker=plays.idle_worker(CONCURRENCY)) as director:
        await run(director, "fan_out", {"tasks": 100})
        await director.recorder.drain()
        for tasks in (1000, 10_000):
            began = time.perf_counter()
            if await run(director, "fan_out", {"tasks": tasks}) != tasks:
                raise RuntimeError("a branch got lost")
            seconds[tasks] = time.perf_counter() - began
            await director.recorder.drain()
            drained[tasks] = time.perf_counter() - began
    return Sample(
        {
            "fan_out_1000": seconds[1000],
            "fan_out_10000": seconds[10_000],
            "fan_out_growth": seconds[10_000] / seconds[1000],
        },
        {"drained_1000_s": drained[1000], "drained_10000_s": drained[10_000]},
    )


async def waiting_100k(folder: Path, quick: bool) -> Sample:
    """Jobs that wait for a worker that is not there: what each costs in memory, and at a restart."""
    jobs = 10_000 if quick else 100_000
    calls: Counter[str] = Counter()
    warm = 2 * BATCH
    async with stage(folder, plays.one_task(calls=calls)) as director:
        await _wait_all_started(director, calls, warm, await _submit(director, warm))
        await director.recorder.drain()
        gc.collect()
        before = rss()
        last = await _submit(director, jobs)
        await _wait_all_started(director, calls, warm + jobs, last)
        await director.recorder.drain()
        gc.collect()
        own = len(msgspec.msgpack.encode({"n": jobs}))
        per_job = (rss() - before) / jobs - own
    # A process of its own: a start is what a user sees after a crash, imports and allocator included.
    again = subprocess.run(  # noqa: ASYNC221 - nothing else runs here
        [sys.executable, "-m", "bench.sample", "recover", str(folder)],
        capture_output=True,
        text=True,
        check=True,
    )
    recovered = msgspec.json.decode(again.stdout, type=Sample)
    per_recovered = recovered.values["rss"] / (jobs + warm) - own
    return Sample(
        {"waiting_100k_memory": per_job, "waiting_100k_recovery": recovered.values["seconds"]},
        {"jobs": jobs, "after_restart_bytes_per_job": per_recovered},
    )


async def recover(folder: Path, quick: bool) -> Sample:
    """The second half of `waiting_100k`: start on files that are there."""
    async with stage(folder / "empty", plays.one_task()):
        pass  # imports and the first allocations are not recovery
    gc.collect()
    before = rss()
    director = OrchestratorEngine(f"sqlite:{folder / 'jobs.db'}")
    director.register_blueprint(plays.one_task())
    began = time.perf_counter()
    async with director:
        seconds = time.perf_counter() - began
        job = await director.submit("one_task", {"n": 0})  # it serves
        await _wait_for(director, job.id, JobStatus.WAITING_FOR_WORKER)
        gc.collect()
        return Sample({"seconds": seconds, "rss": rss() - before})


async def simulation(folder: Path, quick: bool) -> Sample:
    """Simulated jobs: two orchestrators, failing power, lying workers, no disk."""
    try:
        simulate = importlib.import_module("regista.testing.simulation").simulate
    except (ImportError, AttributeError):
        return Sample({}, missing="regista.testing.simulation is not there yet")
    # In a thread: it brings a loop of its own, and this thread has one already.
    seeds = range(5 if quick else 20)
    noop = {"noop": plays.simulated_noop}
    simple = await asyncio.to_thread(
        simulate,
        plays.one_task(),
        seeds=seeds,
        jobs=100,
        storm_s=10,
        tasks=noop,
        make_input=lambda chance: {"n": 1},
    )
    mixed = await asyncio.to_thread(simulate, plays.mixed(), seeds=seeds, tasks=noop)
    return Sample(
        {"simulation": simple.jobs_per_second, "simulation_mixed": mixed.jobs_per_second},
        {"jobs": simple.jobs, "seconds": simple.seconds, "mixed_jobs": mixed.jobs},
    )


async def _submit(director: OrchestratorEngine, jobs: int, submitters: int = 2) -> str:
    """Submit in batches from several coroutines; returns the id of a job of the last batch."""
    batches = iter(range(0, jobs, BATCH))
    last = ""

    async def submitter() -> None:
        nonlocal last
        for first in batches:
            numbers = range(first, min(first + BATCH, jobs))
            born = await director.submit_many(
                [Submission(blueprint="one_task", input={"n": n}) for n in numbers]
            )
            last = next(job.id for job in reversed(born) if isinstance(job, Job))

    await asyncio.gather(*(submitter() for _ in range(submitters)))
    return last


async def _wait_all_started(
    director: OrchestratorEngine, calls: Counter[str], jobs: int, last: str | None = None
) -> None:
    """Until every start handler has run, and what the last of them decided is flushed."""
    while calls["start"] < jobs:  # noqa: ASYNC110 - an event per handler would be measured too
        await asyncio.sleep(0.002)
    if last is not None:
        await _wait_for(director, last, JobStatus.WAITING_FOR_WORKER)


async def _wait_for(director: OrchestratorEngine, job_id: str, status: JobStatus) -> None:
    while (await director.get(job_id)).status is not status:  # noqa: ASYNC110 - it is not settled: nobody tells
        await asyncio.sleep(0.002)


def _rate(name: str, must: float | None, beside: Beside = Beside.COMMITS) -> Measure:
    return Measure(name, "jobs/s", Better.HIGHER, must, beside)


def _time(
    name: str, unit: str, must: float | None, writes: int = 1, beside: Beside = Beside.COMMITS
) -> Measure:
    return Measure(name, unit, Better.LOWER, must, beside, writes)


#: In the order of the table. A one-task job is two flushes, a step is one, a branch is three written rows.
BENCHES = (
    Bench("one_task_100", one_task_100, (_rate("one_task_100", 10_000),)),
    Bench("submit_batched", submit_batched, (_rate("submit_batched", 30_000, Beside.ROWS),)),
    Bench(
        "cpu_handler_2ms",
        cpu_handler_2ms,
        (_rate("cpu_handler_2ms", None), Measure("cpu_handler_2ms_p99_to_p50", "×", Better.LOWER, 3.0)),
    ),
    Bench(
        "latency_1",
        latency_1,
        (_time("latency_1_p50", "ms", 2.0, writes=2), _time("latency_1_p99", "ms", 5.0, writes=2)),
    ),
    Bench("steps_40", steps_40, (_time("steps_40", "ms/step", 1.0),)),
    Bench(
        "fan_out",
        fan_out,
        (
            _time("fan_out_1000", "s", 0.3, 3 * 1000, Beside.ROWS),
            _time("fan_out_10000", "s", None, 3 * 10_000, Beside.ROWS),
            Measure("fan_out_growth", "×", Better.LOWER, 12.0),
        ),
    ),
    Bench(
        "waiting_100k",
        waiting_100k,
        (
            Measure("waiting_100k_memory", "B/job", Better.LOWER, 2048.0),
            Measure("waiting_100k_recovery", "s", Better.LOWER, 5.0),
        ),
    ),
    Bench(
        "simulation",
        simulation,
        (_rate("simulation", 500, Beside.NOTHING), _rate("simulation_mixed", None, Beside.NOTHING)),
    ),
)
#: Played by another bench, not by name.
PARTS = (Bench("recover", recover, ()),)
