"""What a choice costs: `python -m bench.dispatch [--json FILE]`.

A decision is `reserve` and `release` of one task: choose among the seats, take a slot, give it back. Ten
seats or ten thousand, alike or of fifty classes, idle, nearly full, or full: it should cost the same.
"""

import argparse
import asyncio
import gc
import os
import platform
import random
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from regista.clock import SystemClock
from regista.dispatch.connected import CallbackConnection
from regista.dispatch.dispatcher import Dispatcher
from regista.model import Profile, Task, Worker
from regista.storage.memory import MemoryStorage

from .stage import percentile

#: The fewest are ten, or one of each class.
SEATS = (10, 1_000, 10_000)
CLASSES = (1, 50)
DECISIONS, ROUNDS = 10_000, 50
#: Ten thousand seats against ten, and the worst of a hundred decisions.
MUST_RATIO, MUST_P99_US = 2.0, 1000.0


class Row(Struct):
    """One line of the table."""

    figure: str
    seats: int
    classes: int
    strategy: str
    load: str
    mean_us: float
    p50_us: float
    p99_us: float


async def stage(seats: int, classes: int) -> Dispatcher:
    """A dispatcher with so many idle workers, one after the other of each class."""
    storage = MemoryStorage()
    await storage.start()
    dispatcher = Dispatcher(storage, SystemClock())
    for number in range(seats):
        profile = Profile(ram_gb=16, cost_per_second=1.0 + number % classes)
        worker = Worker(id=f"w{number}", skills=("work",), profile=profile, session=1)
        dispatcher.connect(worker, CallbackConnection(lambda tasks: None, lambda attempts: None))
    await asyncio.sleep(0.01)  # the dispatcher has looked at the lanes
    return dispatcher


def tasks(strategy: str) -> Iterator[Task]:
    for number in count():
        yield Task(
            id=f"job_1_{number}",
            job_id="job",
            type="work",
            strategy=None if strategy == "default" else strategy,
        )


class Play:
    """Decisions over one crowd, while about `load` of all slots are taken, as in life: at random."""

    def __init__(self, dispatcher: Dispatcher, strategy: str, load: float, slots: int) -> None:
        self._dispatcher = dispatcher
        self._now = SystemClock().now()
        self._line = tasks(strategy)
        self._chance = random.Random(7)
        self._held = [self._reserve(next(self._line)) for _ in range(int(load * slots))]
        #: Microseconds of each decision.
        self.took: list[float] = []

    def _reserve(self, task: Task) -> Task:
        offered = self._dispatcher.reserve(task, self._now)
        if offered is None:
            raise RuntimeError("expected a free slot: the load is too high")
        return offered

    def decide(self, times: int) -> None:
        for _ in range(times):
            task = next(self._line)
            began = time.perf_counter_ns()
            offered = self._reserve(task)
            took = time.perf_counter_ns() - began
            if self._held:
                place = self._chance.randrange(len(self._held))
                offered, self._held[place] = self._held[place], offered
            began = time.perf_counter_ns()
            self._dispatcher.release(offered.worker_id, offered.attempt_id)
            self.took.append((took + time.perf_counter_ns() - began) / 1000)


async def rows() -> list[Row]:
    found = []
    for classes in CLASSES:
        for strategy in ("default", "least_connections"):
            for name, load in (("idle", 0.0), ("80 %", 0.8)):
                crowds = (max(SEATS[0], classes), *SEATS[1:])
                halls = [await stage(seats, classes) for seats in crowds]
                plays = [
                    Play(hall, strategy, load, seats * 10) for hall, seats in zip(halls, crowds, strict=True)
                ]
                gc.collect()
                for _ in range(ROUNDS):  # in turns: a machine that slows down does so for all of them
                    for play in plays:
                        play.decide(DECISIONS // ROUNDS)
                for play, seats in zip(plays, crowds, strict=True):
                    found.append(row(seats, classes, strategy, name, play.took))
                for hall in halls:
                    await hall.stop()
    return found


def row(seats: int, classes: int, strategy: str, load: str, took: list[float]) -> Row:
    figure = f"dispatch_{seats}_{classes}_{strategy}_{load}"
    mean, p50, p99 = sum(took) / len(took), percentile(took, 50), percentile(took, 99)
    return Row(figure, seats, classes, strategy, load, mean, p50, p99)


def ratios(found: list[Row]) -> dict[str, float]:
    """Ten thousand seats against the fewest, by what else was the same."""
    few = {(row.classes, row.strategy, row.load): row.p50_us for row in found if row.seats < SEATS[1]}
    many = [row for row in found if row.seats == SEATS[-1]]
    return {
        f"{row.classes} classes, {row.strategy}, {row.load}": row.p50_us
        / few[row.classes, row.strategy, row.load]
        for row in many
    }


def table(found: list[Row]) -> str:
    head = f"{'seats':>6}  {'classes':>7}  {'strategy':<17}  {'load':<5}  {'mean':>7}  {'p50':>7}  {'p99':>7}"
    lines = [head + "   µs per decision (reserve + release)", "-" * len(head)]
    lines += [
        f"{row.seats:>6}  {row.classes:>7}  {row.strategy:<17}  {row.load:<5}  "
        f"{row.mean_us:>7.2f}  {row.p50_us:>7.2f}  {row.p99_us:>7.2f}"
        for row in found
    ]
    worst_p99 = max(row.p99_us for row in found)
    lines += ["", f"{SEATS[-1]:,} seats against the fewest (must be within {MUST_RATIO:g} ×):"]
    for what, ratio in ratios(found).items():
        lines.append(f"  {ratio:>5.2f} ×  {'pass' if ratio <= MUST_RATIO else 'MISS'}  {what}")
    verdict = "pass" if worst_p99 < MUST_P99_US else "MISS"
    lines.append(f"worst p99 {worst_p99:.1f} µs (must be below {MUST_P99_US:g}): {verdict}")
    lines.append(f"Python {platform.python_version()}, {os.cpu_count()} cores")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.dispatch", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write JSON lines there as well")
    asked = parser.parse_args()
    found = asyncio.run(rows())
    if asked.json:
        lines: list[Any] = [*found, {"figure": "dispatch_ratio", "ratios": ratios(found)}]
        asked.json.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    print(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
