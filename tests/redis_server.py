"""A real `redis-server` for tests: on a free port, in a directory of its own, gone when it is stopped."""

import os
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

from tests.ports import free_port

#: Seconds until a server answers, or is gone.
_PATIENCE_S = 8.0


class RedisServer:
    """One process. `stop` and `start` are a restart: the port and the directory stay."""

    def __init__(self, binary: str, *options: str, appendonly: bool = False) -> None:
        self._binary = binary
        self._options = options
        self._directory = tempfile.TemporaryDirectory(prefix="regista-redis-")
        self.appendonly = appendonly
        self.path = Path(self._directory.name)
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Return when it answers."""
        command = [self._binary, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.path)]
        command += ["--save", "", "--appendonly", "yes" if self.appendonly else "no"]
        command += ["--appendfsync", "always", *self._options]
        with (self.path / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        for _ in range(int(_PATIENCE_S / 0.01)):
            if self._process.poll() is not None:
                break
            if self._answers():
                return
            time.sleep(0.01)
        raise RuntimeError(f"redis-server did not start:\n{(self.path / 'log').read_text()}")

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as probe:
                probe.sendall(b"PING\r\n")
                return probe.recv(64).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Send it a signal; SIGKILL and SIGTERM are waited for."""
        assert self._process is not None
        os.kill(self._process.pid, how)
        if how in (signal.SIGKILL, signal.SIGTERM):
            self._process.wait(_PATIENCE_S)
            self._process = None

    def stop(self) -> None:
        """Twice is fine."""
        if self._process is not None:
            self.kill()

    def close(self) -> None:
        """Stop, and take the directory away."""
        self.stop()
        self._directory.cleanup()

    def __enter__(self) -> "RedisServer":
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ask(self, *words: str | int) -> str:
        """The answer to one command, as the server writes it, for short ones."""
        said = b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in (str(word).encode() for word in words))
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as line:
            line.sendall(b"*%d\r\n%s" % (len(words), said))
            return line.recv(1 << 16).decode(errors="replace").strip()
