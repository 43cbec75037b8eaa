"""The figures on Redis: `python -m bench.on_redis [--quick] [--only NAME] [--json FILE] [--peers huey:aof,…]`.

A redis-server of its own (append-only file, flushed every second), one or two orchestrators, workers and the client
library, all separate processes on loopback. Otherwise as `bench.core`, which see. Then, in the same run, those whom people
would pick instead, on a Redis that is set the same way; see `bench.peers` for where their harnesses lie.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from .core import main
from .original import HOME
from .peers import HARNESSES, run_peer, table
from .redis_benches import REDIS_BENCHES

#: Our figure → the peers' workload and metric.
SAME = {
    "redis_w1_burst": ("w1", "jobs_per_s_burst"),
    "redis_w1_100": ("w1", "jobs_per_s_100_in_flight"),
    "redis_w1_p50": ("w1", "latency_p50_1_in_flight"),
    "redis_w1_p99": ("w1", "latency_p99_1_in_flight"),
    "redis_w2_burst": ("w2", "jobs_per_s_burst"),
    "redis_w3_burst": ("w3", "jobs_per_s_burst"),
}
#: Beside us unless told otherwise: both with the append-only file flushed every second.
PEERS = "huey:aof,celery:aof"


def on_redis() -> int:
    """Ours as `bench.core` runs them, then the peers."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--peers", default=PEERS)
    parser.add_argument("--source", type=Path, default=HARNESSES)
    parser.add_argument("--home", type=Path, default=HOME)
    asked, rest = parser.parse_known_args()
    with tempfile.NamedTemporaryFile(suffix=".jsonl") as kept:
        # Ours are written there first; a --json of the user's comes later and wins.
        sys.argv = [sys.argv[0], "--json", kept.name, *rest]
        failed = main(REDIS_BENCHES, "python -m bench.on_redis", __doc__)
        lines = Path(_last_json(rest) or kept.name).read_bytes().splitlines()
    ours = {line["figure"]: line for line in map(msgspec.json.decode, lines)}
    show_peers(ours, [name for name in asked.peers.split(",") if name], asked.source, asked.home)
    return failed


def _last_json(arguments: list[str]) -> str | None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--json")
    found: str | None = parser.parse_known_args(arguments)[0].json
    return found


def show_peers(ours: dict[str, dict[str, Any]], peers: list[str], source: Path, home: Path) -> None:
    """Their figures beside ours, or why there are none."""
    if not any(figure in SAME and "value" in line for figure, line in ours.items()):
        return  # nothing of ours to hold against them
    if not (source / "common.py").exists():
        print(f"\nno peers: their harnesses are not in {source}; name them with --source", file=sys.stderr)
        return
    others = {name: run_peer(name, source, home) for name in peers}
    if others:
        print()
        print(table(ours, others, SAME))


if __name__ == "__main__":
    sys.exit(on_redis())
