"""Two states of the code at once, asked in turns: `python -m bench.duel REF [--what batched] [--rounds 12]`.

This machine may run at half its speed a minute later, so two runs one after the other say little about two states. Here
both have an orchestrator and a worker, both stay up, and the client asks one and then the other for a few seconds at most,
the first one in every second round. What is shown is the median of the ratios within a round, how many rounds the newer
one has won, and how likely so clear a result would be if there were no difference (a sign test).

`REF` is what git knows the older state by; the newer one is the tree as it is. Client and app are this tree's in both.
"""

import argparse
import asyncio
import contextlib
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from regista import Client

from .http_benches import closed_loop, collect, p99, submit_batches, submit_singles
from .http_stage import ROOT, House

#: Jobs of one turn: a second or two.
TURNS = {"batched": 4000, "singles": 2000, "in_flight": 2000, "one": 300, "w2": 1500}


class Side:
    """One of the two, and how it did."""

    def __init__(self, name: str, house: House, client: Client) -> None:
        self.name = name
        self.house = house
        self.client = client
        self.rates: list[float] = []
        self.times_ms: list[float] = []
        self.cpu_s = 0.0

    async def turn(self, what: str, jobs: int) -> None:
        """So many jobs of it."""
        cpu_s, began = self.house.cpu_s("orchestrator"), time.perf_counter()
        self.times_ms += await play(self.client, what, jobs)
        self.rates.append(jobs / (time.perf_counter() - began))
        self.cpu_s += self.house.cpu_s("orchestrator") - cpu_s

    def row(self, jobs: int) -> str:
        """What to show of it."""
        told = f"{self.name:<20} {median(self.rates):>8,.0f} jobs/s   best {max(self.rates):>7,.0f}"
        told += f"   CPU {self.cpu_s / len(self.rates) / jobs * 1e6:>6,.0f} µs a job"
        if self.times_ms:
            told += f"   p50 {median(self.times_ms):.2f}   p99 {p99(self.times_ms):.2f} ms"
        return told


async def play(client: Client, what: str, jobs: int) -> list[float]:
    """Run so many jobs; milliseconds of each, where that is what is asked."""
    match what:
        case "one":
            return (await closed_loop(client, "w1", jobs, 1))[1]
        case "in_flight":
            return (await closed_loop(client, "w1", jobs, 100))[1]
        case "singles":
            await collect(client, await submit_singles(client, "w1", jobs))
        case _:
            await collect(client, await submit_batches(client, "w2" if what == "w2" else "w1", jobs))
    return []


async def duel(older: Path, asked: argparse.Namespace) -> list[Side]:
    """Both, older first."""
    jobs = asked.jobs or TURNS[asked.what]
    sides: list[Side] = []
    async with contextlib.AsyncExitStack() as stack:
        for name, tree in ((asked.ref, older), ("this tree", ROOT)):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="duel-")))
            settings = {"PYTHONPATH": str(tree / "src")}
            house = stack.enter_context(House(folder, asked.storage, settings=settings))
            house.wait_ready()
            client = await stack.enter_async_context(Client(house.url, house.token))
            await play(client, asked.what, jobs)  # warm
            sides.append(Side(name, house, client))
        for number in range(asked.rounds):
            print(f"round {number + 1}/{asked.rounds} ...", file=sys.stderr, flush=True)
            for side in sides if number % 2 else reversed(sides):
                await side.turn(asked.what, jobs)
    return sides


def chance(wins: int, rounds: int) -> float:
    """How likely it is that one of two equals wins at least so clearly."""
    clear = max(wins, rounds - wins)
    return min(1.0, 2 * sum(math.comb(rounds, k) for k in range(clear, rounds + 1)) / (1 << rounds))


def unpack(ref: str, into: Path) -> None:
    """That state's own package."""
    packed = subprocess.run(
        ["git", "archive", ref, "src"], cwd=ROOT, check=True, stdout=subprocess.PIPE
    ).stdout
    subprocess.run(["tar", "-x", "-C", str(into)], check=True, input=packed)
    # As installed ones are, and this tree's is.
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(into / "src")], check=True)


def main(given: Sequence[str] | None = None) -> int:
    """Measure, and show."""
    parser = argparse.ArgumentParser(prog="python -m bench.duel", description=__doc__)
    parser.add_argument("ref", help="the older state: a commit, a tag, a branch")
    parser.add_argument("--what", choices=list(TURNS), default="batched")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--jobs", type=int, help="of one turn (default: by what is asked)")
    parser.add_argument("--storage", choices=("sqlite", "memory", "redis"), default="sqlite")
    asked = parser.parse_args(given)
    if asked.rounds < 1 or (asked.jobs is not None and asked.jobs < 1):
        parser.error("expected at least one round, of at least one job")
    with tempfile.TemporaryDirectory(prefix="duel-") as folder:
        try:
            unpack(asked.ref, Path(folder))
        except subprocess.CalledProcessError:
            parser.error(f"expected a state that git knows, got {asked.ref!r}")
        older, newer = asyncio.run(duel(Path(folder), asked))
    jobs, rounds = asked.jobs or TURNS[asked.what], asked.rounds
    ratio = median(new / old for old, new in zip(older.rates, newer.rates, strict=True))
    wins = sum(new > old for old, new in zip(older.rates, newer.rates, strict=True))
    print(f"{asked.what}, {asked.storage}, {rounds} rounds of {jobs:,} jobs for each")
    print("\n".join(side.row(jobs) for side in (older, newer)))
    print(
        f"newer over older {ratio:.3f}, quicker in {wins} of {rounds} rounds (p = {chance(wins, rounds):.2g})"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
