"""How fast files go up and down, and how much memory that takes: a file of `--gb` gigabytes (2) through each store.

    python -m bench.payloads [--gb 2] [--store file|s3] [--most-mb 64]

Prints a JSON line for each store and direction. Exits with 1 when memory grows by more than `--most-mb`. The S3
server is `rclone serve s3`, a process of its own.
"""

import argparse
import asyncio
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from regista.config import Config
from regista.payloads.files_service import TaskFilesService, build_files

MB = 1024 * 1024
KEY, SECRET = "bench", "a-secret-of-the-bench"


class Line(msgspec.Struct, frozen=True):
    """One step through one store. `grown_mb` is how much the peak has grown since the first."""

    store: str
    step: str
    mb: int
    mb_per_s: int
    grown_mb: float


async def content(total: int) -> AsyncIterator[bytes]:
    """So many bytes, made as they are asked for."""
    piece = bytes(range(256)) * (MB // 256)
    for _ in range(total // MB):
        yield piece


def peak_mb() -> float:
    """The most memory that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def measure(name: str, service: TaskFilesService, total: int) -> list[Line]:
    """The file up, down as a stream, down to the disk and up from there."""
    files = service.open("bench")
    await files.upload_stream("warm", content(32 * MB))  # what the libraries take once is not the file's
    async for _ in files.stream("warm"):
        pass
    lines = []
    base = peak_mb()
    for step in ("upload_stream", "stream", "download", "upload"):
        began = time.perf_counter()
        if step == "upload_stream":
            await files.upload_stream("big", content(total))
        elif step == "stream":
            assert sum([len(piece) async for piece in files.stream("big")]) == total
        elif step == "download":
            await files.download("big")
        else:
            await files.upload("big", "again")
        seconds = time.perf_counter() - began
        lines.append(Line(name, step, total // MB, round(total / MB / seconds), round(peak_mb() - base, 1)))
        print(msgspec.json.encode(lines[-1]).decode(), flush=True)
    await files.delete("big", "again", "warm")
    return lines


@contextmanager
def store_of(name: str, folder: Path) -> Iterator[Config]:
    """The settings of a payload store that is there."""
    scratch = str(folder / "scratch")
    if name == "file":
        yield Config(payloads=f"file:{folder / 'payloads'}", task_files_dir=scratch)
        return
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (folder / "buckets" / "regista-payloads").mkdir(parents=True)
    beside = Path(sys.executable).with_name("rclone")
    binary = str(beside) if beside.exists() else shutil.which("rclone") or "rclone"
    flags = ["--addr", f"127.0.0.1:{port}", "--auth-key", f"{KEY},{SECRET}", "--no-checksum"]
    flags += ["--config", str(folder / "none.conf"), "--cache-dir", str(folder / "cache"), "--quiet"]
    server = subprocess.Popen([binary, "serve", "s3", str(folder / "buckets"), *flags])
    try:
        _wait_for(port)
        yield Config(
            s3_endpoint_url=f"http://127.0.0.1:{port}",
            s3_access_key=KEY,
            s3_secret_key=SECRET,
            task_files_dir=scratch,
        )
    finally:
        server.kill()
        server.wait()


def _wait_for(port: int) -> None:
    for _ in range(500):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise SystemExit("the S3 server does not answer")


async def run(name: str, config: Config, total: int) -> list[Line]:
    """One store."""
    service = build_files(config)
    assert service is not None
    await service.start()
    try:
        return await measure(name, service, total)
    finally:
        await service.stop()


def main() -> int:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gb", type=float, default=2.0)
    parser.add_argument("--store", choices=("file", "s3"))
    parser.add_argument("--most-mb", type=float, default=64.0)
    asked = parser.parse_args()
    total = int(asked.gb * 1024) * MB
    if asked.store is None:  # a process for each: what one took would hide what the next takes
        again = [sys.executable, "-m", "bench.payloads", f"--gb={asked.gb}", f"--most-mb={asked.most_mb}"]
        return max(
            subprocess.run([*again, "--store", name], check=False).returncode for name in ("file", "s3")
        )
    with (
        tempfile.TemporaryDirectory(prefix="regista-bench-") as folder,
        store_of(asked.store, Path(folder)) as config,
    ):
        lines = asyncio.run(run(asked.store, config, total))
    return 1 if max(line.grown_mb for line in lines) > asked.most_mb else 0


if __name__ == "__main__":
    sys.exit(main())
