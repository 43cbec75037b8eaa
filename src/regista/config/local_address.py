"""Where an orchestrator on this machine is: it leaves its address beside its tokens.

So commands, clients and workers that are started in the same directory find it, whatever its port.
"""

import os
import re
import threading
from collections.abc import Callable
from pathlib import Path

#: Its file in the state directory, and the side file whose lock says that it is true.
URL_FILE = "url"
LOCK_FILE = "url.lock"
#: Where an orchestrator listens by default.
USUAL_URL = "http://127.0.0.1:8080"
#: Nothing else is believed: a token must not leave this machine because of a file that somebody has left.
_LOOPBACK = re.compile(r"https?://(127(\.\d{1,3}){3}|localhost|\[::1\]):\d{1,5}")


def url_for(given: str, state_dir: str) -> str:
    """The given address; else the one that a local orchestrator has left; else the usual one."""
    return (given or find_url(state_dir) or USUAL_URL).rstrip("/")


def find_url(state_dir: str) -> str | None:
    """The address that an orchestrator on this machine has left, if there is one."""
    try:
        found = Path(state_dir, URL_FILE).read_text().strip()
    except (OSError, ValueError):
        return None
    return found if _LOOPBACK.fullmatch(found) else None


class LocalAddressFile:
    """Our address in the state directory, for as long as we serve.

    Of several that serve in one directory the first is the one that is found. Whoever comes later takes its place when it has stopped,
    or has died: the lock on the side file goes with its process. Nobody removes the address of another.
    """

    def __init__(self, state_dir: str, url: str, every_s: float = 0.5) -> None:
        self._directory = Path(state_dir)
        self._url = url
        self._every_s = every_s
        self._lock: int | None = None
        self._removed = threading.Event()
        self._waiting: threading.Thread | None = None

    def leave(self, on_turn: Callable[[], None] = lambda: None) -> str | None:
        """Say where we are. None: we are found; else what is found instead, and `on_turn` is called when our turn has come."""
        self._directory.mkdir(parents=True, exist_ok=True)
        if self._take():
            return None
        self._waiting = threading.Thread(target=self._wait, args=[on_turn], name="address", daemon=True)
        self._waiting.start()
        return find_url(str(self._directory)) or "an address that is not known yet"

    def remove(self) -> None:
        """We are gone. Twice is fine, and so is before `leave`."""
        self._removed.set()
        if self._waiting is not None:
            self._waiting.join()
            self._waiting = None
        lock, self._lock = self._lock, None
        if lock is not None:
            (self._directory / URL_FILE).unlink(missing_ok=True)
            os.close(lock)

    def _wait(self, on_turn: Callable[[], None]) -> None:
        while not self._removed.wait(self._every_s):
            try:
                if self._take():
                    on_turn()
                    return
            except OSError:  # the directory is gone, say: whoever is told the address needs no file
                return

    def _take(self) -> bool:
        """Take the lock, and write the address; False when somebody else is the one that is found."""
        lock = os.open(self._directory / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if not _locked(lock):
                os.close(lock)
                return False
            fresh = self._directory / f"{URL_FILE}.{os.getpid()}"
            fresh.write_text(self._url + "\n")
            fresh.replace(self._directory / URL_FILE)  # whoever reads finds all of it, or the one before
        except OSError:
            os.close(lock)
            raise
        self._lock = lock
        return True


def _locked(handle: int) -> bool:
    """Whether the lock of this file is ours now. Where there are no such locks, it always is."""
    try:
        import fcntl
    except ModuleNotFoundError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
