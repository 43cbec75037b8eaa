"""One run of one bench in a process of its own: `python -m bench.sample NAME FOLDER [--quick] [--profile]`.

Nothing that an earlier run left in memory can help or hurt. `--profile` shows on stderr where the time goes.
"""

import argparse
import asyncio
import cProfile
import logging
import pstats
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import msgspec

from . import raw
from .benches import BENCHES, PARTS, Bench
from .http_benches import HTTP_BENCHES
from .measures import Sample
from .redis_benches import REDIS_BENCHES

_ALL = (*BENCHES, *PARTS, *HTTP_BENCHES, *REDIS_BENCHES)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.sample", description=__doc__)
    parser.add_argument("name", choices=[bench.name for bench in _ALL])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--profile", action="store_true")
    asked = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    bench = next(bench for bench in _ALL if bench.name == asked.name)
    asked.folder.mkdir(parents=True, exist_ok=True)
    sample = play(bench, asked.folder, asked.quick, asked.profile)
    sys.stdout.buffer.write(msgspec.json.encode(sample) + b"\n")


def play(bench: Bench, folder: Path, quick: bool, profile: bool) -> Sample:
    """The bench, and raw SQLite just before it on the same disk."""
    before = raw.measure(folder)
    name, factory = _loop()
    profiler = cProfile.Profile() if profile else None
    with asyncio.Runner(loop_factory=factory) as runner:
        sample = runner.run(_profiled(bench, folder, quick, profiler))
    if profiler is not None:
        pstats.Stats(profiler, stream=sys.stderr).sort_stats("tottime").print_stats(45)
    return msgspec.structs.replace(sample, raw=before, loop=name)


async def _profiled(bench: Bench, folder: Path, quick: bool, profiler: cProfile.Profile | None) -> Sample:
    if profiler is not None:
        profiler.enable()
    try:
        return await bench.play(folder, quick)
    finally:
        if profiler is not None:
            profiler.disable()


def _loop() -> tuple[str, Callable[[], asyncio.AbstractEventLoop] | None]:
    """The loop of the bench: uvloop where it is installed, as `regista[speed]` would have it."""
    try:
        import uvloop
    except ImportError:
        return "asyncio", None
    return f"uvloop {version('uvloop')}", uvloop.new_event_loop


if __name__ == "__main__":
    main()
