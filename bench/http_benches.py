"""The benches over HTTP: orchestrator, worker and client are three processes on loopback."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median, quantiles

from regista.client import Client, JobObject

from .benches import Bench
from .http_app import FAN_OUT, STEP_S, STEPS
from .http_stage import ROOT, House
from .measures import Beside, Better, Measure, Sample

#: Jobs of one batch, and submitters side by side, as a burst sends them.
BATCH = 100
SUBMITTERS = 8
SINGLES = 32
#: Jobs in flight with stock workers, as their own system was measured.
STOCK_IN_FLIGHT = 50
#: How often rates that take a second are taken.
RATES = 3
EXPECTED = {"w1": 1, "w2": 3, "w3": FAN_OUT, "chain": STEPS}


@asynccontextmanager
async def house(folder: Path, **options: object) -> AsyncIterator[tuple[House, Client]]:
    """A running house and a client of it, warm: one job has been through."""
    with House(folder, **options) as running:  # type: ignore[arg-type]
        running.wait_ready()
        async with Client(running.url, running.token) as client:
            if running.processes.get("worker"):
                checked(await client.run("w1", timeout_s=30))
            yield running, client


def checked(job: JobObject) -> None:
    """A figure over wrong answers is worth nothing."""
    if job.status != "finished" or job.result != EXPECTED[job.blueprint]:
        raise RuntimeError(f"expected {EXPECTED[job.blueprint]}, got {job.status} {job.result} of {job.id}")


async def collect(client: Client, ids: Sequence[str]) -> None:
    """Wait until every job is over, and check each."""
    seen = 0
    async for job in client.wait_many(ids, timeout_s=300):
        checked(job)
        seen += 1
    if seen != len(ids):
        raise RuntimeError(f"expected {len(ids)} jobs to end, got {seen}")


async def side_by_side(count: int, work: Callable[[], Awaitable[None]]) -> None:
    """`work`, `count` times at once."""
    await asyncio.gather(*[work() for _ in range(count)])


async def submit_batches(client: Client, kind: str, jobs: int, batch: int = BATCH) -> list[str]:
    """Submit in batches from several coroutines; the ids."""
    starts = iter(range(0, jobs, batch))
    ids: list[str] = []

    async def submitter() -> None:
        for start in starts:
            wishes = [{"blueprint": kind} for _ in range(min(batch, jobs - start))]
            for answer in await client.submit_many(wishes):
                if not isinstance(answer, JobObject):
                    raise answer
                ids.append(answer.id)

    await side_by_side(SUBMITTERS, submitter)
    return ids


async def submit_singles(client: Client, kind: str, jobs: int) -> list[str]:
    """Submit one by one from several coroutines; the ids."""
    numbers = iter(range(jobs))
    ids: list[str] = []

    async def submitter() -> None:
        ids.extend([(await client.submit(kind)).id for _ in numbers])

    await side_by_side(SINGLES, submitter)
    return ids


async def burst(
    folder: Path, kind: str, jobs: int, submit: Callable[[Client, str, int], Awaitable[list[str]]]
) -> tuple[float, dict[str, float | str]]:
    """Jobs per second from the first submit to the last result seen, and the CPU that each cost."""
    async with house(folder) as (running, client):
        await collect(client, await submit(client, kind, max(10, jobs // 10)))
        cpu = {role: running.cpu_s(role) for role in running.processes}
        own, began = time.process_time(), time.perf_counter()
        await collect(client, await submit(client, kind, jobs))
        seconds = time.perf_counter() - began
        notes: dict[str, float | str] = {
            f"{role}_cpu_us": (running.cpu_s(role) - before) / jobs * 1e6 for role, before in cpu.items()
        }
        return jobs / seconds, notes | {"client_cpu_us": (time.process_time() - own) / jobs * 1e6}


async def closed_loop(client: Client, kind: str, jobs: int, in_flight: int) -> tuple[float, list[float]]:
    """Rate, and milliseconds of each job, with so many in flight."""
    numbers = iter(range(jobs))
    times: list[float] = []

    async def one() -> None:
        for _ in numbers:
            began = time.perf_counter()
            checked(await client.run(kind, timeout_s=60))
            times.append((time.perf_counter() - began) * 1000)

    began = time.perf_counter()
    await side_by_side(in_flight, one)
    return jobs / (time.perf_counter() - began), times


def p99(times: Sequence[float]) -> float:
    """The hundredth of them that is slower than the rest."""
    return quantiles(times, n=100)[98]


# -- the benches -------------------------------------------------------------------------------------


async def w1_batched(folder: Path, quick: bool) -> Sample:
    """W1, a burst in batches."""
    rate, notes = await burst(folder, "w1", 2000 if quick else 10_000, submit_batches)
    return Sample(
        {"w1_batched": rate, "w1_orchestrator_cpu": float(notes["orchestrator_cpu_us"]) / 1000}, notes
    )


async def w1_singles(folder: Path, quick: bool) -> Sample:
    """W1, a burst of single requests."""
    rate, notes = await burst(folder, "w1", 1000 if quick else 5000, submit_singles)
    return Sample({"w1_singles": rate}, notes)


async def w1_latency(folder: Path, quick: bool) -> Sample:
    """W1, one in flight."""
    async with house(folder) as (_, client):
        await closed_loop(client, "w1", 100, 1)
        _, times = await closed_loop(client, "w1", 300 if quick else 1000, 1)
    return Sample({"w1_p50": median(times), "w1_p99": p99(times)})


async def w1_100(folder: Path, quick: bool) -> Sample:
    """W1, a hundred in flight."""
    async with house(folder) as (_, client):
        await closed_loop(client, "w1", 500, 100)
        rate, times = await closed_loop(client, "w1", 1000 if quick else 5000, 100)
    return Sample({"w1_100": rate, "w1_100_p99": p99(times)}, {"p50_ms": median(times)})


async def w2_burst(folder: Path, quick: bool) -> Sample:
    """W2, a burst in batches."""
    rate, notes = await burst(folder, "w2", 1000 if quick else 4000, submit_batches)
    return Sample({"w2_burst": rate}, notes)


async def w3_burst(folder: Path, quick: bool) -> Sample:
    """W3, a burst in batches."""
    rate, notes = await burst(folder, "w3", 20 if quick else 100, submit_batches)
    return Sample({"w3_burst": rate}, notes)


async def chain_40(folder: Path, quick: bool) -> Sample:
    """Forty tasks of ten milliseconds, one after the other."""
    async with house(folder) as (_, client):
        await closed_loop(client, "chain", 1, 1)
        _, times = await closed_loop(client, "chain", 3 if quick else 10, 1)
    seconds = median(times) / 1000
    return Sample({"chain_40": seconds, "chain_40_per_step": (seconds / STEPS - STEP_S) * 1000})


async def submit_rate(folder: Path, quick: bool) -> Sample:
    """What is acknowledged, with no worker there."""
    async with house(folder, workers=0) as (_, client):
        await submit_singles(client, "w1", 200)
        jobs = 1000 if quick else 5000
        began = time.perf_counter()
        await submit_singles(client, "w1", jobs)
        singles = jobs / (time.perf_counter() - began)
        jobs *= 4
        began = time.perf_counter()
        await submit_batches(client, "w1", jobs, 1000)
        return Sample({"submit_singles": singles, "submit_batches": jobs / (time.perf_counter() - began)})


async def idle(folder: Path, quick: bool) -> Sample:
    """From the start of the processes to the first result; then what they cost doing nothing."""
    began = time.perf_counter()
    with House(folder) as running:
        running.wait_ready()
        async with Client(running.url, running.token) as client:
            checked(await client.run("w1", timeout_s=30))
            first = time.perf_counter() - began
        await asyncio.sleep(2)
        roles = list(running.processes)
        before, began = sum(map(running.cpu_s, roles)), time.perf_counter()
        await asyncio.sleep(3 if quick else 10)
        cpu = (sum(map(running.cpu_s, roles)) - before) / (time.perf_counter() - began) * 100
        memory = {role: running.rss_mib(role) for role in roles}
    return Sample(
        {"start_to_first_job": first, "idle_rss": sum(memory.values()), "idle_cpu": cpu},
        {f"{role}_mib": value for role, value in memory.items()},
    )


async def stock_50(folder: Path, quick: bool) -> Sample:
    """W1 with one process of the stock worker over long-poll, in memory as its own system was measured."""
    return await stock(folder, quick, "stock_50", "memory", 1)


async def stock_50_by_two(folder: Path, quick: bool) -> Sample:
    """The same with two processes of it, which share the fifty: one alone is as fast as one core lets it be."""
    return await stock(folder, quick, "stock_50_by_two", "memory", 2)


async def stock(folder: Path, quick: bool, figure: str, storage: str, processes: int) -> Sample:
    """Stock workers with fifty slots among them, and fifty jobs in flight. The notes tell who used how much CPU."""
    python = ROOT / ".stock" / "new" / "bin" / "python"
    if not python.exists():
        return Sample({}, missing="no stock worker; make it with scripts/make-stock-venvs .stock")
    with House(folder, storage, workers=0) as running:
        running.wait_ready()
        slots = str(STOCK_IN_FLIGHT // processes)
        for _ in range(processes):
            command = [str(python), "bench/stock_worker.py", str(running.port), running.worker_token, slots]
            running.spawn("worker", command)
        async with Client(running.url, running.token) as client:
            await closed_loop(client, "w1", 300, STOCK_IN_FLIGHT)
            before = {role: running.cpu_s(role) for role in ("worker", "orchestrator")}
            jobs = 1000 if quick else 4000
            rate, times = await closed_loop(client, "w1", jobs, STOCK_IN_FLIGHT)
            notes: dict[str, float | str] = {
                f"{role}_cpu_us": (running.cpu_s(role) - cpu) / jobs * 1e6 for role, cpu in before.items()
            }
    return Sample({figure: rate}, notes | {"p50_ms": median(times), "p99_ms": p99(times)})


async def idle_crowd(folder: Path, quick: bool) -> Sample:
    """Thousands of workers, connected and idle: what each costs."""
    count = 1000 if quick else 10_000
    with House(folder, workers=0) as running:
        running.wait_ready()
        before = running.rss_mib("orchestrator")
        command = [sys.executable, "-m", "bench.crowd", running.url, running.worker_token, str(count)]
        crowd = await asyncio.create_subprocess_exec(
            *command, cwd=ROOT, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert crowd.stdin is not None
        assert crowd.stdout is not None
        try:
            if (await crowd.stdout.readline()).strip() != b"ready":
                raise RuntimeError("the crowd did not get in")
            await asyncio.sleep(2)
            memory = (running.rss_mib("orchestrator") - before) * 1024 / count
            cpu, began = running.cpu_s("orchestrator"), time.perf_counter()
            await asyncio.sleep(5 if quick else 20)
            share = (running.cpu_s("orchestrator") - cpu) / (time.perf_counter() - began) * 100
        finally:
            crowd.stdin.close()
            await crowd.wait()
    return Sample({"idle_worker_kib": memory, "idle_crowd_cpu": share}, {"workers": count})


async def beside_a_crowd(
    client: Client, crowd: int, jobs: int, is_calm: Callable[[], bool] = lambda: True
) -> dict[str, float]:
    """Submit and W1 rates with so many queued jobs that nobody may do, over those of an empty store.

    Each takes a second or less, so it is taken several times, and the median counts.
    """
    await collect(client, await submit_batches(client, "w1", jobs))
    empty = await _rates(client, jobs)
    await submit_batches(client, "parked", crowd, 1000)
    await _all_wait(client, crowd + RATES * jobs, is_calm)
    full = await _rates(client, jobs)
    return {"w1": full[0] / empty[0], "submit": full[1] / empty[1], "empty_w1": empty[0], "full_w1": full[0]}


async def _rates(client: Client, jobs: int) -> tuple[float, float]:
    """W1 and submit, in turns."""
    found = [(await _w1_rate(client, jobs), await _submit_rate(client, jobs)) for _ in range(RATES)]
    return median(w1 for w1, _ in found), median(submit for _, submit in found)


async def _all_wait(client: Client, jobs: int, is_calm: Callable[[], bool]) -> None:
    """Until all of the crowd stand in their lane, and history has caught up: before that they are not idle."""
    async with asyncio.timeout(900):
        while sum(queue["waiting"] for queue in await client.queues()) < jobs:  # noqa: ASYNC110
            await asyncio.sleep(0.5)
        while not is_calm():  # noqa: ASYNC110
            await asyncio.sleep(0.5)
    await asyncio.sleep(3)


async def _w1_rate(client: Client, jobs: int) -> float:
    began = time.perf_counter()
    await collect(client, await submit_batches(client, "w1", jobs))
    return jobs / (time.perf_counter() - began)


async def _submit_rate(client: Client, jobs: int) -> float:
    began = time.perf_counter()
    await submit_batches(client, "parked", jobs)
    return jobs / (time.perf_counter() - began)


async def queued(folder: Path, quick: bool) -> Sample:
    """A million queued jobs: what they cost in memory, and what the others feel of them."""
    crowd, jobs = (20_000, 1000) if quick else (1_000_000, 5000)
    async with house(folder) as (running, client):
        before = running.rss_mib("orchestrator")
        found = await beside_a_crowd(client, crowd, jobs)
        size = (running.rss_mib("orchestrator") - before) * 2**20 / crowd
    notes: dict[str, float | str] = {"jobs": crowd, "rss_bytes_a_job": size}
    notes |= {name: found[name] for name in ("empty_w1", "full_w1")}
    return Sample({"queued_w1": found["w1"], "queued_submit": found["submit"]}, notes)


def _rate(name: str, must: float | None, beside: Beside = Beside.NOTHING) -> Measure:
    return Measure(name, "jobs/s", Better.HIGHER, must, beside)


def _low(name: str, unit: str, must: float | None) -> Measure:
    return Measure(name, unit, Better.LOWER, must)


HTTP_BENCHES = (
    Bench(
        "w1_batched",
        w1_batched,
        (_rate("w1_batched", 5000, Beside.COMMITS), _low("w1_orchestrator_cpu", "ms", 0.15)),
    ),
    Bench("w1_singles", w1_singles, (_rate("w1_singles", 2500, Beside.COMMITS),)),
    Bench("w1_latency", w1_latency, (_low("w1_p50", "ms", 2), _low("w1_p99", "ms", 5))),
    Bench("w1_100", w1_100, (_rate("w1_100", 2500, Beside.COMMITS), _low("w1_100_p99", "ms", 80))),
    Bench("w2_burst", w2_burst, (_rate("w2_burst", 2000, Beside.COMMITS),)),
    Bench("w3_burst", w3_burst, (_rate("w3_burst", 50),)),
    Bench("chain_40", chain_40, (_low("chain_40", "s", 0.55), _low("chain_40_per_step", "ms", 3.5))),
    Bench("submit_rate", submit_rate, (_rate("submit_singles", 3000), _rate("submit_batches", 20_000))),
    Bench("stock_50", stock_50, (_rate("stock_50", 1200),)),
    Bench("stock_50_by_two", stock_50_by_two, (_rate("stock_50_by_two", None),)),
    Bench("idle_crowd", idle_crowd, (_low("idle_worker_kib", "KiB", 28), _low("idle_crowd_cpu", "%", 10))),
    Bench(
        "queued",
        queued,
        (
            Measure("queued_w1", "×", Better.HIGHER, 0.8),
            Measure("queued_submit", "×", Better.HIGHER, 0.8),
        ),
    ),
    Bench(
        "idle",
        idle,
        (_low("start_to_first_job", "s", 0.8), _low("idle_rss", "MiB", 130), _low("idle_cpu", "%", 1)),
    ),
)
