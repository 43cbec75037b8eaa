"""A real `postgres` for tests: on a free port, in a directory of its own, gone when it is stopped."""

import asyncio
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any

import asyncpg

from tests.conftest import Require, require_binary
from tests.ports import free_port

#: Seconds until a server answers, or is gone.
_PATIENCE_S = 8.0
#: Where Debian keeps them: not on the path, a directory for each version.
_DEBIAN = Path("/usr/lib/postgresql")
USER, PASSWORD = "regista", "hunter2/@:"
_names = map("place_{}".format, count(1))


def postgres_binary(require: Require = require_binary) -> str:
    """The newest `postgres` of this machine, with `initdb` beside it."""
    found = sorted(_DEBIAN.glob("*/bin/postgres"), key=lambda path: float(path.parts[-3]))
    return str(found[-1]) if found else os.path.realpath(require("postgres"))


class PostgresServer:
    """One process with its children. `stop` and `start` are a restart: the port and the directory stay."""

    def __init__(self, binary: str, *options: str) -> None:
        self._binary = Path(binary)
        self._options = options
        self.path = Path(tempfile.mkdtemp(prefix="regista-postgres-"))
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._who = _unprivileged()

    def uri(self, schema: str = "public", user: str = USER, password: str = PASSWORD) -> str:
        secret = password.replace("/", "%2F").replace("@", "%40").replace(":", "%3A")
        return f"postgresql://{user}:{secret}@127.0.0.1:{self.port}/postgres?search_path={schema}"

    def place(self) -> str:
        """The URI of a schema that is new and empty."""
        name = next(_names)
        self.ask(f"CREATE SCHEMA {name}")
        return self.uri(name)

    def ask(self, question: str, schema: str = "public") -> list[Any]:
        """The first column of the answer to one question, past our own code."""

        async def body() -> list[Any]:
            connection = await asyncpg.connect(self.uri(schema), timeout=_PATIENCE_S)
            try:
                return [row[0] for row in await connection.fetch(question)]
            finally:
                await connection.close()

        with ThreadPoolExecutor(1) as thread:  # a test that asks may be a coroutine itself
            return thread.submit(asyncio.run, body()).result()

    def init(self) -> None:
        """Make the directory of an empty server whose superuser is ours."""
        (self.path / "password").write_text(PASSWORD)
        for path in (self.path, self.path / "password"):
            os.chown(path, *self._who)
        options = ["--pgdata", "data", "--username", USER, "--pwfile", "password", "--auth", "scram-sha-256"]
        options += ["--encoding", "UTF8", "--locale", "C", "--no-sync"]
        made = self._spawn(self._binary.with_name("initdb"), *options)
        if made.wait(_PATIENCE_S):
            raise RuntimeError(f"initdb failed:\n{(self.path / 'log').read_text()}")

    def start(self) -> None:
        """Return when it answers."""
        options = ["-D", "data", "-p", str(self.port), "-h", "127.0.0.1", "-c", "unix_socket_directories="]
        process = self._process = self._spawn(self._binary, *options, *self._options)
        until = time.monotonic() + _PATIENCE_S
        while time.monotonic() < until and process.poll() is None:
            if self._answers():
                return
            time.sleep(0.02)
        raise RuntimeError(f"postgres did not start:\n{(self.path / 'log').read_text()}")

    def _spawn(self, *command: str | Path) -> subprocess.Popen[bytes]:
        user, group = self._who
        with (self.path / "log").open("ab") as log:
            return subprocess.Popen(
                [str(word) for word in command],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self.path,
                user=user if os.geteuid() == 0 else None,
                group=group if os.geteuid() == 0 else None,
                extra_groups=[] if os.geteuid() == 0 else None,
            )

    def _answers(self) -> bool:
        try:
            return self.ask("SELECT 1") == [1]
        except (OSError, asyncpg.PostgresError, TimeoutError):
            return False

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT: at once and in order. SIGQUIT: as in a crash. Twice is fine."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait(_PATIENCE_S)

    def close(self) -> None:
        """Stop, and take the directory away."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.path)

    def __enter__(self) -> "PostgresServer":
        try:
            self.init()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _unprivileged() -> tuple[int, int]:
    """User and group for it: it refuses to run as root, so the Debian package makes a user."""
    if os.geteuid() != 0:
        return os.geteuid(), os.getegid()
    for name in ("postgres", "nobody"):
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            continue
        return found.pw_uid, found.pw_gid
    raise RuntimeError("expected a user postgres or nobody: PostgreSQL refuses to run as root")


def serving(require: Require) -> Iterator[PostgresServer]:
    """The body of a fixture: a server for all tests of a module."""
    with PostgresServer(postgres_binary(require)) as server:
        yield server
