"""Many seeds, two orchestrators, and everything that can go wrong."""

import os

import pytest

from regista.testing.simulation import simulate
from regista.testing.world import Faults

from .blueprints import everything, one_task, shaky

#: More seeds by hand: SEEDS=5000 make simulate.
SEEDS = int(os.environ.get("SEEDS", "400"))

pytestmark = [pytest.mark.simulation, pytest.mark.timeout(240)]


@pytest.mark.parametrize("quarter", range(4))
def test_the_promises_hold_whatever_goes_wrong(quarter: int) -> None:
    seeds = range(quarter * SEEDS // 4, (quarter + 1) * SEEDS // 4)
    report = simulate(everything(), seeds=seeds)

    assert report.seeds == len(seeds)
    assert report.jobs == 8 * len(seeds)
    for fault in ("power cut", "worker death", "worker nap", "lost frame", "duplicate frame", "lost answer"):
        assert report.faults[fault] > 0, f"{fault} never fired: {report.faults}"
    for when in ("before commit", "during flush", "after commit"):
        assert report.faults[f"crash {when}"] > 0, f"no crash {when}: {report.faults}"


def test_jobs_that_are_retried_quarantined_and_released_come_to_an_end() -> None:
    report = simulate(shaky(), seeds=range(SEEDS // 4), jobs=12, storm_s=10)

    assert report.jobs == 12 * (SEEDS // 4)


def test_the_same_seed_gives_the_same_trace_to_the_byte() -> None:
    first = simulate(everything(), seeds=range(10))
    second = simulate(everything(), seeds=range(10))

    assert first.traces == second.traces
    assert len(set(first.traces.values())) == 10  # and another seed another one


@pytest.mark.parametrize("boundary", ["before", "during", "after"])
def test_a_crash_at_any_commit_loses_nothing(boundary: str) -> None:
    calm = Faults(
        power_cut_s=0, worker_death_s=0, worker_nap_s=0, lost_frame=0, lost_answer=0, duplicate=0, cancel=0
    )
    fired = 0
    for number in range(1, 60):
        report = simulate(
            everything(), seeds=[1], jobs=3, storm_s=3, faults=calm, crash_at=(number, boundary)
        )
        fired += sum(count for fault, count in report.faults.items() if fault.startswith("crash"))
    assert fired > 30


def test_one_instance_alone_keeps_the_promises_too() -> None:
    report = simulate(one_task(), seeds=range(20), jobs=30, instances=1, storm_s=10)

    assert report.jobs == 600
