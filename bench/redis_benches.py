"""The benches on Redis: the same workloads, on a server of their own with its append-only file flushed every second."""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

from regista.client import Client

from .benches import Bench
from .http_benches import beside_a_crowd, checked, closed_loop, collect, p99, stock, submit_batches
from .http_stage import House
from .measures import Better, Measure, Sample

MISSING = "no redis-server; scripts/install-system installs it"


@asynccontextmanager
async def cluster(
    folder: Path, orchestrators: int = 1, workers: int = 1, settings: dict[str, str] | None = None
) -> AsyncIterator[tuple[House, list[Client]]]:
    """Orchestrators on one server, and a client of each; warm."""
    with House(folder, "redis", workers, settings, orchestrators) as running:
        running.wait_ready()
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(Client(url, running.token)) for url in running.urls]
            if workers:
                for client in clients:
                    checked(await client.run("w1", timeout_s=30))
            yield running, clients


def info(running: House) -> dict[str, Any]:
    """What the server tells of itself."""
    import redis

    with redis.Redis(port=running.redis_port) as server:
        return {**server.info(), **server.info("commandstats")}


def scripts(told: dict[str, Any]) -> int:
    """Scripts that the server has run."""
    return int(told.get("cmdstat_evalsha", {}).get("calls", 0))


async def burst(clients: Sequence[Client], kind: str, jobs: int) -> float:
    """Jobs per second, from the first submit to the last result seen, spread over the orchestrators."""
    began = time.perf_counter()

    async def share(client: Client) -> None:
        await collect(client, await submit_batches(client, kind, jobs // len(clients)))

    await asyncio.gather(*[share(client) for client in clients])
    return jobs / (time.perf_counter() - began)


async def w1(folder: Path, quick: bool) -> Sample:
    """W1: a burst, with what it costs the server; then one in flight, and a hundred."""
    if shutil.which("redis-server") is None:
        return Sample({}, missing=MISSING)
    jobs = 2000 if quick else 10_000
    async with cluster(folder) as (running, clients):
        await burst(clients, "w1", jobs // 5)
        before, cpu = info(running), {role: running.cpu_s(role) for role in running.processes}
        rate = await burst(clients, "w1", jobs)
        after = info(running)
        notes: dict[str, float | str] = {
            f"{role}_cpu_us": (running.cpu_s(role) - was) / jobs * 1e6 for role, was in cpu.items()
        }
        notes["aof_bytes_a_job"] = (after["aof_current_size"] - before["aof_current_size"]) / jobs
        _, times = await closed_loop(clients[0], "w1", 300 if quick else 1000, 1)
        single = scripts(info(running)) - scripts(after)
        flight, _ = await closed_loop(clients[0], "w1", 1000 if quick else 4000, 100)
    notes["scripts_a_job_one_in_flight"] = single / len(times)
    return Sample(
        {
            "redis_w1_burst": rate,
            "redis_scripts": (scripts(after) - scripts(before)) / jobs,
            "redis_w1_p50": median(times),
            "redis_w1_p99": p99(times),
            "redis_w1_100": flight,
        },
        notes,
    )


async def w2_w3(folder: Path, quick: bool) -> Sample:
    """W2 and W3, bursts."""
    if shutil.which("redis-server") is None:
        return Sample({}, missing=MISSING)
    async with cluster(folder) as (_, clients):
        await burst(clients, "w2", 300)
        w2 = await burst(clients, "w2", 1000 if quick else 4000)
        w3 = await burst(clients, "w3", 20 if quick else 100)
    return Sample({"redis_w2_burst": w2, "redis_w3_burst": w3})


async def two(folder: Path, quick: bool) -> Sample:
    """Two orchestrators against one, the same load: two workers, two clients' worth of submitters."""
    if shutil.which("redis-server") is None:
        return Sample({}, missing=MISSING)
    rates, each = {}, {}
    jobs = 2000 if quick else 8000
    for count in (1, 2):
        async with cluster(folder / str(count), count, 2) as (running, clients):
            clients = clients * (2 // count)
            await burst(clients, "w1", jobs // 4)
            before = scripts(info(running))
            rates[count] = await burst(clients, "w1", jobs)
            each[count] = (scripts(info(running)) - before) / jobs
    notes: dict[str, float | str] = {"one_jobs_s": rates[1], "two_jobs_s": rates[2]}
    notes |= {"one_scripts_a_job": each[1], "two_scripts_a_job": each[2]}
    return Sample({"redis_two_over_one": rates[2] / rates[1]}, notes)


async def redis_stock(folder: Path, quick: bool) -> Sample:
    """W1 with one process of the stock worker over long-poll."""
    if shutil.which("redis-server") is None:
        return Sample({}, missing=MISSING)
    return await stock(folder, quick, "redis_stock_50", "redis", 1)


async def queued(folder: Path, quick: bool) -> Sample:
    """Many queued jobs that nobody may do: what each costs the server, and what W1 does beside them."""
    if shutil.which("redis-server") is None:
        return Sample({}, missing=MISSING)
    crowd, jobs = (20_000, 1000) if quick else (1_000_000, 5000)
    async with cluster(folder) as (running, clients):
        before = info(running)["used_memory"]
        # The server writes its file anew while it grows, which takes one of the cores: not a matter of how much waits.
        found = await beside_a_crowd(
            clients[0], crowd, jobs, lambda: not info(running)["aof_rewrite_in_progress"]
        )
        after = info(running)
    notes: dict[str, float | str] = {"jobs": crowd, "server_mib": after["used_memory"] / 2**20}
    notes |= {"server_rss_mib": after["used_memory_rss"] / 2**20}
    notes |= {name: found[name] for name in ("empty_w1", "full_w1")}
    return Sample(
        {
            "redis_bytes_a_job": (after["used_memory"] - before) / crowd,
            "redis_full_w1": found["w1"],
            "redis_full_submit": found["submit"],
        },
        notes,
    )


def _at_least(name: str, unit: str, must: float | None) -> Measure:
    return Measure(name, unit, Better.HIGHER, must)


def _at_most(name: str, unit: str, must: float | None) -> Measure:
    return Measure(name, unit, Better.LOWER, must)


REDIS_BENCHES = (
    Bench(
        "redis_w1",
        w1,
        (
            _at_least("redis_w1_burst", "jobs/s", 3000),
            _at_most("redis_scripts", "scripts a job", 5),
            _at_most("redis_w1_p50", "ms", 3),
            _at_most("redis_w1_p99", "ms", 8),
            _at_least("redis_w1_100", "jobs/s", None),
        ),
    ),
    Bench(
        "redis_w2_w3",
        w2_w3,
        (_at_least("redis_w2_burst", "jobs/s", 1200), _at_least("redis_w3_burst", "jobs/s", 30)),
    ),
    Bench("redis_two", two, (_at_least("redis_two_over_one", "×", 1.0),)),
    Bench("redis_stock", redis_stock, (_at_least("redis_stock_50", "jobs/s", 800),)),
    Bench(
        "redis_queued",
        queued,
        (
            _at_most("redis_bytes_a_job", "B", None),
            _at_least("redis_full_w1", "×", 0.8),
            _at_least("redis_full_submit", "×", 0.8),
        ),
    ),
)
