"""ScratchDirectory: temporary directories on this machine's disk, gone with their job and with their process."""

import os
import shutil
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path

#: Where there are no such locks (Windows), what a killed process left stays.
_HAS_LOCKS = sys.platform != "win32"
if _HAS_LOCKS:
    import fcntl

#: In every process's directory; locked for as long as the process lives.
_LOCK = ".lock"
#: How the name of a directory begins that its process has not locked yet.
_UNLOCKED = "new-"
#: A process needs less than so many seconds to lock its directory.
_LOCKED_WITHIN_S = 60.0


class ScratchDirectory:
    """Directories of this process, by job. Nothing is made before somebody asks for one.

    `kill -9` leaves them behind; their lock tells the next process on this machine that nobody uses them
    any more. May be used from any thread.
    """

    def __init__(self, directory: str = "") -> None:
        """Empty: below the system's own directory for temporary files."""
        self._base = Path(directory) if directory else Path(tempfile.gettempdir()) / "regista-files"
        self._own: Path | None = None
        self._lock: int | None = None
        self._guard = threading.Lock()

    def folder(self, *parts: str) -> Path:
        """The directory of this name, there from now on."""
        with self._guard:
            if self._own is None:
                self._open()
            assert self._own is not None
            folder = self._own.joinpath(*parts)
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return folder

    def names(self) -> list[str]:
        """The first parts of all directories that are there: the jobs."""
        with self._guard:
            if self._own is None or not self._own.is_dir():
                return []
            return sorted(each.name for each in self._own.iterdir() if each.is_dir())

    def drop(self, *parts: str) -> None:
        """Remove a directory with everything in it. One that is not there is fine."""
        with self._guard:
            if self._own is None:
                return
            shutil.rmtree(self._own.joinpath(*parts), ignore_errors=True)
            if len(parts) > 1:
                _remove_empty(self._own / parts[0])

    def close(self) -> None:
        """Remove everything of this process. Twice is fine; the next `folder` begins anew."""
        with self._guard:
            own, lock, self._own, self._lock = self._own, self._lock, None, None
        if own is not None:
            shutil.rmtree(own, ignore_errors=True)
        if lock is not None:
            os.close(lock)

    def sweep(self) -> int:
        """Remove what processes left that are no more; returns of how many."""
        if not _HAS_LOCKS or not self._base.is_dir():
            return 0
        return sum(_bury(each) for each in self._base.iterdir() if each != self._own and each.is_dir())

    def _open(self) -> None:
        """A directory of our own. Whoever can read the base must not be able to read it.

        It is locked under a name that no sweep touches, and gets its own name afterwards.
        """
        name = f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
        unlocked, own = self._base / f"{_UNLOCKED}{name}", self._base / name
        unlocked.mkdir(mode=0o700, parents=True)
        if _HAS_LOCKS:
            self._lock = os.open(unlocked / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        unlocked.rename(own)
        self._own = own


def _bury(folder: Path) -> bool:
    """Remove the directory of a process that has ended; False while it lives, or begins."""
    try:
        if folder.name.startswith(_UNLOCKED) and time.time() - folder.stat().st_mtime < _LOCKED_WITHIN_S:
            return False
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False  # it is just being made, or another one buries it, or it is not ours
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
        return True
    except OSError:
        return False
    finally:
        os.close(lock)


def _remove_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        pass  # others are still in it
