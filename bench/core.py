"""The figures of the core: `python -m bench.core [--quick] [--only NAME] [--json FILE]`.

Each figure is the median of five runs (`--quick`: two smaller ones), every run in a process of its own, on
SQLite with fsync, beside the rate of raw SQLite commits measured just before it on the same disk. JSON
lines first, then a table. A missed bar is shown and does not fail: machines differ, ratios less. A bench that
breaks down does.
"""

import argparse
import contextlib
import os
import platform
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from .benches import BENCHES, Bench
from .measures import Measure, Sample

ROOT = Path(__file__).resolve().parent.parent
#: Beside the sources, since /tmp may be memory and would know no fsync. One per process: two benches at once
#: are slow, but not wrong.
FOLDER = ROOT / ".regista-bench" / str(os.getpid())
RUNS, QUICK_RUNS = 5, 2


def main(
    every: Sequence[Bench] = BENCHES, prog: str = "python -m bench.core", about: str | None = __doc__
) -> int:
    """Run what the command line asks for, and print it."""
    parser = argparse.ArgumentParser(prog=prog, description=about)
    parser.add_argument("--quick", action="store_true", help="two smaller runs each: a look, not a figure")
    parser.add_argument("--only", action="append", metavar="NAME", help="this bench (may be given again)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the JSON lines there as well")
    asked = parser.parse_args()
    benches = [bench for bench in every if not asked.only or bench.name in asked.only]
    if not benches:
        parser.error(f"expected one of {', '.join(bench.name for bench in every)}, got {asked.only}")
    lines: list[dict[str, Any]] = []
    failed = False
    try:
        for number, bench in enumerate(benches, 1):
            samples = collect(bench, asked.quick, f"{number}/{len(benches)}")
            failed |= any(sample.failed for sample in samples)
            for line in figures(bench, samples):
                print(msgspec.json.encode(line).decode(), flush=True)
                lines.append(line)
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)
        with contextlib.suppress(OSError):  # somebody else's bench is in it
            FOLDER.parent.rmdir()
    if asked.json:
        asked.json.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    print()
    print(table(lines, asked.quick))
    return int(failed)


def collect(bench: Bench, quick: bool, place: str) -> list[Sample]:
    """All runs of a bench, one after the other, each in fresh files."""
    samples: list[Sample] = []
    runs = QUICK_RUNS if quick else RUNS
    for number in range(1, runs + 1):
        began = time.perf_counter()
        print(f"[{place}] {bench.name} run {number}/{runs} ...", end="", file=sys.stderr, flush=True)
        sample = run_once(bench.name, quick)
        found = ", ".join(f"{name} {short(value)}" for name, value in sample.values.items()) or sample.missing
        print(f" {found} ({time.perf_counter() - began:.1f} s)", file=sys.stderr, flush=True)
        samples.append(sample)
        if sample.missing:
            break
    return samples


def run_once(name: str, quick: bool) -> Sample:
    """One run in a process of its own."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    command = [sys.executable, "-m", "bench.sample", name, str(FOLDER), *(["--quick"] if quick else [])]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE)
    if done.returncode != 0:
        return Sample({}, missing=f"it failed with exit code {done.returncode}", failed=True)
    return msgspec.json.decode(done.stdout, type=Sample)


def figures(bench: Bench, samples: list[Sample]) -> list[dict[str, Any]]:
    """One JSON line per measure of the bench."""
    missing = next((sample.missing for sample in samples if sample.missing), "")
    if missing:
        return [
            {"figure": m.name, "unit": m.unit, "must": m.must, "missing": missing} for m in bench.measures
        ]
    return [_figure(measure, samples) for measure in bench.measures]


def _figure(measure: Measure, samples: list[Sample]) -> dict[str, Any]:
    values = [sample.values[measure.name] for sample in samples]
    raws = [sample.raw for sample in samples if sample.raw is not None]
    ratios = [measure.ratio(value, raw) for value, raw in zip(values, raws, strict=True)]
    known = [ratio for ratio in ratios if ratio is not None]
    value = median(values)
    return {
        "figure": measure.name,
        "value": _rounded(value),
        "unit": measure.unit,
        "must": measure.must,
        "better": measure.better.name.lower(),
        "met": measure.met(value),
        "runs": [_rounded(value) for value in values],
        "raw_commits_s": _rounded(median(raw.commits_s for raw in raws)),
        "raw_batched_rows_s": _rounded(median(raw.rows_s for raw in raws)),
        "ratio": _rounded(median(known)) if known else None,
        "ratio_to": str(measure.beside) or None,
        "notes": _notes(samples),
        "loop": samples[0].loop,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "cores": os.cpu_count(),
    }


def _notes(samples: list[Sample]) -> dict[str, float | str]:
    """The median of what is a number; the first word of what is not."""
    notes: dict[str, float | str] = {}
    for name, first in samples[0].notes.items():
        if isinstance(first, str):
            notes[name] = first
        else:
            notes[name] = _rounded(median(float(sample.notes[name]) for sample in samples))
    return notes


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def short(value: float) -> str:
    """A figure for people: three digits say enough."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def table(lines: list[dict[str, Any]], quick: bool) -> str:
    """The same for people."""
    rows: list[tuple[str, ...]] = [("figure", "median", "runs", "must", "", "÷ raw", "raw is")]
    rows += [_row(line) for line in lines]
    text = aligned(rows).splitlines()
    text.insert(1, "-" * max(map(len, text)))
    notes = {str(line["notes"]): line for line in lines if line.get("notes")}  # a bench's notes once
    text += ["", *(f"{line['figure']}: {_told(line['notes'])}" for line in notes.values())]
    if measured := next((line for line in lines if "loop" in line), None):
        raw = f"{short(measured['raw_commits_s'])} one-row commits/s, {short(measured['raw_batched_rows_s'])} rows/s"
        text += [
            "",
            f"{measured['loop']}, Python {measured['python']}, SQLite {measured['sqlite']} (raw: {raw})",
        ]
    if quick:
        text.append("--quick: small runs; the figures of record are those without it")
    return "\n".join(text)


def aligned(rows: list[tuple[str, ...]]) -> str:
    """Columns as wide as their widest cell."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _row(line: dict[str, Any]) -> tuple[str, ...]:
    if "missing" in line:
        return (line["figure"], "not available", line["missing"], "", "", "", "")
    sign = "≥" if line["better"] == "higher" else "≤"
    must = "" if line["must"] is None else f"{sign} {line['must']:,g}"
    verdict = {True: "pass", False: "MISS", None: ""}[line["met"]]
    spread = f"{short(min(line['runs']))} … {short(max(line['runs']))}"
    ratio = "" if line["ratio"] is None else short(line["ratio"])
    value = f"{short(line['value'])} {line['unit']}"
    return (line["figure"], value, spread, must, verdict, ratio, line["ratio_to"] or "")


def _told(notes: dict[str, float | str]) -> str:
    return ", ".join(
        f"{name} {value}" if isinstance(value, str) else f"{name} {short(value)}"
        for name, value in notes.items()
    )


if __name__ == "__main__":
    sys.exit(main())
