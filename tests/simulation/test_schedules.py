"""Schedules in the storm: two schedulers, crashes at every boundary, power cuts; each tick once. Promise 8."""

import pytest

from regista.schedules.schedule import CatchUp, Overlap, Schedule
from regista.testing.simulation import simulate

from .blueprints import one_task

pytestmark = [pytest.mark.simulation, pytest.mark.timeout(120)]

SEEDS = 30


def test_each_tick_fires_once_whatever_goes_wrong() -> None:
    blueprint = one_task()
    schedules = {
        "each": Schedule(blueprint=blueprint.name, interval_seconds=2, catch_up=CatchUp.ALL),
        "alone": Schedule(blueprint=blueprint.name, interval_seconds=3, overlap=Overlap.SKIP),
        "newest": Schedule(
            blueprint=blueprint.name, interval_seconds=3, overlap=Overlap.CANCEL_PREVIOUS, jitter_seconds=2.0
        ),
        "one_more": Schedule(blueprint=blueprint.name, interval_seconds=1, overlap=Overlap.BUFFER_ONE),
    }
    report = simulate(blueprint, seeds=range(SEEDS), jobs=8, storm_s=20, schedules=schedules)

    assert report.seeds == SEEDS
    assert report.faults["tick"] > 5 * SEEDS
    assert report.faults["skipped tick"] > 0
    assert report.faults["power cut"] > 0
    assert any(fault.startswith("crash") for fault in report.faults)
