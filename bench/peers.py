"""Ours beside others in the same run: `python -m bench.peers [--peers huey,restate,…] [--json FILE]`.

The peers' harnesses lie in another folder (`--source`, by default `../shared/bench/peers`; its `setup.sh` makes
an environment for each) and print one JSON line per figure; each runs W1, W2 and W3 as we do. `original` is the system of
the source documents with its own worker; `stock_50` is that worker with us, and `bench.original` shows more of both. Machines
differ and are noisy: only the ratio between two figures of one run means something, and the last table tells each bar in the
measure of the first peer. `--rounds N` takes ours and the peers in turns, N times, since a machine changes within minutes.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from .bars import THEN, verdicts
from .core import ROOT, aligned, collect, figures, short
from .http_benches import HTTP_BENCHES
from .measures import Better
from .original import HOME, STOCK, measure

#: Our figure → the peers' workload and metric.
SAME = {
    "w1_batched": ("w1", "jobs_per_s_burst"),
    "w1_singles": ("w1", "jobs_per_s_burst"),
    "w1_100": ("w1", "jobs_per_s_100_in_flight"),
    "w1_100_p99": ("w1", "latency_p99_100_in_flight"),
    "w1_orchestrator_cpu": ("w1", "cpu"),
    "w1_p50": ("w1", "latency_p50_1_in_flight"),
    "w1_p99": ("w1", "latency_p99_1_in_flight"),
    "w2_burst": ("w2", "jobs_per_s_burst"),
    "w3_burst": ("w3", "jobs_per_s_burst"),
    "submit_singles": ("w1", "submit"),
    "submit_batches": ("w1", "submit"),
    "stock_50": ("original", "jobs_per_s_50_in_flight"),
    "start_to_first_job": ("w4", "start_to_first_job"),
    "idle_rss": ("w4", "idle_rss_total"),
    "idle_cpu": ("w4", "idle_cpu_total"),
}
#: Where the peers' harnesses lie.
HARNESSES = ROOT.parent / "shared" / "bench" / "peers"
PEERS = ("huey:mem", "restate:calls", "celery:aof", "dramatiq:mem", "dbos:sqlite-queue", "original")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("--peers", default=",".join(PEERS), help="NAME:CONFIG, separated by commas")
    parser.add_argument("--source", type=Path, default=HARNESSES)
    parser.add_argument("--home", type=Path, default=HOME)
    parser.add_argument(
        "--rounds", type=int, default=1, metavar="N", help="ours and the peers in turns, N times"
    )
    parser.add_argument("--quick", action="store_true", help="two smaller runs of ours")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    asked = parser.parse_args()
    if not (asked.source / "common.py").exists():
        parser.error(f"expected the peers' harnesses in {asked.source}, found none; name them with --source")
    names = [name for name in asked.peers.split(",") if name]
    rounds = [
        (run_ours(asked.quick), {name: run_peer(name, asked.source, asked.home) for name in names})
        for _ in range(asked.rounds)
    ]
    ours = middle([ours for ours, _ in rounds])
    others = {name: _medians([found[name] for _, found in rounds]) for name in names}
    if asked.json:
        asked.json.write_bytes(msgspec.json.encode({"regista": ours, **others}))
    print()
    print(table(ours, others))
    for peer in [name for name in names if name in THEN and others[name]][:1]:
        print()
        print(aligned(verdicts(ours, peer, others[peer], SAME)))
    return 0


def run_ours(quick: bool) -> dict[str, dict[str, Any]]:
    """Our figures, by name."""
    found: dict[str, dict[str, Any]] = {}
    for number, bench in enumerate(HTTP_BENCHES, 1):
        if any(measure.name in SAME for measure in bench.measures):
            samples = collect(bench, quick, f"{number}/{len(HTTP_BENCHES)}")
            found |= {line["figure"]: line for line in figures(bench, samples)}
    return found


def middle(rounds: list[dict[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Our lines with the median of the rounds for a value, and all of them beside it."""
    last = rounds[-1]
    for figure, line in last.items():
        values = [found[figure]["value"] for found in rounds if "value" in found[figure]]
        last[figure] = line | ({"value": median(values), "rounds": values} if values else {})
    return last


def _medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    names = {name for found in rounds for name in found}
    return {name: median(found[name] for found in rounds if name in found) for name in names}


def run_peer(name: str, source: Path, home: Path) -> dict[str, float]:
    """A peer's figures: `workload metric` → value. Empty when it could not be run."""
    if name == "original":
        return run_original(source.parent / "original", home)
    peer, _, config = name.partition(":")
    python = home / f"v-{peer}" / "bin" / "python"
    if not python.exists():
        print(f"{name}: no environment in {home}; make it with {source / 'setup.sh'} {peer}", file=sys.stderr)
        return {}
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as out:
        command = [str(python), f"peer_{peer}.py", "--target", "2", "--out", out.name]
        command += ["--config", config] if config else []
        print(f"{name} ...", file=sys.stderr, flush=True)
        done = subprocess.run(
            command, cwd=source, env=os.environ | {"PEERS_HOME": str(home)}, stdout=sys.stderr
        )
        if done.returncode != 0:
            print(f"{name}: failed with exit code {done.returncode}", file=sys.stderr)
        lines = [msgspec.json.decode(line) for line in Path(out.name).read_bytes().splitlines()]
    return {f"{line['workload']} {line['metric']}": line["value"] for line in lines}


def run_original(source: Path, home: Path) -> dict[str, float]:
    """The orchestrator of the source documents with its own worker package, fifty in flight, in memory."""
    python = home / "v-original" / "bin" / "python"
    if not (python.exists() and STOCK.exists()):
        print(f"original: expected {python} and {STOCK}", file=sys.stderr)
        return {}
    print("original ...", file=sys.stderr, flush=True)
    told = dict(
        measure("original", python, source, ["--what", "e2e1x50", "--sdk", f"{STOCK} sdk_workers.py"])
    )
    return {"original jobs_per_s_50_in_flight": told["e2e_1w_50inflight_sdk jobs_per_s"]}


def table(
    ours: dict[str, dict[str, Any]],
    others: dict[str, dict[str, float]],
    same: dict[str, tuple[str, str]] = SAME,
) -> str:
    """One row per figure; beside each peer's value how many times better ours is."""
    rows: list[tuple[str, ...]] = [("figure", "regista", *others)]
    for figure, (workload, metric) in same.items():
        line = ours.get(figure, {})
        value = line.get("value")
        cells = [f"{short(value)} {line['unit']}" if value is not None else "-"]
        for found in others.values():
            theirs = found.get(f"{workload} {metric}")
            cells.append(_beside(value, theirs, line.get("better", "")))
        rows.append((figure, *cells))
    return aligned(rows)


def _beside(ours: float | None, theirs: float | None, better: str) -> str:
    if ours is None or not theirs or not ours:
        return "-"
    times = ours / theirs if better == Better.HIGHER.name.lower() else theirs / ours
    return f"{short(theirs)} (x{times:.2g})"


if __name__ == "__main__":
    sys.exit(main())
