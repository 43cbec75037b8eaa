"""The bars in a peer's measure: what a figure must be on a machine as quick as this one is right now.

The bars name absolute figures and the peers' own figures of the same day. Machines differ, and one machine differs from minute
to minute, so a bar that was set where a peer did 2,326 jobs/s would ask for two thirds of it where the same peer does 1,551. This
is our own reckoning, to tell a slow machine from slow code: a bar is met when the figure itself is reached.
"""

from typing import Any

from .core import short
from .measures import Better

#: What each peer did where the bars were set: `workload metric` → median.
THEN: dict[str, dict[str, float]] = {
    "huey:mem": {
        "w1 jobs_per_s_burst": 2326,
        "w1 jobs_per_s_100_in_flight": 2349,
        "w1 latency_p50_1_in_flight": 0.95,
        "w1 latency_p99_1_in_flight": 1.8,
        "w2 jobs_per_s_burst": 849,
        "w3 jobs_per_s_burst": 16.4,
        "w4 start_to_first_job": 0.19,
    },
    "restate:calls": {
        "w1 jobs_per_s_burst": 658,
        "w1 jobs_per_s_100_in_flight": 585,
        "w1 latency_p50_1_in_flight": 6.1,
        "w1 latency_p99_1_in_flight": 10.0,
        "w2 jobs_per_s_burst": 470,
        "w3 jobs_per_s_burst": 7.7,
        "w4 start_to_first_job": 0.88,
    },
}
#: What stands for the machine's speed where a peer has no such figure.
SPEED = "w1 jobs_per_s_burst"
#: What does not depend on how quick the machine is.
STEADY = ("w4 idle_rss_total", "w4 idle_cpu_total")


def scaled(
    must: float, better: str, metric: str, now: dict[str, float], then: dict[str, float]
) -> float | None:
    """The bar as it would stand today; None where the peer told nothing to measure it by."""
    if metric in STEADY:
        return must
    named = metric if metric in now and metric in then else SPEED
    if not now.get(named):
        return None
    change = now[named] / then[named]
    quicker = change if named.split()[1].startswith("jobs_per_s") else 1 / change
    return must * quicker if better == Better.HIGHER.name.lower() else must / quicker


def verdicts(
    ours: dict[str, dict[str, Any]], peer: str, now: dict[str, float], same: dict[str, tuple[str, str]]
) -> list[tuple[str, ...]]:
    """One row for each figure of ours that has a bar: ours over the bar, and over the bar in this peer's measure."""
    rows: list[tuple[str, ...]] = [("figure", "regista", "must", "", f"must, by {peer}", "")]
    for figure, names in same.items():
        line = ours.get(figure, {})
        if line.get("must") is None or line.get("value") is None:
            continue
        here = scaled(line["must"], line["better"], " ".join(names), now, THEN[peer])
        if here is not None:
            sides = [part for bar in (line["must"], here) for part in (short(bar), _verdict(line, bar))]
            rows.append((figure, short(line["value"]), *sides))
    return rows


def _verdict(line: dict[str, Any], bar: float) -> str:
    """How far ours is on the right or the wrong side."""
    times = line["value"] / bar if line["better"] == Better.HIGHER.name.lower() else bar / line["value"]
    return f"met (x{times:.2g})" if times >= 1 else f"MISS (x{times:.2g})"
