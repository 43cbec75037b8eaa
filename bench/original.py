"""Ours and the original orchestrator under the same harness: `python -m bench.original [--storage memory|redis]`.

The harness (`--source`, by default `../shared/bench/original`) speaks the worker protocol of both: single submissions,
workers that poll for one task at a time, and a job is over when its webhook has come. Each figure is taken in turns, ours
and theirs, `--runs` times; medians, and ours over theirs. It knows nothing of us but the protocol, so it is also the
bar's *stock long-poll worker, 50 in flight*; `--sdk` puts the published worker package in place of its own workers.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from .http_stage import REDIS, ROOT, free_port, wait_for_port

HARNESS = ROOT.parent / "shared" / "bench" / "original"
HOME = Path(tempfile.gettempdir()) / "peerbench"
FIGURES = "create,e2e1,e2e1x50,e2e50"
#: What is shown of a figure, and whether more of it is better.
SHOWN = {"rps": True, "jobs_per_s": True, "p50_ms": False, "p99_ms": False}
#: The worker package of the documents, and the harness' name for what it takes.
STOCK = ROOT / ".stock" / "new" / "bin" / "python"
#: A receiver of webhooks on loopback is nothing that an orchestrator tells by default.
SETTINGS = {"REGISTA_WEBHOOK_ALLOW_PRIVATE": "127.0.0.0/8"}


def main() -> int:
    """Measure both in turns, and show both."""
    parser = argparse.ArgumentParser(prog="python -m bench.original", description=__doc__)
    parser.add_argument("--storage", choices=("memory", "redis"), default="memory")
    parser.add_argument("--what", default=FIGURES, help=f"the harness' figures (default: {FIGURES})")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--sdk", action="store_true", help="with the published worker package")
    parser.add_argument("--source", type=Path, default=HARNESS)
    parser.add_argument("--home", type=Path, default=HOME, help="where the original's environment is")
    asked = parser.parse_args()
    python = asked.home / "v-original" / "bin" / "python"
    if not (asked.source / "bench.py").exists():
        parser.error(f"expected the harness in {asked.source}, found none; name it with --source")
    if not python.exists():
        parser.error(f"expected the original's environment in {python.parent.parent}; see {asked.source}")
    found: dict[str, dict[str, list[float]]] = {"regista": {}, "original": {}}
    with server(asked.storage) as port:
        more = ["--storage", asked.storage, *(["--redis-port", str(port)] if port else [])]
        more += ["--sdk", f"{STOCK} sdk_workers.py"] if asked.sdk else []
        for what in asked.what.split(","):
            for turn in range(asked.runs):
                print(f"{what} {turn + 1}/{asked.runs} ...", file=sys.stderr, flush=True)
                for name, values in found.items():
                    for figure, value in measure(name, python, asked.source, [*more, "--what", what]):
                        values.setdefault(figure, []).append(value)
    print(table(found))
    return 0


@contextlib.contextmanager
def server(storage: str) -> Iterator[int | None]:
    """The port of a redis-server of its own, where one is needed. The harness empties it."""
    if storage == "memory":
        yield None
        return
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen([*REDIS, "--port", str(port), "--dir", folder], stdout=subprocess.DEVNULL)
        try:
            wait_for_port(port)
            yield port
        finally:
            process.terminate()
            process.wait()


def measure(name: str, python: Path, source: Path, arguments: list[str]) -> Iterator[tuple[str, float]]:
    """The figures of one run of the harness."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(python), "bench.py", "--impl", name, *arguments]
        if name == "regista":
            regista = f"{sys.executable} -m regista serve {ROOT / 'bench' / 'original_app.py'} --dir {folder}"
            redis = "redis" in arguments
            command += ["--cmd", regista if redis else f"{regista} --storage memory"]
        ran = subprocess.run(
            command, cwd=source, env={**os.environ, **SETTINGS}, stdout=subprocess.PIPE, timeout=300
        )
    for line in ran.stdout.splitlines():
        told: dict[str, Any] = msgspec.json.decode(line)
        if told["figure"] == "warmup":
            continue
        _check(name, told)
        for key in SHOWN:
            if told.get(key) is not None:
                yield f"{told['figure']} {key}", told[key]


def _check(name: str, told: dict[str, Any]) -> None:
    """A figure of jobs that were lost is none."""
    over = set(told.get("ends", {})) - {"job_finished"}
    if over or told.get("errors") or told.get("results_refused"):
        raise RuntimeError(f"{name} did not finish everything: {told}")


def table(found: dict[str, dict[str, list[float]]]) -> str:
    """One row per figure: ours, theirs, and how many times better ours is."""
    rows = [("figure", *found, "times better")]
    for figure in found["regista"]:
        ours, theirs = (median(values[figure]) if figure in values else None for values in found.values())
        assert ours is not None
        more_is_better = SHOWN[figure.rpartition(" ")[2]]
        times = None if not theirs else ours / theirs if more_is_better else theirs / ours
        rows.append((figure, f"{ours:,.4g}", _shown(theirs), _shown(times)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows
    )


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:,.3g}"


if __name__ == "__main__":
    sys.exit(main())
